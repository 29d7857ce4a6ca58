"""LSTM, GRU and GORU on the kernel against the loops that define them, in float64, outputs and every gradient."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from tests.ops.problems import GATED, assert_like_naive, problem, results
from torch import Tensor, nn

from scornn.nn import GORU, GRU, LSTM
from scornn.ops import backends

F64 = torch.float64
pytestmark = pytest.mark.skipif(backends()["native"] != "available", reason="no native kernel")


@pytest.mark.parametrize("kind", GATED)
def test_gates_that_are_shut_or_open_stay_finite(kind: str) -> None:
    given = problem(kind, 4, 3, 8, 2)
    assert given.b is not None
    assert_like_naive("native", given._replace(b=1000 * given.b))


@pytest.mark.parametrize("where", ["x", "h0", "c0"])
def test_a_nan_does_what_it_does_in_the_plain_loop(where: str) -> None:
    given = problem("lstm", 4, 3, 8, 2)
    (given.x[1, 1] if where == "x" else getattr(given, where)[1])[0] = torch.nan
    for want, got in zip(results("naive", given), results("native", given), strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=1e-11, equal_nan=True)


def test_without_gradients_nothing_is_kept() -> None:
    x, h0, W, U, b, *_, c0, _ = problem("lstm", 5, 3, 8, 2)
    given = (x, h0, c0, W, U, b, "lstm", None, False)
    output, h_n, c_n, every, gates = torch.ops.scornn.gated_forward(*given, True)
    plain = torch.ops.scornn.gated_forward(*given, False)
    assert all(torch.equal(a, b) for a, b in zip((output, h_n, c_n), plain[:3], strict=True))
    assert (every.shape, gates.shape) == ((5, 3, 8), (5, 3, 32))
    assert [t.numel() for t in plain[3:]] == [0, 0]


@pytest.mark.parametrize("bidirectional", [False, True])
def test_the_layer_equals_torchs(bidirectional: bool) -> None:
    ours = GRU(3, 5, 2, bidirectional=bidirectional, backend="native", dtype=F64)
    theirs = nn.GRU(3, 5, 2, bidirectional=bidirectional, dtype=F64)
    with torch.no_grad():
        for name, p in ours.named_parameters():
            getattr(theirs, name).copy_(p.normal_() * 0.5)  # bias_hh too
            p.mul_(0.5)
    x = torch.randn(7, 4, 3, dtype=F64)
    for got, want in zip(ours(x), theirs(x), strict=True):
        torch.testing.assert_close(got, want)


def test_where_the_kernel_has_no_rule_torch_runs() -> None:
    layer, x = LSTM(4, 5), torch.randn(3, 2, 4)
    total = lambda x: layer(x)[0].sum()  # noqa: E731
    expected = torch.autograd.grad(total(x.requires_grad_()), x)[0]
    torch.testing.assert_close(torch.func.grad(total)(x.detach()), expected)
    meta = LSTM(4, 5, device="meta")(torch.empty(3, 2, 4, device="meta"))[0]
    assert (meta.shape, meta.device.type) == ((3, 2, 5), "meta")


def test_a_layer_saved_before_it_had_backends() -> None:
    layer = LSTM(4, 5)
    del layer.backend
    assert copy.deepcopy(layer)(torch.randn(3, 2, 4))[0].shape == (3, 2, 5)


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize(
    ("layer", "dtype", "options", "message"),
    [
        (LSTM, torch.bfloat16, {}, "takes float32 or float64"),
        (GRU, torch.bfloat16, {}, "takes float32 or float64"),
        (GORU, torch.bfloat16, {}, "takes float32 or float64"),
        (LSTM, torch.float32, {"proj_size": 2}, "no projections"),
    ],
)
def test_what_the_kernel_does_not_do_is_left_to_torch_or_refused(
    layer: Any, dtype: torch.dtype, options: Any, message: str
) -> None:
    x = torch.zeros(3, 2, 4, dtype=dtype)
    assert layer(4, 8, dtype=dtype, **options)(x)[0].shape[:2] == (3, 2)
    with pytest.raises(RuntimeError, match=message):
        layer(4, 8, backend="native", dtype=dtype, **options)(x)


@pytest.mark.parametrize("layer", [LSTM, GRU])
def test_a_rung_that_it_lacks_is_the_next_plainer_one(layer: Any) -> None:
    manual, x = layer(4, 5, backend="manual"), torch.randn(3, 2, 4)
    torchs = copy.deepcopy(manual)
    torchs.backend = "torch"
    assert torch.equal(manual(x)[0], torchs(x)[0])
    with pytest.raises(ValueError, match="unknown backend 'cuda'"):
        layer(4, 5, backend="cuda")


@pytest.mark.parametrize(
    ("x", "hx", "error"),
    [
        (torch.zeros(3, 2, 5), None, "input.size"),
        (torch.zeros(0, 2, 4), None, "sequence length"),
        (torch.zeros(3, 2, 4, dtype=F64), None, "dtype"),
        (torch.zeros(3, 2, 4), (torch.zeros(1, 3, 5), torch.zeros(1, 3, 5)), "hidden"),
        (torch.zeros(3, 2, 4), (torch.zeros(1, 2, 5),) * 3, "two hidden states"),
        (torch.zeros(3, 2, 4, device="meta"), None, "meta"),
    ],
    ids=["input size", "no steps", "dtype", "state", "three states", "device"],
)
def test_a_wrong_input_gets_the_error_of_torch(x: Tensor, hx: Any, error: str) -> None:
    with pytest.raises((RuntimeError, ValueError), match=rf"(?i){error}"):
        LSTM(4, 5)(x, hx)
