"""The frozen form against the network: every model, stacked and in two directions, in one piece and in many."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.utils import prune
from torch.nn.utils.parametrizations import weight_norm

from scornn.errors import UsageError
from scornn.nn import MODELS, SequenceModel, build
from scornn.nn.frozen import FrozenLayer
from scornn.program.deploy import Frozen

FROZEN = sorted(set(MODELS) - {"memory-blocks"})
TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}


def network(name: str, read: str = "all", **options: object) -> SequenceModel:
    torch.manual_seed(1)
    made = SequenceModel(build(name, 3, 8, **options), 4, read)
    with torch.no_grad():
        for parameter in made.layer.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))  # biases that do something
    return made.eval()


@pytest.mark.parametrize("plain", [False, True], ids=["fast", "plain"])
@pytest.mark.parametrize("name", FROZEN)
@torch.no_grad()
def test_gives_the_outputs_of_the_network(name: str, plain: bool) -> None:
    model = network(name, num_layers=2, bidirectional=True)
    x = torch.randn(5, 2, 3)
    torch.testing.assert_close(Frozen(model, plain=plain)(x)[0], model(x), **TOLERANCE)


@pytest.mark.parametrize("name", FROZEN)
@torch.no_grad()
def test_a_sequence_in_pieces_is_the_sequence(name: str) -> None:
    model = network(name, num_layers=2)
    frozen, x = Frozen(model), torch.randn(6, 2, 3)
    state: tuple[torch.Tensor, ...] = frozen.initial_state(2)
    outputs = []
    for frame in x:
        y, *rest = frozen(frame.unsqueeze(0), *state)
        state = tuple(rest)
        outputs.append(y)
    torch.testing.assert_close(torch.cat(outputs), model(x), **TOLERANCE)


@torch.no_grad()
def test_the_last_state_is_read_as_the_network_reads_it() -> None:
    model = SequenceModel(build("scornn", 3, 8, bidirectional=True), 4, "last", width=5).eval()
    x = torch.randn(5, 2, 3)
    torch.testing.assert_close(Frozen(model)(x)[0], model(x), **TOLERANCE)


@pytest.mark.parametrize("name", ["scornn", "lstm", "linear-memory"])
@torch.no_grad()
def test_a_long_sequence_that_is_read_at_its_end_is_not_held(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, x, run, lengths = network(name, "last"), torch.randn(40, 2, 3), FrozenLayer.run, []

    def running(self: FrozenLayer, suffix: str, x: torch.Tensor, *rest: Any, **more: Any) -> Any:
        lengths.append(len(x))
        return run(self, suffix, x, *rest, **more)

    expected = model(x)
    monkeypatch.setattr(FrozenLayer, "run", running)
    monkeypatch.setattr("scornn.nn.layer.HELD", 2**10)
    torch.testing.assert_close(Frozen(model)(x)[0], expected, **TOLERANCE)
    assert sum(lengths) == 40 > max(lengths)


@pytest.mark.parametrize("change", ["pruned", "weight norm", "no bias"])
@torch.no_grad()
def test_a_head_as_it_is_used(change: str) -> None:
    model, x = network("scornn"), torch.randn(5, 2, 3)
    if change == "pruned":
        prune.random_unstructured(model.head, "weight", 0.5)
    elif change == "weight norm":
        weight_norm(model.head)
    else:
        model.head = torch.nn.Linear(8, 4, bias=False)
    before = torch.get_rng_state()
    frozen = Frozen(model)
    assert torch.equal(torch.get_rng_state(), before)
    torch.testing.assert_close(frozen(x)[0], model(x), **TOLERANCE)


def test_a_head_of_other_layers_is_refused() -> None:
    model = network("scornn")
    for other in (torch.nn.ReLU(), torch.nn.GELU(approximate="tanh")):
        model.head = torch.nn.Sequential(torch.nn.Linear(8, 4), other)
        with pytest.raises(UsageError, match=rf"a head with {type(other).__name__}\(.*\) cannot be frozen"):
            Frozen(model)


def test_a_model_without_a_form_says_so() -> None:
    with pytest.raises(UsageError, match="an LSTM with proj_size has no frozen form"):
        Frozen(network("lstm", proj_size=2))
    with pytest.raises(UsageError, match="MemoryBlocks cannot be frozen"):
        Frozen(network("memory-blocks"))


def test_a_state_of_the_wrong_kind_is_refused() -> None:
    frozen = Frozen(network("lstm"))
    with pytest.raises(ValueError, match="expected the state h, c"):
        frozen(torch.randn(2, 1, 3), torch.zeros(1, 1, 8))


@pytest.mark.parametrize("name", ["scornn", "lstm", "goru", "linear-memory"])
def test_a_program_without_the_layers_checks_refuses_another_precision(name: str) -> None:
    """Tracing leaves the operators alone, which take addresses: they check what they are given themselves."""
    frozen = Frozen(network(name))
    x, state = torch.randn(6, 2, 3), frozen.initial_state(2)
    program = torch.export.export(frozen, (x, *state)).module()
    with pytest.raises(ValueError, match="must agree"):
        program(x.double(), *state)
    with pytest.raises(ValueError, match="float16"):
        program(x.half(), *state)


@pytest.mark.parametrize("name", ["lstm", "gru", "goru"])
def test_a_frozen_layer_runs_where_its_layer_does(name: str) -> None:
    x = torch.randn(4, 2, 3, requires_grad=True)
    plain = build(name, 3, 8, backend="naive").frozen()
    (first,) = torch.autograd.grad(plain(x)[0].square().sum(), x, create_graph=True)
    assert torch.autograd.grad(first.sum(), x)[0].isfinite().all()
    native = build(name, 3, 8, backend="native", dtype=torch.float16).frozen()
    with pytest.raises(RuntimeError, match='backend="native" cannot run'):
        native(x.half())
