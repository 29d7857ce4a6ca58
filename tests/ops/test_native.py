"""The native kernel against the loop that defines the operator, in float64, outputs and every gradient."""

from __future__ import annotations

import mmap

import numpy as np
import pytest
import torch
from tests.ops.problems import changed, leaves, problem, results
from torch import Tensor

from scornn.ops import Operands, library, native
from scornn.ops.activations import ACTIVATIONS
from scornn.ops.sequence import RUNGS

KERNEL = library.load()
if isinstance(KERNEL, str):
    pytest.skip(f"no native kernel: {KERNEL}", allow_module_level=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tanh_is_right_to_two_units_in_the_last_place(dtype: torch.dtype, isa: str) -> None:
    x = torch.cat([torch.linspace(-25, 25, 40_001), torch.logspace(-30, 1, 20_000)]).to(dtype)
    one = torch.ones(1, 1, dtype=dtype)
    zero = torch.zeros(len(x), 1, dtype=dtype)
    output, _ = native.recurrence(Operands(x.reshape(1, -1, 1), zero, 0 * one, one, None, "tanh"))
    exact = np.tanh(x.numpy().astype(np.longdouble))
    ulp = np.spacing(np.abs(exact).astype(x.numpy().dtype))
    assert np.max(np.abs(output.flatten().numpy() - exact) / ulp) <= 2


def views(tensor: Tensor) -> dict[str, Tensor]:
    """Views with the same values and every odd way of lying in memory."""
    shape = tensor.shape
    wide = torch.zeros(*shape[:-1], 2 * shape[-1] + 3, dtype=tensor.dtype)
    wide[..., 3::2] = tensor
    offset = torch.zeros(tensor.numel() + 1, dtype=tensor.dtype)
    offset[1:] = tensor.flatten()
    return {
        "transposed": tensor.transpose(0, 1).contiguous().transpose(0, 1),
        "last dimension first": tensor.movedim(-1, 0).contiguous().movedim(0, -1),
        "every second column": wide[..., 3::2],
        "offset by one": offset[1:].view(shape),
        "negative bit": torch._neg_view(-tensor),
    }


def gradients(operands: Operands, output: int, weight: Tensor) -> list[Tensor]:
    """The outputs, and the gradient of each tensor that is trained."""
    outputs = native.recurrence(operands)
    return [*outputs, *torch.autograd.grad(outputs[output], leaves(operands), weight)]


@pytest.mark.parametrize("packed", [False, True], ids=["dense", "packed"])
def test_views(packed: bool, isa: str) -> None:
    """Of each operand and of each gradient that comes in: the same bits."""
    given = problem("modrelu", 6, 5, 18, 4, packed)
    trained = changed(given, lambda t: t.clone().requires_grad_())
    outputs = native.recurrence(trained)
    for k, weight in enumerate(torch.randn_like(t) for t in outputs):
        expected = gradients(trained, k, weight)
        for name, view in views(weight).items():
            assert all(map(torch.equal, gradients(trained, k, view), expected)), name
        for field in ("x", "h0", "W", "U"):
            for name, view in views(getattr(given, field)).items():
                found = gradients(trained._replace(**{field: view}), k, weight)
                others = [
                    g for g, t in zip(expected[2:], leaves(trained), strict=True) if t is not getattr(trained, field)
                ]
                assert all(map(torch.equal, found, expected[:2] + others)), (field, name)


def test_expanded_input_and_gradient() -> None:
    """A sum hands back a gradient whose strides are all zero."""
    given = changed(problem("modrelu", 6, 5, 18, 4), lambda t: t.requires_grad_())
    x, one = given.x.detach()[:1, :1].expand(6, 5, 4), torch.ones((), dtype=torch.float64).expand(6, 5, 18)
    found = gradients(given._replace(x=x), 0, one)
    assert all(map(torch.equal, found, gradients(given._replace(x=x.contiguous()), 0, one.contiguous())))


def test_strides_beyond_two_to_the_31(isa: str) -> None:
    """The steps of x and of the output's gradient lie 2³¹ + 5 numbers apart, in memory that is never touched."""
    apart, T, B, n, m = 2**31 + 5, 2, 3, 9, 2
    given = changed(problem("modrelu", T, B, n, m), lambda t: t.float().requires_grad_())
    try:
        memory = mmap.mmap(-1, 4 * (apart + 64), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)  # MAP_NORESERVE
    except (OSError, ValueError) as error:
        pytest.skip(f"no address space: {error}")
    far = torch.frombuffer(memory, dtype=torch.float32)
    x, weight = far.as_strided((T, B, m), (apart, m, 1)), far.as_strided((T, B, n), (apart, n, 1), 8)
    near_x, near_weight = given.x.detach(), torch.randn(T, B, n)
    x.copy_(near_x)
    weight.copy_(near_weight)
    found = gradients(given._replace(x=x), 0, weight)
    assert all(map(torch.equal, found, gradients(given._replace(x=near_x), 0, near_weight)))
    del far, x, weight, found


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("where", ["x", "h0"])
@pytest.mark.parametrize("loss", ["linear", "square"])  # whose gradient is finite, and NaN where the state is
def test_all_rungs_agree_on_a_nan(activation: str, where: str, loss: str, isa: str) -> None:
    given = problem(activation, 6, 5, 18, 3)
    (given.x[2, 3] if where == "x" else given.h0[3])[0] = torch.nan
    found = []
    for rung in RUNGS:
        trained = changed(given, lambda t: t.clone().requires_grad_())
        output, h_n = rung.run(trained)
        read = output * torch.linspace(-1, 1, output.shape[-1]) if loss == "linear" else output.square()
        found.append([output, h_n, *torch.autograd.grad(read.sum() + h_n.sum(), leaves(trained))])
    for ours in found[:-1]:
        for value, expected in zip(ours, found[-1], strict=True):
            torch.testing.assert_close(value, expected, rtol=1e-9, atol=1e-9, equal_nan=True)


@pytest.mark.parametrize("how", ["autocast", "compile"])
def test_the_same_bits(how: str) -> None:
    """Under autocast, and compiled into one graph."""
    given = changed(problem("modrelu", 5, 4, 17, 3), lambda t: t.float().requires_grad_())
    plain, g = native.recurrence(given), torch.randn(5, 4, 17)
    expected = torch.autograd.grad(plain[0], leaves(given), g)
    compiled = torch.compile(native.recurrence, backend="aot_eager", fullgraph=True)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=how == "autocast"):
        inside = (native.recurrence if how == "autocast" else compiled)(given)
        found = torch.autograd.grad(inside[0], leaves(given), g)
    assert all(map(torch.equal, (*inside, *found), (*plain, *expected)))


