"""The LSTM on the kernel against the loop that defines it, in float64, outputs and every gradient."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from scornn.nn.lstm import LSTM
from scornn.ops import backends, lstm, native

F64 = torch.float64
SIZES = (1, 2, 7, 8, 15, 16, 17, 33, 60, 68)
NAMES = ("output", "h_n", "c_n", "x", "h0", "c0", "W", "U", "b")
pytestmark = pytest.mark.skipif(backends()["native"] != "available", reason="no native kernel")


def problem(T: int, B: int, n: int, m: int, packed: bool, bias: bool = True, dtype: torch.dtype = F64) -> Any:
    """Arguments of the operator: six tensors, and the batch sizes."""
    random = torch.Generator().manual_seed(T + 10 * B + 100 * n + 1000 * m)
    make = lambda *shape: torch.randn(*shape, generator=random, dtype=F64).to(dtype)  # noqa: E731
    batch_sizes, rows = None, (T, B)
    if packed:
        lengths = torch.randint(1, T + 1, (B,), generator=random)
        lengths[0] = T
        batch_sizes = (lengths > torch.arange(T).unsqueeze(1)).sum(1)
        rows = (int(batch_sizes.sum()),)
    tensors = [make(*rows, m), make(B, n), make(B, n), make(4 * n, n) / n**0.5, make(4 * n, m), make(4 * n)]
    leaves = [t.requires_grad_() for t in tensors]
    return leaves if bias else [*leaves[:5], None], batch_sizes


def results(operator: Any, tensors: list[Any], *settings: Any, use: str = "every") -> list[Tensor]:
    """The three results, and the gradient of each tensor for random gradients of the results that are used."""
    outputs = operator(*tensors, *settings)
    random = torch.Generator().manual_seed(3)
    weights = [torch.randn(t.shape, generator=random, dtype=F64).to(t.dtype) for t in outputs]
    chosen = [k for k, name in enumerate(NAMES[:3]) if use in ("every", name)]
    leaves = [t for t in tensors if t is not None]
    gradients = torch.autograd.grad([outputs[k] for k in chosen], leaves, [weights[k] for k in chosen])
    return [*outputs, *gradients]


def assert_like_naive(tensors: list[Any], *settings: Any, use: str = "every") -> None:
    expected, ours = (results(operator, tensors, *settings, use=use) for operator in (lstm.naive, lstm.kernel))
    for name, want, got in zip(NAMES, expected, ours, strict=False):
        scale = 1 + float(want.detach().abs().max())
        torch.testing.assert_close(got, want, rtol=0, atol=1e-12 * scale, msg=lambda s, name=name: f"{name}: {s}")


@pytest.mark.parametrize("number", range(4 * len(SIZES)))
def test_sizes(number: int, isa: str) -> None:
    n, m, B = (SIZES[(factor * number + shift) % len(SIZES)] for factor, shift in ((1, 0), (3, 1), (7, 2)))
    tensors, batch_sizes = problem(1 + number % 5 * 9, B, n, m, packed=number % 2 == 0, bias=number % 3 > 0)
    assert_like_naive(tensors, batch_sizes, number % 4 > 1)


@pytest.mark.parametrize("use", ["output", "h_n", "c_n"])
@pytest.mark.parametrize("packed", [False, True], ids=["dense", "packed"])
@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
def test_one_result_alone(use: str, packed: bool, reverse: bool) -> None:
    tensors, batch_sizes = problem(6, 5, 18, 3, packed)
    assert_like_naive(tensors, batch_sizes, reverse, use=use)


def test_gates_that_are_shut_or_open_stay_finite() -> None:
    tensors, _ = problem(4, 3, 8, 2, False)
    with torch.no_grad():
        tensors[5] *= 1000
    assert_like_naive(tensors)


@pytest.mark.parametrize("where", [0, 1, 2], ids=["x", "h0", "c0"])
def test_a_nan_does_what_it_does_in_the_plain_loop(where: int) -> None:
    tensors, _ = problem(4, 3, 8, 2, False)
    with torch.no_grad():
        (tensors[0][1, 1] if where == 0 else tensors[where][1])[0] = torch.nan
    expected, ours = (results(operator, tensors) for operator in (lstm.naive, lstm.kernel))
    for want, got in zip(expected, ours, strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=1e-11, equal_nan=True)


@pytest.mark.parametrize("wanted", range(6))
def test_one_gradient_alone_has_the_same_bits(wanted: int) -> None:
    tensors, _ = problem(30, 9, 21, 2, False, dtype=torch.float32)
    g = torch.randn(30, 9, 21)
    every = torch.autograd.grad(lstm.kernel(*tensors)[0], tensors, g)
    for k, t in enumerate(tensors):
        t.requires_grad_(k == wanted)
    (alone,) = torch.autograd.grad(lstm.kernel(*tensors)[0], [tensors[wanted]], g)
    assert torch.equal(alone, every[wanted])


def test_threads_do_not_change_states_or_x(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "_SERIAL", 0)
    tensors, sizes = problem(20, 11, 17, 3, True)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            found.append(results(lstm.kernel, tensors, sizes))
    finally:
        torch.set_num_threads(before)
    for k, (one, three) in enumerate(zip(*found, strict=True)):
        assert torch.equal(one, three) if k < 6 else torch.allclose(one, three, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("packed", [False, True], ids=["dense", "packed"])
def test_opcheck(packed: bool) -> None:
    tensors, sizes = problem(4, 3, 6, 2, packed, bias=packed)
    torch.library.opcheck(torch.ops.scornn.lstm_forward.default, (*tensors, sizes, packed, True))


@pytest.mark.parametrize("wrong", range(1, 6))
def test_tensors_that_do_not_belong_together_are_refused(wrong: int) -> None:
    tensors, _ = problem(4, 3, 6, 2, False)
    for other in (tensors[wrong][..., :-1], tensors[wrong].float(), tensors[wrong].to("meta")):
        with pytest.raises(ValueError, match=rf"expected \w+ of shape|expected {NAMES[3 + wrong]} of shape"):
            lstm.kernel(*tensors[:wrong], other, *tensors[wrong + 1 :])


def test_a_second_derivative_is_refused_with_advice() -> None:
    x = torch.randn(3, 2, 4, requires_grad=True)
    for backend in ("auto", "naive"):
        (g,) = torch.autograd.grad(LSTM(4, 5, backend=backend)(x)[0].sum(), x, create_graph=True)
        if backend == "naive":
            g.sum().backward()
            continue
        with pytest.raises(RuntimeError, match='backend="naive"'):
            g.sum().backward()


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


def test_without_gradients_nothing_is_kept() -> None:
    tensors, _ = problem(5, 3, 8, 2, False)
    output, h_n, c_n, every, gates = torch.ops.scornn.lstm_forward(*tensors, None, False, True)
    with torch.no_grad():
        plain = torch.ops.scornn.lstm_forward(*tensors, None, False, False)
    assert all(torch.equal(a, b) for a, b in zip((output, h_n, c_n), plain[:3], strict=True))
    assert (every.shape, gates.shape) == ((5, 3, 8), (5, 3, 32))
    assert [t.numel() for t in plain[3:]] == [0, 0]


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize(
    ("x", "options", "message"),
    [
        (torch.zeros(3, 2, 4, dtype=torch.bfloat16), {"dtype": torch.bfloat16}, "takes float32 or float64"),
        (torch.zeros(3, 2, 4), {"proj_size": 2}, "no projections"),
    ],
)
def test_what_the_kernel_does_not_do_is_left_to_torch_or_refused(x: Tensor, options: Any, message: str) -> None:
    assert LSTM(4, 5, **options)(x)[0].shape[:2] == (3, 2)
    with pytest.raises(RuntimeError, match=message):
        LSTM(4, 5, backend="native", **options)(x)
    with pytest.raises(ValueError, match="backend"):
        LSTM(4, 5, backend="manual")


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
