"""RMSprop in its three flavours, against sequences worked out by hand and against torch."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize, prune

import scornn
from scornn.nn import MODELS
from scornn.optim import FLAVOURS, RMSprop, parameter_groups


def run(flavour: str, gradients: list[float], lr: float = 0.1) -> list[float]:
    p = nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimizer = RMSprop([p], lr=lr, flavour=flavour)
    path = []
    for g in gradients:
        p.grad = torch.tensor([g], dtype=torch.float64)
        optimizer.step()
        path.append(p.item())
    return path


def test_tf1_by_hand() -> None:
    """s: 1 → 0.9 + 0.1·4 = 1.3 → 1.17 + 0.1·1 = 1.27; ε = 1e-10 under the root."""
    first = -0.1 * 2 / math.sqrt(1.3 + 1e-10)
    second = first - 0.1 * -1 / math.sqrt(1.27 + 1e-10)
    assert run("tf1", [2.0, -1.0]) == pytest.approx([first, second], rel=1e-15)


def test_theano_by_hand() -> None:
    """s: 0.001 → 0.0009 + 0.4 = 0.4009 → 0.36081 + 0.1 = 0.46081; no ε."""
    first = -0.1 * 2 / math.sqrt(0.4009)
    second = first - 0.1 * -1 / math.sqrt(0.46081)
    assert run("theano", [2.0, -1.0]) == pytest.approx([first, second], rel=1e-14)


def test_torch_by_hand() -> None:
    """s: 0 → 0.04 → 0.0396 + 0.01 = 0.0496; ε = 1e-8 outside: the first step is 10 · lr."""
    first = -0.1 * 2 / (math.sqrt(0.04) + 1e-8)
    second = first - 0.1 * -1 / (math.sqrt(0.0496) + 1e-8)
    assert run("torch", [2.0, -1.0]) == pytest.approx([first, second], rel=1e-14)


def test_torch_flavour_is_torchs_bit_for_bit() -> None:
    ours, theirs = nn.Linear(7, 5), nn.Linear(7, 5)
    theirs.load_state_dict(ours.state_dict())
    a, b = RMSprop(ours.parameters(), lr=3e-3, flavour="torch"), torch.optim.RMSprop(theirs.parameters(), lr=3e-3)
    for _ in range(20):
        x = torch.randn(4, 7)
        for net, optimizer in ((ours, a), (theirs, b)):
            optimizer.zero_grad()
            net(x).square().sum().backward()
            optimizer.step()
    assert torch.equal(ours.weight, theirs.weight)
    assert torch.equal(ours.bias, theirs.bias)


def test_decay_and_eps_can_be_set() -> None:
    """Keras' RMSprop is the torch flavour with decay 0.9."""
    p = nn.Parameter(torch.zeros(1, dtype=torch.float64))
    p.grad = torch.tensor([2.0], dtype=torch.float64)
    RMSprop([p], lr=0.1, flavour="torch", decay=0.9, eps=0.5).step()
    assert p.item() == pytest.approx(-0.1 * 2 / (math.sqrt(0.4) + 0.5))


def test_a_group_has_what_its_own_flavour_says() -> None:
    """What a group does not say comes from the constructor's settings, and what those do not say from its flavour."""
    one, two, three = (nn.Parameter(torch.zeros(1, dtype=torch.float64)) for _ in range(3))
    groups: list[dict[str, Any]] = [{"params": [one]}, {"params": [two], "flavour": "torch"}]
    optimizer = RMSprop(groups, lr=0.1, flavour="tf1")
    optimizer.add_param_group({"params": [three], "flavour": "theano", "decay": 0.5})
    for p in (one, two, three):
        p.grad = torch.tensor([2.0], dtype=torch.float64)
    optimizer.step()
    assert one.item() == pytest.approx(run("tf1", [2.0])[0])
    assert two.item() == pytest.approx(run("torch", [2.0])[0])
    assert three.item() == pytest.approx(-0.1 * 2 / math.sqrt(0.5e-3 + 0.5 * 4))
    assert RMSprop(groups, decay=0.5).param_groups[1]["decay"] == 0.5


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"flavour": "adam"}, "unknown flavour 'adam'"),
        ({"lr": -1.0}, "lr must be"),
        ({"decay": 1.0}, "decay must lie"),
        ({"weight_decay": 0.1}, "no weight_decay"),
    ],
)
def test_a_group_is_checked_as_the_settings_are(wrong: dict[str, Any], says: str) -> None:
    p, q = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))
    with pytest.raises(ValueError, match=says):
        RMSprop([{"params": [p], **wrong}])
    optimizer = RMSprop([p])
    with pytest.raises(ValueError, match=says):
        optimizer.add_param_group({"params": [q], **wrong})
    assert len(optimizer.param_groups) == 1
    RMSprop([{"params": [p], "weight_decay": 0, "name": "rest"}])


