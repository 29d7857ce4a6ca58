"""LSTM, GRU and GORU on the kernel against the loops that define them, in float64, outputs and every gradient."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from scornn.nn import GORU, GRU, LSTM
from scornn.ops import Operands, backends, gated, native, run
from scornn.ops.rung import CELLS

F64 = torch.float64
SIZES = (1, 2, 3, 7, 8, 15, 16, 17, 33, 60, 68)
KINDS = ("lstm", "gru", "goru")
NAMES = ("x", "h0", "c0", "W", "U", "b")
pytestmark = pytest.mark.skipif(backends()["native"] != "available", reason="no native kernel")


def taking(run: Any) -> Any:
    """A rung that takes its tensors one by one."""
    return lambda x, h0, c0, W, U, b, *settings: run(Operands(x, h0, W, U, b, *settings, c0=c0))


kernel, naive = taking(lambda operands: run(operands, "native")), taking(gated.naive)


def problem(kind: str, T: int, B: int, n: int, m: int, packed: bool, bias: bool = True) -> Any:
    """Arguments of the operator: six tensors, and the batch sizes."""
    random = torch.Generator().manual_seed(T + 10 * B + 100 * n + 1000 * m)
    make = lambda *shape: torch.randn(*shape, generator=random, dtype=F64)  # noqa: E731
    batch_sizes, rows = None, (T, B)
    if packed:
        lengths = torch.randint(1, T + 1, (B,), generator=random)
        lengths[0] = T
        batch_sizes = (lengths > torch.arange(T).unsqueeze(1)).sum(1)
        rows = (int(batch_sizes.sum()),)
    gates, c0 = CELLS[kind].gates * n, make(B, n) if kind == "lstm" else None
    weights = [make(gates, n) / n**0.5, make(gates, m), make(4 * n) if bias else None]
    return [make(*rows, m), make(B, n), c0, *weights], batch_sizes


def results(operator: Any, tensors: list[Any], *settings: Any, use: int | None = None, dtype: Any = F64) -> Any:
    """The results, and the gradient of each tensor for random gradients of the results, or of the one to ``use``."""
    leaves = [None if t is None else t.detach().to(dtype).requires_grad_() for t in tensors]
    outputs = operator(*leaves, *settings)
    random = torch.Generator().manual_seed(3)
    weights = [torch.randn(t.shape, generator=random, dtype=F64).to(dtype) for t in outputs]
    chosen = range(len(outputs)) if use is None else [use]
    trained = [t for t in leaves if t is not None]
    gradients = torch.autograd.grad([outputs[k] for k in chosen], trained, [weights[k] for k in chosen])
    return [*outputs, *gradients]


def assert_like_naive(tensors: list[Any], *settings: Any, use: int | None = None, dtype: Any = F64) -> None:
    expected = results(naive, tensors, *settings, use=use)
    ours = results(kernel, tensors, *settings, use=use, dtype=dtype)
    rounding = 1e-12 if dtype == F64 else 1e-4
    for k, (want, got) in enumerate(zip(expected, ours, strict=True)):
        scale = 1 + float(want.detach().abs().max())
        error = float((got.double() - want).detach().abs().max())
        assert error <= rounding * scale, f"result or gradient {k}: {error}"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", range(2 * len(SIZES)))
def test_sizes(number: int, kind: str, isa: str) -> None:
    n, m, B = (SIZES[(factor * number + shift) % len(SIZES)] for factor, shift in ((1, 0), (3, 1), (7, 2)))
    tensors, batch_sizes = problem(kind, 1 + number % 5 * 9, B, n, m, packed=number % 2 == 0, bias=number % 3 > 0)
    dtype = F64 if number % 4 else torch.float32
    assert_like_naive(tensors, kind, batch_sizes, number % 4 > 1, dtype=dtype)


@pytest.mark.parametrize(("kind", "use"), [(kind, use) for kind in KINDS for use in range(2 + (kind == "lstm"))])
@pytest.mark.parametrize("packed", [False, True], ids=["dense", "packed"])
@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
def test_one_result_alone(kind: str, use: int, packed: bool, reverse: bool) -> None:
    tensors, batch_sizes = problem(kind, 6, 5, 18, 3, packed)
    assert_like_naive(tensors, kind, batch_sizes, reverse, use=use)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_gates_that_are_shut_or_open_stay_finite(kind: str) -> None:
    tensors, _ = problem(kind, 4, 3, 8, 2, False)
    tensors[5] *= 1000
    assert_like_naive(tensors, kind)


@pytest.mark.parametrize("where", [0, 1, 2], ids=["x", "h0", "c0"])
def test_a_nan_does_what_it_does_in_the_plain_loop(where: int) -> None:
    tensors, _ = problem("lstm", 4, 3, 8, 2, False)
    (tensors[0][1, 1] if where == 0 else tensors[where][1])[0] = torch.nan
    expected, ours = (results(operator, tensors, "lstm") for operator in (naive, kernel))
    for want, got in zip(expected, ours, strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=1e-11, equal_nan=True)


@pytest.mark.parametrize("kind", ["gru", "goru"])
def test_a_nan_stays_in_its_sample(kind: str) -> None:
    tensors, _ = problem(kind, 5, 9, 17, 2, False)
    clean = results(kernel, tensors, kind)
    tensors[0][2, 4] = torch.nan
    found = results(kernel, tensors, kind)
    others = [r for r in range(9) if r != 4]
    for k in (0, 2):  # output and dx
        assert found[k][2:, 4].isnan().any()
        assert torch.equal(found[k][:, others], clean[k][:, others])


@pytest.mark.parametrize(
    ("kind", "wanted"), [(k, w) for k in ("lstm", "gru") for w in range(6) if (k, w) != ("gru", 2)]
)
def test_one_gradient_alone_has_the_same_bits(kind: str, wanted: int) -> None:
    tensors, _ = problem(kind, 30, 9, 21, 2, False)
    leaves = [None if t is None else t.float().requires_grad_() for t in tensors]
    g, trained = torch.randn(30, 9, 21), [t for t in leaves if t is not None]
    every = torch.autograd.grad(kernel(*leaves, kind)[0], trained, g)
    for t in trained:
        t.requires_grad_(t is leaves[wanted])
    (alone,) = torch.autograd.grad(kernel(*leaves, kind)[0], [leaves[wanted]], g)
    assert torch.equal(alone, next(e for e, t in zip(every, trained, strict=True) if t is leaves[wanted]))


@pytest.mark.parametrize("kind", ["lstm", "goru"])
def test_threads_do_not_change_states_or_x(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "_SERIAL", 0)
    tensors, sizes = problem(kind, 20, 11, 17, 3, True)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            found.append(results(kernel, tensors, kind, sizes))
    finally:
        torch.set_num_threads(before)
    for k, (one, three) in enumerate(zip(*found, strict=True)):
        same = k < len(found[0]) - 3  # all but W, U and b
        assert torch.equal(one, three) if same else torch.allclose(one, three, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
@pytest.mark.parametrize("packed", [False, True], ids=["dense", "packed"])
def test_opcheck(kind: str, packed: bool) -> None:
    tensors, sizes = problem(kind, 4, 3, 6, 2, packed, bias=packed)
    leaves = [None if t is None else t.requires_grad_() for t in tensors]
    torch.library.opcheck(torch.ops.scornn.gated_forward.default, (*leaves, kind, sizes, packed, True))


@pytest.mark.parametrize(
    ("kind", "wrong"), [(k, w) for k in ("lstm", "gru") for w in range(1, 6) if k == "lstm" or w != 2]
)
def test_tensors_that_do_not_belong_together_are_refused(kind: str, wrong: int) -> None:
    tensors, _ = problem(kind, 4, 3, 6, 2, False)
    for other in (tensors[wrong][..., :-1], tensors[wrong].float(), tensors[wrong].to("meta")):
        with pytest.raises(
            ValueError, match=rf"expected \w+ (of shape|with 3)|but {NAMES[wrong]} is .*; they must agree"
        ):
            kernel(*tensors[:wrong], other, *tensors[wrong + 1 :], kind)


def test_without_gradients_nothing_is_kept() -> None:
    tensors, _ = problem("lstm", 5, 3, 8, 2, False)
    output, h_n, c_n, every, gates = torch.ops.scornn.gated_forward(*tensors, "lstm", None, False, True)
    with torch.no_grad():
        plain = torch.ops.scornn.gated_forward(*tensors, "lstm", None, False, False)
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


@pytest.mark.parametrize("layer", [LSTM, GRU, GORU])
def test_a_second_derivative_is_refused_with_advice(layer: Any) -> None:
    x = torch.randn(3, 2, 4, requires_grad=True)
    for backend in ("auto", "naive"):
        (g,) = torch.autograd.grad(layer(4, 8, backend=backend)(x)[0].sum(), x, create_graph=True)
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
