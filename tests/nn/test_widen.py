"""More units for a trained network, without a change of what it computes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import scornn
from scornn.nn import SequenceModel, build


def trained(n: int, **options: Any) -> scornn.ScoRNN:
    """A layer whose A is full and whose b and h0 are not zero, as after training."""
    layer = scornn.ScoRNN(2, n, dtype=torch.float64, **options)
    for name, value in layer.named_parameters():
        torch.nn.init.normal_(value, std=0.1 if "bias" in name else 0.5)
    return layer


OPTIONS: list[dict[str, Any]] = [
    {},
    {"rho": 0},
    {"num_layers": 3},
    {"num_layers": 2, "bidirectional": True, "batch_first": True, "learn_h0": True},
    {"bandwidth": 2, "bias": False},
    {"bandwidth": 0},
    {"nonlinearity": "identity", "rho": 1},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize(("n", "more"), [(1, 2), (4, 5), (5, 9), (8, 17)])
def test_the_states_of_the_old_units_stay(n: int, more: int, options: dict[str, Any]) -> None:
    options = {key: min(value, n - 1) if key == "bandwidth" else value for key, value in options.items()}
    layer = trained(n, **options)
    before = {name: value.clone() for name, value in layer.state_dict().items()}
    wide, x = scornn.widen(layer, more), torch.randn(7, 7, 2, dtype=torch.float64)
    directions = layer.num_directions
    for ours, expected in zip(wide(x), layer(x), strict=True):
        kept = ours.unflatten(-1, (-1, more))[..., :n].flatten(-2)
        torch.testing.assert_close(kept, expected, rtol=1e-9, atol=1e-9)
    assert wide.orthogonality_error() < 1e-10
    assert wide(x)[0].unflatten(-1, (directions, more))[..., n:].abs().max() > 0  # the new units are alive
    assert all(torch.equal(before[name], value) for name, value in layer.state_dict().items())


@pytest.mark.parametrize("read", ["all", "last", "mean"])
@pytest.mark.parametrize("head", [{}, {"width": 6}, {"width": 6, "depth": 2, "dropout": 0.5}], ids=str)
def test_the_outputs_of_a_network_stay(read: Any, head: dict[str, Any]) -> None:
    layer = trained(6, num_layers=2, bidirectional=True)
    network = SequenceModel(layer, 3, read=read, **head).eval()
    wide, x = scornn.widen(network, 9), torch.randn(8, 5, 2, dtype=torch.float64)
    torch.testing.assert_close(wide(x), network(x), rtol=1e-9, atol=1e-9)
    assert isinstance(wide, SequenceModel)
    assert (wide.training, network.layer.hidden_size) == (False, 6)


def test_training_joins_the_new_units_to_the_others() -> None:
    wide = scornn.widen(SequenceModel(trained(6), 3, read="last"), 10)
    x, y = torch.randn(9, 20, 2, dtype=torch.float64), torch.randint(3, (20,))
    optimizer = torch.optim.Adam(wide.parameters(), lr=0.01)
    for _ in range(3):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(wide(x), y).backward()
        optimizer.step()
    W = wide.layer.weight_hh_l0
    assert W[:6, 6:].abs().min() > 0
    assert W[6:, :6].abs().min() > 0
    assert wide.head.weight[:, 6:].abs().min() > 0
    assert wide.layer.orthogonality_error() < 1e-12


def test_what_is_frozen_stays_so() -> None:
    network = SequenceModel(trained(6), 3, read="last", width=5)
    network.head.requires_grad_(False)
    network.layer.skew_hh_l0.requires_grad_(False)
    wide = scornn.widen(network, 9)
    frozen = {name for name, parameter in scornn.optim.named_parameters(wide).items() if not parameter.requires_grad}
    assert frozen == {"layer.skew_hh_l0", *(f"head.{name}" for name, _ in network.head.named_parameters())}
    network.head[0] = torch.nn.Linear(6, 5, bias=False, dtype=torch.float64)
    assert scornn.widen(network, 9).head[0].bias is None
    network.head[0] = torch.nn.LayerNorm(6)
    with pytest.raises(TypeError, match="the head begins with a LayerNorm, expected a Linear"):
        scornn.widen(network, 9)


def test_a_wider_layer_is_reset_to_its_own_rho() -> None:
    wide = scornn.widen(scornn.ScoRNN(1, 8, rho=2, input_scale=3.0), 12, rho=3)
    wide.reset_parameters()
    assert (wide.rho, wide.input_scale) == (3, 3.0)


@pytest.mark.parametrize(
    ("n", "rho", "more", "asked", "expected"), [(8, 2, 16, None, 4), (8, 2, 9, 3, 3), (5, 5, 8, 5, 5)]
)
def test_rho_of_a_wider_layer(n: int, rho: int, more: int, asked: int | None, expected: int) -> None:
    assert scornn.widen(scornn.ScoRNN(1, n, rho=rho), more, rho=asked).rho == expected


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: scornn.widen(scornn.ScoRNN(1, 6), 6), "hidden_size: expected more than the 6 units .* got 6"),
        (lambda: scornn.widen(scornn.ScoRNN(1, 6), 8.0), "hidden_size"),  # type: ignore[arg-type]
        (lambda: scornn.widen(scornn.ScoRNN(1, 6, rho=3), 8, rho=6), r"rho: D has 3 .* grows by 2: expected 3\.\.5"),
        (lambda: scornn.widen(scornn.ScoRNN(1, 6, rho=3), 8, rho=2), r"expected 3\.\.5"),
        (lambda: scornn.widen(scornn.ScoRNN(1, 6, rho=3), 8, rho=9), "rho"),
        (lambda: scornn.widen(build("lstm", 1, 6), 8), "got LSTM"),
        (lambda: scornn.widen(SequenceModel(build("exprnn", 1, 6), 2), 8), "got ExpRNN"),
    ],
)
def test_what_cannot_be_widened(make: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        make()