@pytest.mark.parametrize("flavour", ["tf1", "theano", "torch"])
def test_complex_parameters_are_pairs_of_real_ones(flavour: str) -> None:
    z = nn.Parameter(torch.randn(3, dtype=torch.complex128))
    pair = nn.Parameter(torch.view_as_real(z.detach().clone()))
    optimizers = [RMSprop([p], lr=0.1, flavour=flavour) for p in (z, pair)]
    for k in range(4):
        z.grad = torch.randn(3, dtype=torch.complex128)
        pair.grad = torch.view_as_real(z.grad)
        for optimizer in optimizers:
            optimizer.step()
        if k == 1:
            optimizers[0].load_state_dict(copy.deepcopy(optimizers[0].state_dict()))
    assert torch.equal(torch.view_as_real(z.detach()), pair.detach())


def test_state_round_trip_continues_exactly() -> None:
    def steps(p: nn.Parameter, optimizer: RMSprop, count: int) -> None:
        for k in range(count):
            p.grad = torch.full_like(p, 1.0 + k)
            optimizer.step()

    p = nn.Parameter(torch.zeros(3))
    optimizer = RMSprop([p], lr=0.1)
    steps(p, optimizer, 3)
    q = nn.Parameter(p.detach().clone())
    twin = RMSprop([q], lr=0.5)
    twin.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    steps(p, optimizer, 3)
    steps(q, twin, 3)
    assert torch.equal(p, q)


@pytest.mark.parametrize(
    "wrong",
    [{"flavour": "keras"}, {"lr": -1.0}, {"lr": math.nan}, {"lr": math.inf}, {"decay": 1.0}, {"eps": -1e-8}],
    ids=str,
)
def test_refuses(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=str(next(iter(wrong)))):
        RMSprop([nn.Parameter(torch.zeros(1))], **wrong)  # type: ignore[arg-type]


def test_every_parameter_is_in_exactly_one_group() -> None:
    model = nn.ModuleDict(
        {
            "scornn": scornn.nn.SequenceModel(scornn.ScoRNN(3, 5, 2, bidirectional=True), 2),
            "cell": scornn.ScoRNNCell(3, 5),
            "linear": scornn.parametrizations.scaled_cayley(nn.Linear(4, 4)),
        }
    )
    rest, recurrent = parameter_groups(model, lr=1e-3, recurrent_lr=1e-4)
    assert (rest["name"], rest["lr"]) == ("rest", 1e-3)
    assert (recurrent["name"], recurrent["lr"]) == ("recurrent", 1e-4)
    ids = [id(p) for group in (rest, recurrent) for p in group["params"]]
    assert sorted(ids) == sorted(id(p) for p in model.parameters())
    assert {p.numel() for p in recurrent["params"]} == {10, 6}
    assert len(recurrent["params"]) == 4 + 1 + 1


@pytest.mark.parametrize("bias", ["rest", "recurrent", 2e-4])
def test_a_parameter_that_two_layers_share_is_in_its_group_once(bias: Any) -> None:
    layers = nn.ModuleList([scornn.ScoRNN(3, 5), scornn.ScoRNN(3, 5)])
    layers[1].skew_hh_l0, layers[1].bias_l0 = layers[0].skew_hh_l0, layers[0].bias_l0
    ids = [id(p) for group in parameter_groups(layers, 1e-3, 1e-4, bias=bias) for p in group["params"]]
    assert sorted(ids) == sorted(id(p) for p in layers.parameters())


def test_the_recurrent_bias_goes_where_it_is_told() -> None:
    model = scornn.nn.SequenceModel(scornn.ScoRNN(3, 5, 2), 2)
    names = {id(p): name for name, p in scornn.optim.named_parameters(model).items()}
    rest, recurrent = parameter_groups(model, 1e-3, 1e-4, bias="recurrent")
    expected = ["layer.skew_hh_l0", "layer.skew_hh_l1", "layer.bias_l0", "layer.bias_l1"]
    assert sorted(names[id(p)] for p in recurrent["params"]) == sorted(expected)
    assert len(rest["params"]) + len(expected) == len(names)
    rest, recurrent = parameter_groups(model, 1e-3, 1e-4, bias="rest")
    assert sorted(names[id(p)] for p in recurrent["params"]) == expected[:2]
    with pytest.raises(ValueError, match='"recurrent", "rest" or a positive rate, got \'both\''):
        parameter_groups(model, 1e-3, 1e-4, bias="both")  # type: ignore[arg-type]


