"""GRU and GORU on the kernel against the loop that defines them, in float64, outputs and every gradient."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from scornn.nn.goru import GORU
from scornn.nn.gru import GRU
from scornn.ops import backends, gated, native

F64 = torch.float64
SIZES = (1, 2, 3, 8, 16, 17, 33, 60)
NAMES = ("output", "h_n", "x", "h0", "W", "U", "b")
pytestmark = pytest.mark.skipif(backends()["native"] != "available", reason="no native kernel")


def problem(T: int, B: int, n: int, m: int, packed: bool, bias: bool = True) -> Any:
    """Arguments of the operator: five tensors, and the batch sizes."""
    random = torch.Generator().manual_seed(T + 10 * B + 100 * n + 1000 * m)
    make = lambda *shape: torch.randn(*shape, generator=random, dtype=F64)  # noqa: E731
    batch_sizes, rows = None, (T, B)
    if packed:
        lengths = torch.randint(1, T + 1, (B,), generator=random)
        lengths[0] = T
        batch_sizes = (lengths > torch.arange(T).unsqueeze(1)).sum(1)
        rows = (int(batch_sizes.sum()),)
    tensors = [make(*rows, m), make(B, n), make(3 * n, n) / n**0.5, make(3 * n, m), make(4 * n) if bias else None]
    return tensors, batch_sizes


def results(operator: Any, tensors: list[Any], *settings: Any, use: str = "both", dtype: torch.dtype = F64) -> Any:
    """The two results, and the gradient of each tensor for random gradients of the results that are used."""
    leaves = [None if t is None else t.detach().to(dtype).requires_grad_() for t in tensors]
    outputs = operator(*leaves, *settings)
    random = torch.Generator().manual_seed(3)
    weights = [torch.randn(t.shape, generator=random, dtype=F64).to(dtype) for t in outputs]
    chosen = [k for k, name in enumerate(NAMES[:2]) if use in ("both", name)]
    trained = [t for t in leaves if t is not None]
    gradients = torch.autograd.grad([outputs[k] for k in chosen], trained, [weights[k] for k in chosen])
    return [*outputs, *gradients]


def assert_like_naive(tensors: list[Any], *settings: Any, use: str = "both", dtype: torch.dtype = F64) -> None:
    expected = results(gated.naive, tensors, *settings, use=use)
    ours = results(gated.kernel, tensors, *settings, use=use, dtype=dtype)
    rounding = 1e-12 if dtype == F64 else 1e-4
    for name, want, got in zip(NAMES, expected, ours, strict=False):
        scale = 1 + float(want.detach().abs().max())
        error = float((got.double() - want).detach().abs().max())
        assert error <= rounding * scale, f"{name}: {error}"


@pytest.mark.parametrize("kind", ["gru", "goru"])
@pytest.mark.parametrize("number", range(2 * len(SIZES)))
def test_sizes(number: int, kind: str, isa: str) -> None:
    n, m, B = (SIZES[(factor * number + shift) % len(SIZES)] for factor, shift in ((1, 0), (3, 1), (5, 2)))
    tensors, batch_sizes = problem(1 + number % 5 * 9, B, n, m, packed=number % 2 == 0, bias=number % 3 > 0)
    dtype = F64 if number % 4 else torch.float32
    assert_like_naive(tensors, kind, batch_sizes, number % 4 > 1, dtype=dtype)


@pytest.mark.parametrize("kind", ["gru", "goru"])
@pytest.mark.parametrize("use", ["output", "h_n"])
@pytest.mark.parametrize("packed", [False, True], ids=["dense", "packed"])
@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
def test_one_result_alone(kind: str, use: str, packed: bool, reverse: bool) -> None:
    tensors, batch_sizes = problem(6, 5, 18, 3, packed)
    assert_like_naive(tensors, kind, batch_sizes, reverse, use=use)


def test_gates_that_are_shut_or_open_stay_finite() -> None:
    tensors, _ = problem(4, 3, 8, 2, False)
    tensors[4] *= 1000
    assert_like_naive(tensors, "gru")


@pytest.mark.parametrize("wanted", range(5))
def test_one_gradient_alone_has_the_same_bits(wanted: int) -> None:
    tensors, _ = problem(30, 9, 21, 2, False)
    leaves = [t.float().requires_grad_() for t in tensors]
    g = torch.randn(30, 9, 21)
    every = torch.autograd.grad(gated.kernel(*leaves, "gru")[0], leaves, g)
    for k, t in enumerate(leaves):
        t.requires_grad_(k == wanted)
    (alone,) = torch.autograd.grad(gated.kernel(*leaves, "gru")[0], [leaves[wanted]], g)
    assert torch.equal(alone, every[wanted])


def test_threads_do_not_change_states_or_x(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "_SERIAL", 0)
    tensors, sizes = problem(20, 11, 17, 3, True)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            found.append(results(gated.kernel, tensors, "goru", sizes))
    finally:
        torch.set_num_threads(before)
    for k, (one, three) in enumerate(zip(*found, strict=True)):
        assert torch.equal(one, three) if k < 4 else torch.allclose(one, three, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", ["gru", "goru"])
def test_a_nan_stays_in_its_sample(kind: str) -> None:
    tensors, _ = problem(5, 9, 17, 2, False)
    clean = results(gated.kernel, tensors, kind)
    tensors[0][2, 4] = torch.nan
    found = results(gated.kernel, tensors, kind)
    others = [r for r in range(9) if r != 4]
    for k in (0, 2):  # output and dx
        assert found[k][2:, 4].isnan().any() and torch.equal(found[k][:, others], clean[k][:, others])


@pytest.mark.parametrize("packed", [False, True], ids=["dense", "packed"])
def test_opcheck(packed: bool) -> None:
    tensors, sizes = problem(4, 3, 6, 2, packed, bias=packed)
    leaves = [None if t is None else t.requires_grad_() for t in tensors]
    torch.library.opcheck(torch.ops.scornn.gated_forward.default, (*leaves, "gru", sizes, packed, True))


@pytest.mark.parametrize("wrong", range(1, 5))
def test_tensors_that_do_not_belong_together_are_refused(wrong: int) -> None:
    tensors, _ = problem(4, 3, 6, 2, False)
    for other in (tensors[wrong][..., :-1], tensors[wrong].float(), tensors[wrong].to("meta")):
        with pytest.raises(ValueError, match=r"expected \w+ of shape"):
            gated.kernel(*tensors[:wrong], other, *tensors[wrong + 1 :], "gru")


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


@pytest.mark.parametrize("layer", [GRU, GORU])
def test_a_second_derivative_is_refused_with_advice(layer: Any) -> None:
    x = torch.randn(3, 2, 4, requires_grad=True)
    for backend in ("auto", "naive"):
        (g,) = torch.autograd.grad(layer(4, 8, backend=backend)(x)[0].sum(), x, create_graph=True)
        if backend == "naive":
            g.sum().backward()
            continue
        with pytest.raises(RuntimeError, match='backend="naive"'):
            g.sum().backward()


@pytest.mark.parametrize("layer", [GRU, GORU])
def test_what_the_kernel_does_not_take_runs_elsewhere_or_is_refused(layer: Any) -> None:
    x: Tensor = torch.zeros(3, 2, 4, dtype=torch.bfloat16)
    assert layer(4, 8, dtype=torch.bfloat16)(x)[0].shape == (3, 2, 8)
    with pytest.raises(RuntimeError, match="takes float32 or float64"):
        layer(4, 8, dtype=torch.bfloat16, backend="native")(x)