def test_a_gradient_that_vanishes_is_zero_below_the_smallest_normal_number() -> None:
    """On some processors each operation on a subnormal number takes a hundred times as long."""
    given = problem("identity", 200, 4, 17, 3)
    gradient = results("native", given._replace(W=given.W / 2), 1, torch.float32)[2].abs()
    tiny = torch.finfo(torch.float32).tiny
    assert gradient[:60].max() == 0
    assert not ((gradient > 0) & (gradient < tiny)).any()
    assert torch.tensor(tiny) * 0.5 > 0, "the mode of the thread has changed"


@pytest.mark.parametrize("scale", [1e20, 1e-20, 1e-30])
@pytest.mark.parametrize("bias", [0.1, -0.1])
def test_complex_modrelu_of_huge_and_tiny_numbers(scale: float, bias: float, isa: str) -> None:
    """In float32, whose squares overflow from 2e19 and underflow from 1e-23 on, against naive in float64."""
    found = []
    for rung, dtype in ((RUNGS[-1], torch.float64), *((rung, torch.float32) for rung in RUNGS)):
        x = (torch.tensor([[[3.0, 4.0, -1.0, 2.0]]]) * scale).to(dtype).requires_grad_()
        b = torch.full((2,), bias, dtype=dtype, requires_grad=True)
        zero, I = torch.zeros(4, 4, dtype=dtype), torch.eye(4, dtype=dtype)
        output, _ = rung.run(Operands(x, zero[:1], zero, I, b, "complex_modrelu"))
        g = torch.tensor([[[1.0, 2.0, 3.0, 4.0]]], dtype=dtype)
        found.append([output, *torch.autograd.grad(output, (x, b), g)])
    for ours in found[1:]:
        for value, expected in zip(ours, found[0], strict=True):
            torch.testing.assert_close(value.double(), expected, rtol=1e-6, atol=0)


def test_complex_modrelu_of_tiny_numbers_without_a_bias(isa: str) -> None:
    """Here h = r²/(r + ε) underflows: its gradient is right as long as h is a number, and 0 where h is.

    To the kernel h is 0 below the smallest normal number, to PyTorch below the smallest of all.
    """
    scales = torch.logspace(-44, 3, 95, dtype=torch.float64)
    found = []
    for rung, dtype in ((RUNGS[-1], torch.float64), *((rung, torch.float32) for rung in RUNGS)):
        x = (torch.tensor([0.6, 0.8], dtype=torch.float64) * scales[:, None, None]).to(dtype).requires_grad_()
        b = torch.zeros(1, dtype=dtype, requires_grad=True)
        zero, I = torch.zeros(2, 2, dtype=dtype), torch.eye(2, dtype=dtype)
        output, _ = rung.run(Operands(x, zero[:1], zero, I, b, "complex_modrelu"))
        (dx,) = torch.autograd.grad(output, x, torch.tensor([1.0, 2.0], dtype=dtype).expand_as(output))
        found.append((output.detach(), dx))
    (_, exact), *others = found
    smallest = torch.finfo(torch.float32).tiny
    plain = others[-1][0].abs().amax(-1)
    for rung, (output, dx) in zip(RUNGS, others, strict=True):
        native_one = rung.name == "native"
        nothing = (output == 0).all(-1)
        assert (plain[nothing != (plain == 0)] < (smallest if native_one else 0)).all()
        assert nothing[scales < 1e-26].all()
        assert (dx[nothing] == 0).all()
        assert (dx[~nothing] != 0).all()
        normal = output.abs().amin(-1) > smallest
        torch.testing.assert_close(dx[normal].double(), exact[normal], rtol=2e-6, atol=0)
        few_digits_or_none = 3e-16 if native_one else 3e-20  # in h there
        torch.testing.assert_close(dx.double(), exact, rtol=2e-6, atol=few_digits_or_none)