def test_a_pruned_or_parametrized_bias_is_found() -> None:
    model = scornn.ScoRNN(3, 5, 2)
    prune.l1_unstructured(model, "bias_l0", 0.3)
    parametrize.register_parametrization(model, "bias_l1", nn.Identity())
    names = {id(p): name for name, p in model.named_parameters()}
    groups = {group["name"]: group["params"] for group in parameter_groups(model, 1e-3, 1e-4, bias=2e-4)}
    assert {names[id(p)] for p in groups["bias"]} == {"bias_l0_orig", "parametrizations.bias_l1.original"}


@pytest.mark.parametrize("name", MODELS)
def test_the_recurrent_bias_may_have_a_rate_of_its_own(name: str) -> None:
    model = scornn.nn.SequenceModel(scornn.nn.build(name, 3, 4, num_layers=2), 2)
    groups = {group["name"]: group for group in parameter_groups(model, 1e-3, 1e-4, bias=2e-4)}
    names = {id(p): key for key, p in model.named_parameters()}
    ids = [id(p) for group in groups.values() for p in group["params"]]
    assert sorted(ids) == sorted(id(p) for p in model.parameters() if p.requires_grad)
    if name in ("linear-memory", "memory-blocks"):  # no bias unless it is asked for, or none
        assert list(groups) == ["rest", "recurrent"]
        return
    if name in ("lstm", "gru"):  # their biases are the gates'
        assert list(groups) == ["rest"]
        return
    assert groups["bias"]["lr"] == 2e-4
    found = {names[id(p)] for p in groups["bias"]["params"]}
    assert found == {"layer.bias_l0", "layer.bias_l1"} or name == "goru"


def test_a_model_without_recurrent_parameters_has_one_group() -> None:
    assert [group["name"] for group in parameter_groups(nn.Linear(2, 2), 1e-3, 1e-4)] == ["rest"]


@pytest.mark.parametrize("given", [[scornn.ScoRNN(3, 5)], scornn.ScoRNN(3, 5).parameters()])
def test_groups_are_of_a_module(given: Any) -> None:
    with pytest.raises(TypeError, match=r"model is a module, such as torch.nn.ModuleList.*; got (list|generator)"):
        parameter_groups(given, lr=1e-3, recurrent_lr=1e-4)


def test_frozen_parameters_are_left_out() -> None:
    layer = scornn.ScoRNN(3, 5)
    layer.bias_l0.requires_grad_(False)
    groups = parameter_groups(layer, 1e-3, 1e-4)
    assert [len(group["params"]) for group in groups] == [1, 1]


def test_rmsprop_refuses_what_is_another_optimizers() -> None:
    p = nn.Parameter(torch.zeros(2))
    with pytest.raises(ValueError, match="state of another optimizer: a group has no decay, flavour"):
        RMSprop([p]).load_state_dict(torch.optim.RMSprop([p]).state_dict())
    table = nn.Embedding(5, 2, sparse=True)
    table(torch.tensor([1])).sum().backward()
    with pytest.raises(ValueError, match="no sparse gradients"):
        RMSprop(table.parameters()).step()


def test_a_gradient_of_zero_moves_nothing_where_subnormals_are_flushed() -> None:
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor does not flush")
    try:
        p = torch.nn.Parameter(torch.ones(3))
        optimizer = RMSprop([p], flavour="theano")
        p.grad = torch.zeros(3)
        for _ in range(900):  # 0.001 · 0.9⁹⁰⁰ is none of float32's numbers
            optimizer.step()
    finally:
        torch.set_flush_denormal(False)
    assert torch.equal(p, torch.ones(3))


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_half_precision_in_which_eps_and_small_squares_are_zero(flavour: str) -> None:
    p = torch.nn.Parameter(torch.ones(3, dtype=torch.float16))
    optimizer = RMSprop([p], lr=1e-3, flavour=flavour)
    for _ in range(20):
        p.grad = torch.tensor([0, 1e-4, 1e-2], dtype=torch.float16)
        optimizer.step()
    assert p[0] == 1
    assert ((p > 0.8) & (p <= 1)).all()
