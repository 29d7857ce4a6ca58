"""The last state of a linear scoRNN by doubling, against the loop in float64: states and every gradient."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from scornn import ScoRNN
from scornn.ops import krylov

F64 = torch.float64


@pytest.mark.parametrize("block", [1 << 22, 60], ids=["one block", "many"])
@pytest.mark.parametrize("steps", [1, 2, 3, 8, 31, 100])
@pytest.mark.parametrize(("n", "m", "bias"), [(1, 1, False), (5, 3, True), (17, 1, True)])
def test_equals_the_loop(steps: int, n: int, m: int, bias: bool, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(krylov, "BLOCK", block)
    torch.manual_seed(0)
    layer = ScoRNN(m, n, nonlinearity="identity", bias=bias, dtype=F64, backend="naive", input_scale=0.3)
    x, h0 = torch.randn(steps, 4, m, dtype=F64, requires_grad=True), torch.randn(4, n, dtype=F64, requires_grad=True)
    W, U, b = layer.operands("_l0")
    expected = layer(x, h0.unsqueeze(0))[1][0]
    found = krylov.last_state(x, h0, W, U, b)
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-11)
    wanted = [x, h0, *(p for p in layer.parameters() if p.numel())]
    g = torch.randn_like(expected)
    for ours, theirs in zip(
        torch.autograd.grad(found, wanted, g), torch.autograd.grad(expected, wanted, g), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("shape", [{}, {"num_layers": 2}, {"bidirectional": True}], ids=str)
def test_the_layer_takes_it_where_it_pays(shape: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    layer = ScoRNN(2, 16, nonlinearity="identity", dtype=F64, **shape)
    x = torch.randn(128, 64, 2, dtype=F64)
    calls: list[int] = []
    run = krylov.last_state
    monkeypatch.setattr(krylov, "last_state", lambda *given: calls.append(1) or run(*given))
    torch.testing.assert_close(layer(x, need_output=False)[1], layer(x)[1], rtol=1e-11, atol=1e-11)
    assert len(calls) == (0 if "num_layers" in shape else layer.num_directions)  # n inputs to the upper layer


def test_what_pays() -> None:
    assert krylov.pays(784, 128, 1, 256)
    assert not krylov.pays(784, 1, 1, 256)
    assert not krylov.pays(10, 128, 200, 256)


def test_rounding_is_that_of_the_loop() -> None:
    torch.manual_seed(0)
    layer = ScoRNN(1, 64, nonlinearity="identity", bias=False)
    x, h0 = torch.randn(1000, 2, 1), torch.zeros(2, 64)
    W, U, b = (t if t is None else t.detach() for t in layer.operands("_l0"))
    assert b is None
    exact = krylov.last_state(x.double(), h0.double(), W.double(), U.double(), None)
    errors = [(h.double() - exact).abs().max() for h in (krylov.last_state(x, h0, W, U, None), layer(x)[1][0].detach())]
    assert errors[0] <= 2 * errors[1]


@torch.no_grad()
def test_one_compiled_graph_serves_every_length() -> None:
    """Where the doubling would be taken: it is another for each length."""
    layer, lengths = ScoRNN(1, 32, nonlinearity="identity"), (600, 700, 900)
    assert all(krylov.pays(steps, 64, 2, 32) for steps in lengths)
    torch.compiler.reset()
    last = torch.compile(lambda x: layer(x, need_output="last")[0], dynamic=True, fullgraph=True, backend="eager")
    with torch._dynamo.config.patch(error_on_recompile=True):
        for steps in lengths:
            x = torch.randn(steps, 64, 1)
            torch.testing.assert_close(last(x), layer(x)[0][-1])
