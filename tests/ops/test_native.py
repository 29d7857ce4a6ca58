"""The native kernel against the loop that defines the operator, in float64, outputs and every gradient."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from scornn.ops import Operands, library, naive, native
from scornn.ops.activations import ACTIVATIONS
from scornn.ops.sequence import RUNGS

KERNEL = library.load()
if isinstance(KERNEL, str):
    pytest.skip(f"no native kernel: {KERNEL}", allow_module_level=True)

SIZES = (1, 7, 8, 9, 15, 16, 17, 31, 33, 64, 170)
LENGTHS = (1, 2, 63)
NAMES = ("output", "h_n", "x", "h0", "W", "U", "b")


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Three threads, however small the work."""
    monkeypatch.setattr(native, "_SERIAL", 0)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def problem(
    T: int,
    B: int,
    n: int,
    m: int,
    activation: str = "modrelu",
    packed: bool = False,
    dtype: torch.dtype = torch.float64,
) -> dict[str, Any]:
    """Arguments of the operator, with h0 and the bias of either sign."""
    if activation == "complex_modrelu":
        n += n % 2
    random = torch.Generator().manual_seed(T + 100 * B + 10_000 * n + m)
    make = lambda *shape: torch.randn(*shape, generator=random, dtype=torch.float64)  # noqa: E731
    batch_sizes = None
    x = make(T, B, m)
    if packed:
        lengths = torch.randint(1, T + 1, (B,), generator=random)
        lengths[0] = T
        batch_sizes = (lengths > torch.arange(T).unsqueeze(1)).sum(1)
        x = make(int(batch_sizes.sum()), m)
    W = torch.linalg.qr(make(n, n))[0]
    b = 0.1 * make(n // ACTIVATIONS[activation].units_per_bias)
    tensors = {"x": x, "h0": make(B, n), "W": W, "U": 0.5 * make(n, m), "b": b}
    return {name: t.to(dtype) for name, t in tensors.items()} | {
        "activation": activation,
        "batch_sizes": batch_sizes,
        "reverse": False,
    }


def results(operator: Any, arguments: dict[str, Any], use: str = "both") -> dict[str, Tensor]:
    """Outputs and all gradients for random gradients of the output, of h_n, or of both."""
    leaves = [arguments[name].detach().clone().requires_grad_() for name in NAMES[2:]]
    output, h_n = operator(Operands(*leaves, *(arguments[name] for name in ("activation", "batch_sizes", "reverse"))))
    random = torch.Generator().manual_seed(5)
    weights = [torch.randn(t.shape, generator=random, dtype=torch.float64).to(t) for t in (output, h_n)]
    chosen = {"both": [output, h_n], "output": [output], "h_n": [h_n]}[use]
    gradients = torch.autograd.grad(
        chosen, leaves, weights if use == "both" else weights[("output", "h_n").index(use) :][:1]
    )
    return dict(zip(NAMES, (output.detach(), h_n.detach(), *gradients), strict=True))


def assert_equal_to_naive(arguments: dict[str, Any], use: str = "both") -> None:
    expected = results(naive.recurrence, arguments, use)
    ours = results(native.recurrence, arguments, use)
    T = len(arguments["x"]) if arguments["batch_sizes"] is None else len(arguments["batch_sizes"])
    depth = T * (arguments["h0"].shape[1] + arguments["x"].shape[-1]) + arguments["h0"].shape[0]
    for name, value in ours.items():
        scale = 1 + float(expected[name].abs().max())
        tolerance = 8 * torch.finfo(value.dtype).eps * depth * scale
        torch.testing.assert_close(
            value, expected[name], rtol=0, atol=tolerance, msg=lambda s, name=name: f"{name}: {s}"
        )


@pytest.mark.parametrize("number", range(3 * len(SIZES)))
def test_sizes(number: int, isa: str, threads: None) -> None:
    n, m, B = (SIZES[(factor * number + shift) % len(SIZES)] for factor, shift in ((1, 0), (3, 1), (5, 2)))
    activation = list(ACTIVATIONS)[number % len(ACTIVATIONS)]
    arguments = problem(LENGTHS[number // len(SIZES)], B, n, m, activation, packed=number % 2 == 0)
    assert_equal_to_naive(arguments | {"reverse": number % 4 > 1})


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("packed", [False, True], ids=["dense", "packed"])
@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
@pytest.mark.parametrize("use", ["both", "output", "h_n"])
def test_modes(activation: str, packed: bool, reverse: bool, use: str, isa: str) -> None:
    arguments = problem(5, 7, 18, 3, activation, packed)
    arguments["h0"][0] = 0
    arguments["x"][..., 0] = 0
    assert_equal_to_naive(arguments | {"reverse": reverse}, use)


def test_many_steps_pass_several_chunks_of_the_weight_gradient(isa: str) -> None:
    assert_equal_to_naive(problem(500, 3, 10, 2, "tanh", packed=True))


def test_more_rows_than_a_block(isa: str) -> None:
    assert_equal_to_naive(problem(3, 150, 9, 2, packed=True))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_float32(activation: str, isa: str) -> None:
    """Against float64, whose error is nothing beside it."""
    arguments = problem(20, 9, 33, 7, activation)
    exact, ours = (
        results(operator, {k: v.to(dtype) if k in NAMES else v for k, v in arguments.items()})
        for operator, dtype in ((naive.recurrence, torch.float64), (native.recurrence, torch.float32))
    )
    for name in NAMES:
        tolerance = torch.finfo(torch.float32).eps * 20 * 40 * (1 + float(exact[name].abs().max()))
        torch.testing.assert_close(ours[name].double(), exact[name], rtol=0, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tanh_is_right_to_two_units_in_the_last_place(dtype: torch.dtype, isa: str) -> None:
    x = torch.cat([torch.linspace(-25, 25, 40_001), torch.logspace(-30, 1, 20_000)]).to(dtype)
    one = torch.ones(1, 1, dtype=dtype)
    zero = torch.zeros(len(x), 1, dtype=dtype)
    output, _ = native.recurrence(Operands(x.reshape(1, -1, 1), zero, 0 * one, one, None, "tanh"))
    exact = np.tanh(x.numpy().astype(np.longdouble))
    ulp = np.spacing(np.abs(exact).astype(x.numpy().dtype))
    assert np.max(np.abs(output.flatten().numpy() - exact) / ulp) <= 2


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_no_bias_is_a_zero_bias(activation: str) -> None:
    arguments = problem(4, 3, 6, 2, activation)
    without, _ = native.recurrence(Operands(*(arguments | {"b": None}).values()))
    with_zero, _ = native.recurrence(Operands(*(arguments | {"b": torch.zeros_like(arguments["b"])}).values()))
    assert torch.equal(without, with_zero)


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


@pytest.mark.parametrize("packed", [False, True], ids=["dense", "packed"])
def test_views(packed: bool, isa: str) -> None:
    arguments = problem(6, 5, 18, 4, packed=packed)
    given = [arguments[name] for name in ("activation", "batch_sizes", "reverse")]
    leaves = [arguments[name].requires_grad_() for name in NAMES[2:]]
    expected = native.recurrence(Operands(*leaves, *given))
    weight = torch.randn_like(expected[0])
    expected_gradients = torch.autograd.grad(expected[0], leaves, weight)
    for position, leaf in enumerate(leaves[:4]):
        for name, view in views(leaf.detach()).items():
            changed = [*leaves[:position], view, *leaves[position + 1 :]]
            output, h_n = native.recurrence(Operands(*changed, *given))
            assert torch.equal(output, expected[0]), (NAMES[2 + position], name)
            assert torch.equal(h_n, expected[1])
            others = [leaf for k, leaf in enumerate(leaves) if k != position]
            gradients = torch.autograd.grad(output, others, weight)
            for ours, theirs in zip(
                gradients, [g for k, g in enumerate(expected_gradients) if k != position], strict=True
            ):
                assert torch.equal(ours, theirs), (NAMES[2 + position], name)
    output, h_n = native.recurrence(Operands(*leaves, *given))
    for name, view in views(weight).items():
        for ours, theirs in zip(
            torch.autograd.grad(output, leaves, view, retain_graph=True), expected_gradients, strict=True
        ):
            assert torch.equal(ours, theirs), name
    weight_n = torch.randn_like(h_n)
    expected_gradients = torch.autograd.grad(h_n, leaves, weight_n, retain_graph=True)
    for name, view in views(weight_n).items():
        for ours, theirs in zip(
            torch.autograd.grad(h_n, leaves, view, retain_graph=True), expected_gradients, strict=True
        ):
            assert torch.equal(ours, theirs), name


def test_expanded_input_and_gradient() -> None:
    """A sum hands back a gradient whose strides are all zero."""
    arguments = problem(6, 5, 18, 4)
    arguments["x"] = arguments["x"][:1, :1].expand(6, 5, 4)
    leaves = [arguments[name].requires_grad_() for name in ("h0", "W", "U", "b")]
    one = torch.ones((), dtype=torch.float64)
    results = []
    for x, weight in (
        (arguments["x"], one.expand(6, 5, 18)),
        (arguments["x"].contiguous(), one.expand(6, 5, 18).contiguous()),
    ):
        output, _ = native.recurrence(Operands(x, *leaves, "modrelu"))
        results.append([output, *torch.autograd.grad(output, leaves, weight)])
    for ours, theirs in zip(*results, strict=True):
        assert torch.equal(ours, theirs)


def test_strides_beyond_two_to_the_31(isa: str) -> None:
    """The steps of x and of the output's gradient lie 2³¹ + 5 numbers apart, in memory that is never touched."""
    apart, T, B, n, m = 2**31 + 5, 2, 3, 9, 2
    arguments = problem(T, B, n, m, dtype=torch.float32)
    leaves = [arguments[name].requires_grad_() for name in ("h0", "W", "U", "b")]
    try:
        memory = mmap.mmap(-1, 4 * (apart + 64), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)  # MAP_NORESERVE
    except (OSError, ValueError) as error:
        pytest.skip(f"no address space: {error}")
    far = torch.frombuffer(memory, dtype=torch.float32)
    x, weight = far.as_strided((T, B, m), (apart, m, 1)), far.as_strided((T, B, n), (apart, n, 1), 8)
    x.copy_(arguments["x"])
    near_weight = torch.randn(T, B, n)
    weight.copy_(near_weight)
    gradients = []
    for inputs, g in ((x, weight), (arguments["x"], near_weight)):
        output, _ = native.recurrence(Operands(inputs, *leaves, "modrelu"))
        gradients.append([output, *torch.autograd.grad(output, leaves, g)])
    for ours, theirs in zip(*gradients, strict=True):
        assert torch.equal(ours, theirs)
    del far, x, weight, inputs, g


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("where", ["x", "h0"])
def test_nan_stays_in_its_sample(activation: str, where: str, isa: str) -> None:
    arguments = problem(6, 11, 18, 3, activation)
    clean = results(native.recurrence, arguments)
    dirty_arguments = arguments | {where: arguments[where].clone()}
    sample = dirty_arguments[where][2, 4] if where == "x" else dirty_arguments[where][4]
    sample[0] = torch.nan
    dirty = results(native.recurrence, dirty_arguments)
    others = [row for row in range(11) if row != 4]
    for name in ("output", "x"):
        assert torch.equal(dirty[name][:, others], clean[name][:, others]), name
    for name in ("h_n", "h0"):
        assert torch.equal(dirty[name][others], clean[name][others]), name
    for value in (dirty["output"][5, 4], dirty["h_n"][4]):
        assert value.isnan().all()


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("where", ["x", "h0"])
@pytest.mark.parametrize("loss", ["linear", "square"])  # whose gradient is finite, and NaN where the state is
def test_all_rungs_agree_on_a_nan(activation: str, where: str, loss: str, isa: str) -> None:
    arguments = problem(6, 5, 18, 3, activation)
    (arguments[where][2, 3] if where == "x" else arguments[where][3])[0] = torch.nan
    found = []
    for rung in RUNGS:
        leaves = [arguments[name].clone().requires_grad_() for name in NAMES[2:]]
        output, h_n = rung.run(Operands(*leaves, activation))
        read = output * torch.linspace(-1, 1, 18) if loss == "linear" else output.square()
        found.append([output, h_n, *torch.autograd.grad(read.sum() + h_n.sum(), leaves)])
    for rung, ours in zip(RUNGS[:-1], found[:-1], strict=True):
        for name, value, expected in zip(NAMES, ours, found[-1], strict=True):
            torch.testing.assert_close(
                value, expected, rtol=1e-9, atol=1e-9, equal_nan=True, msg=lambda s, n=(rung.name, name): f"{n}: {s}"
            )


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


def test_rows_do_not_depend_on_their_neighbours(isa: str) -> None:
    arguments = problem(5, 64, 33, 7)
    whole = results(native.recurrence, arguments)
    for rows in (slice(0, 1), slice(3, 5), slice(10, 17), slice(20, 63)):
        part = arguments | {"x": arguments["x"][:, rows], "h0": arguments["h0"][rows]}
        output, h_n = native.recurrence(Operands(*part.values()))
        assert torch.equal(output, whole["output"][:, rows])
        assert torch.equal(h_n, whole["h_n"][rows])


def test_empty_batch() -> None:
    arguments = problem(4, 2, 6, 3)
    arguments |= {"x": arguments["x"][:, :0], "h0": arguments["h0"][:0]}
    ours = results(native.recurrence, arguments)
    assert ours["output"].shape == (4, 0, 6)
    for name in ("W", "U", "b"):
        assert torch.equal(ours[name], torch.zeros_like(arguments[name]))


@pytest.mark.parametrize("wanted", range(1, 32))
def test_each_gradient_alone(wanted: int) -> None:
    """Whatever is left out, the others are the same bits."""
    arguments = problem(5, 4, 17, 3)
    full = results(native.recurrence, arguments)
    leaves = [arguments[name].clone().requires_grad_(bool(wanted >> k & 1)) for k, name in enumerate(NAMES[2:])]
    output, h_n = native.recurrence(Operands(*leaves, "modrelu"))
    random = torch.Generator().manual_seed(5)
    weights = [torch.randn(t.shape, generator=random, dtype=torch.float64) for t in (output, h_n)]
    torch.autograd.backward((output, h_n), weights)
    for name, leaf in zip(NAMES[2:], leaves, strict=True):
        assert leaf.grad is None or torch.equal(leaf.grad, full[name]), name


@pytest.mark.parametrize("sizes", [[3, 2, 2], [2, 3, 3], [4, 3, 1, 0], [9]])
def test_refuses_batch_sizes_that_would_leave_the_memory(sizes: list[int]) -> None:
    arguments = problem(2, sizes[0], 6, 3)
    arguments |= {"x": torch.zeros(8, 3, dtype=torch.float64), "batch_sizes": torch.tensor(sizes)}
    with pytest.raises(ValueError, match="expected batch_sizes of a PackedSequence"):
        native.recurrence(Operands(*arguments.values()))


def test_autocast_changes_nothing() -> None:
    arguments = problem(5, 4, 17, 3, dtype=torch.float32)
    plain = results(native.recurrence, arguments)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = results(native.recurrence, arguments)
    for name in NAMES:
        assert torch.equal(plain[name], inside[name])


def test_compiles_into_one_graph() -> None:
    arguments = problem(5, 4, 17, 3, dtype=torch.float32)
    compiled = torch.compile(native.recurrence, backend="aot_eager", fullgraph=True)
    plain, inside = (results(operator, arguments) for operator in (native.recurrence, compiled))
    for name in NAMES:
        assert torch.equal(plain[name], inside[name])


def test_second_derivative_is_refused() -> None:
    arguments = problem(3, 2, 4, 2)
    W = arguments["W"].requires_grad_()
    output, _ = native.recurrence(Operands(*arguments.values()))
    (gradient,) = torch.autograd.grad(output.square().sum(), W, create_graph=True)
    with pytest.raises(RuntimeError, match='backend="naive"'):
        gradient.sum().backward()


def test_a_gradient_that_vanishes_is_zero_below_the_smallest_normal_number(threads: None) -> None:
    """On some processors each operation on a subnormal number takes a hundred times as long."""
    arguments = problem(200, 4, 17, 3, "identity", dtype=torch.float32)
    arguments["W"] *= 0.5
    gradient = results(native.recurrence, arguments, "h_n")["x"].abs()
    tiny = torch.finfo(torch.float32).tiny
    assert gradient[:60].max() == 0
    assert not ((gradient > 0) & (gradient < tiny)).any()
    assert torch.tensor(tiny) * 0.5 > 0, "the mode of the thread has changed"
