"""The linear memory: what it is to a scoRNN, its starts, and the last state without a loop."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence

import scornn
from scornn.functional import skew
from scornn.nn import LinearMemory, MemoryBlocks, ScoRNN, SequenceModel, SpectralRNN
from scornn.nn.linear_memory import schur
from scornn.ops.bank import Bank

F64 = torch.float64


def close(a: Tensor, b: Tensor, tolerance: float = 1e-12) -> None:
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("n", [1, 2, 3, 6, 17])
@pytest.mark.parametrize("rho", [0, 1])
def test_the_matrix_is_orthogonal_with_the_determinant_of_rho(n: int, rho: int) -> None:
    layer = LinearMemory(2, n, rho=rho, start="cayley", dtype=F64)
    error = layer.orthogonality_error()
    assert error is not None
    assert error < 1e-14
    close(torch.linalg.det(layer.weight_hh_l0), torch.tensor((-1.0) ** rho, dtype=F64))
    assert list(scornn.optim.recurrent_parameters(layer)) == ["angle_hh_l0"]


def test_the_paper_start_gives_the_paper_spectrum() -> None:
    layer = LinearMemory(1, 200, rho=40, start="cayley", dtype=F64)
    angles = torch.linalg.eigvals(layer.weight_hh_l0).angle().abs()
    assert int((angles > torch.pi / 2).sum()) == 40
    uniform = LinearMemory(1, 200, dtype=F64).angle_hh_l0.detach()
    assert 0 <= float(uniform.min()) < 0.3
    assert 2.8 < float(uniform.max()) <= torch.pi


@pytest.mark.parametrize("n", [1, 2, 3, 8, 17])
@pytest.mark.parametrize("rho", [0, 1, None])
def test_a_linear_scornn_is_a_bank_of_rotations(n: int, rho: int | None) -> None:
    layer = ScoRNN(
        3, n, 2, "identity", bidirectional=True, dtype=F64, rho=rho, learn_h0=True, input_scale=0.5, bias_start=0.1
    )
    with torch.no_grad():
        for suffix in layer.suffixes():  # a W that is no start: dense
            getattr(layer, f"skew_hh{suffix}").normal_()
            getattr(layer, f"h0{suffix}").normal_()
    memory, Q = LinearMemory.from_scornn(layer)
    x = torch.randn(31, 2, 3, dtype=F64)
    expected, h_n = layer(x)
    output, memory_h_n = memory(x)
    close(output @ torch.block_diag(*Q[-2:]).mT, expected)
    close(memory_h_n @ Q.mT, h_n)
    close(memory.to_scornn()(x)[0], output)


def haar(n: int) -> Tensor:
    Q, R = torch.linalg.qr(torch.randn(n, n, dtype=F64))
    return Q * R.diagonal().sign()


def turned(spread: float) -> Tensor:
    """Ten angles that far apart, and a sign, in a basis of their own."""
    angle = 1 + spread * torch.randn(10, dtype=F64)
    R = Bank(angle, -torch.ones(1, dtype=F64)).matrix()
    Q = haar(21)
    return Q @ R @ Q.mT


@pytest.mark.parametrize(
    "make",
    [
        *(lambda n=n: haar(n) for n in (1, 2, 3, 17, 190)),
        *(lambda n=n: torch.eye(n, dtype=F64) for n in (1, 4)),
        *(lambda n=n: -torch.eye(n, dtype=F64) for n in (1, 5, 32)),
        lambda: torch.eye(33, dtype=F64)[torch.randperm(33)],
        lambda: torch.eye(190, dtype=F64).roll(1, 0),
        lambda: torch.diag(torch.tensor([1.0, -1, 1, -1, -1, -1], dtype=F64)),
        *(lambda spread=spread: turned(spread) for spread in (0, 1e-15, 1e-12, 1e-9, 1e-6, 1e-3)),
        lambda: torch.linalg.matrix_exp(1e-9 * skew(torch.randn(136, dtype=F64), 17)),
    ],
)
def test_schur_form_of_any_orthogonal_matrix(make: Callable[[], Tensor]) -> None:
    torch.manual_seed(0)
    W = make()
    bank, Q = schur(W)
    n = len(W)
    assert bank.sign.numel() <= 2
    close(Q.mT @ Q, torch.eye(n, dtype=F64))
    close(Q @ bank.matrix() @ Q.mT, W)


def test_only_a_linear_scornn_converts() -> None:
    with pytest.raises(ValueError, match="nonlinearity is modrelu"):
        LinearMemory.from_scornn(ScoRNN(2, 4))
    for layer in (scornn.nn.RNN(2, 4, nonlinearity="identity"), SpectralRNN(2, 4, nonlinearity="identity")):
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.add_(torch.rand_like(parameter))
        with pytest.raises(ValueError, match="from_scornn: W is not orthogonal"):
            LinearMemory.from_scornn(layer)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"rho": 2.0}, TypeError, "rho should be of type int, got: float"),
        ({"rho": 5}, ValueError, r"0\.\.4, the size of W; got 5"),
        ({"rho": True}, TypeError, "bool"),
        ({"rho": [1, 2]}, ValueError, "each of the 1 layers"),
        ({"start": "haar"}, ValueError, "unknown start 'haar'"),
        ({"backend": "cuda"}, ValueError, "unknown backend 'cuda'"),
        ({"input_scale": 0}, ValueError, "input_scale"),
    ],
    ids=str,
)
def test_refusals(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        LinearMemory(2, 4, **options)


@pytest.mark.parametrize("steps", [1, 2, 7, 31])
@pytest.mark.parametrize("kind", ["padded", "packed", "stacked", "reversed and packed"])
def test_the_last_state_alone(steps: int, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scornn.ops.bank_last.BLOCK", 5 * 3 * 7)  # blocks of five steps
    options: dict[str, Any] = {"num_layers": 2} if kind == "stacked" else {"bidirectional": kind.startswith("reversed")}
    layer = LinearMemory(3, 7, bias=True, dtype=F64, rho=1, input_scale=0.5, learn_h0=True, **options)
    torch.nn.init.normal_(layer.bias_l0)
    x = torch.randn(steps, 3, 3, dtype=F64, requires_grad=True)
    h0 = torch.randn(len(layer.suffixes()), 3, 7, dtype=F64, requires_grad=True)
    lengths = torch.tensor([steps, max(steps - 3, 1), 1])
    weights = torch.randn(h0.shape, dtype=F64)
    layer.learn_h0 = False  # h0 is given
    wanted = [getattr(layer, name) for name in scornn.optim.named_parameters(layer) if not name.startswith("h0")] + [
        x,
        h0,
    ]
    results = []
    for backend, need_output in (("naive", True), ("auto", False)):
        layer.backend = backend
        source: Any = pack_padded_sequence(x, lengths) if "packed" in kind else x
        output, h_n = layer(source, h0, need_output=need_output)
        assert (output is None) != need_output
        results.append([h_n, *torch.autograd.grad((h_n * weights).sum(), wanted)])
    for ours, expected in zip(results[1], results[0], strict=True):
        close(ours, expected, 1e-10)


def test_a_network_that_reads_the_last_state_makes_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = LinearMemory(1, 8)
    model = SequenceModel(layer, 3, read="last")
    x = torch.randn(20, 2, 1)
    expected = model.head(layer(x)[0][-1])
    monkeypatch.delattr(LinearMemory.matrix_class, "recurrence")
    torch.testing.assert_close(model(x), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("bias", [False, True])
def test_the_last_state_compiles_in_one_graph_at_any_length(bias: bool) -> None:
    network = SequenceModel(LinearMemory(3, 16, bias=bias, dtype=F64), 2, "last").double()
    torch.compiler.reset()
    compiled = torch.compile(network, fullgraph=True, backend="aot_eager")
    for steps in (50, 77, 64, 1, 130, 1000):
        x = torch.randn(steps, 4, 3, dtype=F64)
        close(compiled(x), network(x))


def test_memory_of_the_last_state_has_no_states_in_it() -> None:
    """Autograd keeps the inputs, K and a state for each block: nothing of the size of all states."""
    steps, batch, n = 500, 64, 32
    layer, x = LinearMemory(1, n), torch.randn(steps, batch, 1)
    kept: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):
        layer(x, need_output=False)[1].sum().backward()
    assert max(kept) <= max(steps * n, steps * batch)
    assert sum(kept) < steps * batch * n / 4


def test_it_is_named_as_beyond_the_paper() -> None:
    assert "beyond the paper" in scornn.nn.MODELS["linear-memory"].source
    assert str(LinearMemory(3, 8)) == "LinearMemory(3, 8, rho=4)"


def test_what_is_not_finite_stays_in_its_step_and_after() -> None:
    layer, x = LinearMemory(1, 256), torch.randn(2000, 8, 1)
    head = (torch.randn(1, 256), torch.zeros(1))
    x[1990, 0] = float("nan")
    y, _ = layer(x, head=head)
    assert y[:1990].isfinite().all()
    assert y[:, 1:].isfinite().all()
    assert y[1990:, 0].isnan().all()


def test_a_start_on_another_device_than_the_default_one() -> None:
    with torch.device("meta"):
        layer = LinearMemory(1, 8, start="spaced", device="cpu")
    assert layer.angle_hh_l0.isfinite().all()


def test_a_head_under_transforms_compilers_and_export() -> None:
    model = SequenceModel(LinearMemory(1, 8), 1).eval()
    x = torch.full((5, 2, 1), 1e-3)
    x[2] = 1e5
    with torch.no_grad():
        exact = deepcopy(model).double()(x.double())
        limit = 1e-4 * exact[0].abs().max()
        for y in (
            model(x),
            torch.func.vmap(model)(x[None])[0],
            torch.compile(model, backend="eager", fullgraph=True)(x),
        ):
            assert (y[0] - exact[0]).abs().max() < limit
        assert torch.export.export(model, (x,), strict=False).module()(x).shape == exact.shape
        assert SequenceModel(LinearMemory(1, 8, device="meta"), 1)(x.to("meta")).shape == exact.shape


def test_one_precision_under_autocast() -> None:
    model = SequenceModel(LinearMemory(1, 8), 1).eval()
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
        assert model(torch.ones(5, 2, 1)).dtype == torch.bfloat16


@pytest.mark.parametrize("batch", [1, 2])
def test_gradients_of_states_at_odd_places(batch: int) -> None:
    """n is odd, and so the second of two states begins where no complex number may."""
    layers = [LinearMemory(1, 33, num_layers=2), LinearMemory(1, 33, bidirectional=True, learn_h0=True)]
    for layer in (*layers, MemoryBlocks(1, 33, num_layers=2, width=4)):
        h0 = torch.randn(2, batch, 33, requires_grad=True)
        found = torch.autograd.grad(layer(torch.ones(6, batch, 1), h0, need_output=False)[1].square().sum(), h0)
        expected = torch.autograd.grad(layer(torch.ones(6, batch, 1), h0)[1].square().sum(), h0)
        torch.testing.assert_close(found, expected)
