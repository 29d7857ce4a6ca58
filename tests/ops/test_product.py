"""W as a product of factors on the kernel against the loop that defines it, in float64, outputs and every gradient."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import functional_call
from torch.utils.flop_counter import FlopCounterMode

from scornn.nn.eurnn import EURNN
from scornn.nn.urnn import URNN
from scornn.ops import Operands, backends, native, product, rotations

F64 = torch.float64
SIZES = (1, 2, 3, 4, 8, 9, 16, 17, 32, 33, 64, 158, 170, 378)  # 158 = 2 · 79, 170 = 2 · 5 · 17, 378 = 2 · 3³ · 7
NAMES = (
    "fourier",
    "rotations/complex/tunable/3",
    "rotations/real/tunable/2",
    "rotations/complex/fft/0",
    "rotations/real/fft/0",
)
pytestmark = pytest.mark.skipif(backends()["native"] != "available", reason="no native kernel")


def activation_of(name: str) -> str:
    return "modrelu" if "real" in name else "complex_modrelu"


def operands(tensors: Any, factors: list[Tensor], name: str, activation: str | None = None, *order: Any) -> Operands:
    x, h0, U, b = tensors
    return Operands(x, h0, product.Product(name, factors), U, b, activation or activation_of(name), *order)


def problem(name: str, T: int, B: int, n: int, m: int, packed: bool = False, bias: bool = True) -> Any:
    """x, h0, U, b, the factors, and the batch sizes."""
    random = torch.Generator().manual_seed(T + 10 * B + 100 * n + 1000 * m)
    make = lambda *shape: torch.randn(*shape, generator=random, dtype=F64)  # noqa: E731
    batch_sizes, rows, size = None, (T, B), n if "real" in name else 2 * n
    if packed:
        lengths = torch.randint(1, T + 1, (B,), generator=random)
        lengths[0] = T
        batch_sizes = (lengths > torch.arange(T).unsqueeze(1)).sum(1)
        rows = (int(batch_sizes.sum()),)
    if name == "fourier":
        factors = [3 * make(3, n), make(2, n, 2), torch.randperm(n, generator=random)]
    else:
        _, numbers, style, capacity = name.split("/")
        pairs = sum(layer.pairs for layer in rotations.layers(n, style, int(capacity)))
        factors = [3 * make(pairs)] + ([3 * make(pairs), 3 * make(n)] if numbers == "complex" else [])
    b = 0.3 * make(n) if bias else None
    return [make(*rows, m), make(B, size), make(size, m), b], factors, batch_sizes


@pytest.mark.parametrize(
    ("name", "of_map"),
    [
        ("fourier", 8 * (3 * 6 + 2 * 16 + 2 * 5 * 3)),  # diagonals, reflections, transforms
        ("rotations/real/tunable/2", 6 * (4 + 3)),
        ("rotations/complex/tunable/2", 18 * (4 + 3) + 6 * 8),
        ("rotations/real/fft/0", 6 * 3 * 4),
    ],
)
@pytest.mark.parametrize("operator", [product.kernel, product.manual], ids=["native", "manual"])
def test_flops_count_the_factors_of_W(operator: Any, name: str, of_map: int) -> None:
    tensors, factors, batch_sizes = problem(name, 5, 2, 8, 3)
    tensors = [t.requires_grad_() for t in tensors]
    with FlopCounterMode(display=False) as counter:
        output, _ = operator(operands(tensors, factors, name, None, batch_sizes))
        output.sum().backward()
    assert counter.get_total_flops() == 3 * 5 * 2 * (2 * tensors[2].numel() + of_map)


def results(
    operator: Any,
    name: str,
    tensors: list[Any],
    factors: list[Tensor],
    *settings: Any,
    activation: str | None = None,
    dtype: torch.dtype = F64,
    use: tuple[int, ...] = (0, 1),
) -> list[Tensor]:
    """The states, the last ones, and the gradients of x, h0, U, b and the factors."""
    leaf = lambda t: t if t is None or not t.is_floating_point() else t.detach().to(dtype).requires_grad_()  # noqa: E731
    leaves, made = [leaf(t) for t in tensors], [leaf(f) for f in factors]
    outputs = operator(operands(leaves, made, name, activation, *settings))
    random = torch.Generator().manual_seed(3)
    weights = [torch.randn(t.shape, generator=random, dtype=F64).to(dtype) for t in outputs]
    trained = [t for t in (*leaves, *made) if t is not None and t.requires_grad and t.numel()]
    gradients = torch.autograd.grad([outputs[k] for k in use], trained, [weights[k] for k in use])
    return [*outputs, *gradients]


def assert_like_naive(
    name: str, *arguments: Any, operator: Any = product.kernel, dtype: torch.dtype = F64, **options: Any
) -> None:
    expected = results(product.naive, name, *arguments, **options)
    ours = results(operator, name, *arguments, dtype=dtype, **options)
    rounding = 1e-11 if dtype == F64 else 1e-3
    for k, (want, got) in enumerate(zip(expected, ours, strict=True)):
        scale = 1 + float(want.detach().abs().max())
        error = float((got.double() - want).detach().abs().max())
        assert error <= rounding * scale, f"number {k}: {error}"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("n", SIZES)
def test_sizes(name: str, n: int, isa: str) -> None:
    if "fft" in name and n & (n - 1):
        n = 1 << (n.bit_length() - 1)
    tensors, factors, sizes = problem(name, 4, 1 + 7 * n % 19, n, 1 + n % 4, packed=n % 2 == 0, bias=n % 5 > 0)
    assert_like_naive(name, tensors, factors, sizes, n % 3 == 0)
    assert_like_naive(name, tensors, factors, sizes, n % 3 == 0, dtype=torch.float32)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("n", [1, 2, 8])  # one unit is in no rotation, and turned by omega alone
def test_the_hand_written_backward(name: str, n: int) -> None:
    tensors, factors, sizes = problem(name, 4, 3, n, 2, packed=True)
    assert_like_naive(name, tensors, factors, sizes, True, operator=product.manual)


@pytest.mark.parametrize("name", NAMES[:3])
@pytest.mark.parametrize("use", [(0,), (1,)], ids=["output", "h_n"])
@pytest.mark.parametrize("packed", [False, True], ids=["dense", "packed"])
@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
def test_one_result_alone(name: str, use: tuple[int, ...], packed: bool, reverse: bool) -> None:
    tensors, factors, sizes = problem(name, 6, 11, 12, 3, packed)
    assert_like_naive(name, tensors, factors, sizes, reverse, use=use)


def test_real_units_without_an_activation() -> None:
    tensors, factors, sizes = problem(NAMES[2], 6, 11, 12, 3, packed=True)
    assert_like_naive(NAMES[2], tensors, factors, sizes, True, activation="identity")


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_states_whose_squares_do_not_fit(scale: float) -> None:
    (x, h0, U, b), factors, _ = problem("fourier", 2, 3, 8, 2)
    tensors = [scale * x, scale * h0, U, b.abs()]
    want = results(product.naive, "fourier", tensors, factors, None, False)
    got = results(product.kernel, "fourier", tensors, factors, None, False, dtype=torch.float32)
    for k in (0, 1, 3):  # states, and the gradient of h0
        error = float((got[k].double() - want[k]).detach().abs().max())
        assert error <= 1e-4 * float(want[k].detach().abs().max())


def test_a_state_that_underflows_has_no_gradient() -> None:
    (x, h0, U, b), factors, _ = problem("fourier", 1, 3, 8, 2)
    for operator in (product.naive, product.manual, product.kernel):
        tensors = [1e-30 * x, 1e-30 * h0, U, 0 * b]
        output, _, dx, dh0, *_ = results(operator, "fourier", tensors, factors, None, False, dtype=torch.float32)
        assert not output.any()
        assert not dx.any()
        assert not dh0.any()


@pytest.mark.parametrize("name", NAMES[:3])
def test_a_nan_stays_in_its_sample(name: str) -> None:
    tensors, factors, _ = problem(name, 5, 9, 17, 2)
    clean = results(product.kernel, name, tensors, factors, None, False)
    tensors[0][2, 4] = torch.nan
    found = results(product.kernel, name, tensors, factors, None, False)
    others = [r for r in range(9) if r != 4]
    assert found[0][2:, 4].isnan().any()
    for k in (0, 2):  # output and dx
        assert torch.equal(found[k][:, others], clean[k][:, others])


@pytest.mark.parametrize("name", NAMES[:3])
def test_the_same_bits_from_call_to_call_and_states_for_any_threads(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "_SERIAL", 0)
    tensors, factors, sizes = problem(name, 20, 21, 10, 3, packed=True)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 1, 3):
            torch.set_num_threads(threads)
            found.append(results(product.kernel, name, tensors, factors, sizes, False))
    finally:
        torch.set_num_threads(before)
    for k, (one, again, three) in enumerate(zip(*found, strict=True)):
        assert torch.equal(one, again)
        assert torch.equal(one, three) if k < 4 else torch.allclose(one, three, rtol=1e-11, atol=1e-11)


def test_strides_of_x_and_of_the_gradient() -> None:
    tensors, factors, _ = problem("fourier", 4, 5, 6, 3)
    tensors[0] = tensors[0].transpose(0, 2).contiguous().transpose(0, 2)
    x, h0, U, b = tensors
    grads = []
    for operator in (product.naive, product.kernel):
        h = h0.detach().requires_grad_()
        output, _ = operator(operands((x, h, U, b), factors, "fourier"))
        output[..., ::2].sum().backward()  # as a head that reads the real part
        grads.append(h.grad)
    torch.testing.assert_close(grads[1], grads[0])


def test_opcheck() -> None:
    tensors, factors, _ = problem("fourier", 4, 3, 6, 2)
    x, h0, U, b = (t.requires_grad_() for t in tensors)
    arguments = (x, h0, *factors, U, b, "fourier", "complex_modrelu", None, False)
    torch.library.opcheck(torch.ops.scornn.structured_forward.default, arguments)


@pytest.mark.parametrize(
    "layer", [lambda form: URNN(3, 80, form=form, dtype=F64), lambda form: EURNN(3, 80, form=form, dtype=F64)]
)
def test_auto_is_the_product_and_equals_the_dense_form(layer: Any) -> None:
    auto, dense = layer("auto"), layer("dense")
    dense.load_state_dict(auto.state_dict())
    assert auto.runs_as_product()
    x = torch.randn(6, 4, 3, dtype=F64)
    for got, want in zip(auto(x), dense(x), strict=True):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize(
    ("layer", "name", "given", "said"),
    [
        (EURNN(3, 64), "angle_hh_l0", torch.zeros(63, dtype=F64), "angle is torch.float64"),
        (EURNN(3, 64), "angle_hh_l0", torch.zeros(1), r"expected angle of shape \(63,\)"),
        (EURNN(3, 64, complex=False), "bias_l0", torch.zeros(1), r"expected b of shape \(64,\)"),
        (EURNN(3, 64, complex=False), "weight_ih_l0", torch.zeros(8, 3), r"expected h0 of shape \(2, 8\)"),
        (URNN(3, 64), "phase_hh_l0", torch.zeros(3, 64, dtype=F64), "phase is torch.float64"),
        (URNN(3, 64), "permutation_hh_l0", torch.arange(64, dtype=torch.int32), "a permutation of 64 numbers in int64"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_kernel_reads_no_further_than_its_arguments_go(layer: Any, name: str, given: Tensor, said: str) -> None:
    assert layer.runs_as_product()
    with pytest.raises(ValueError, match=said):
        functional_call(layer, {name: given}, (torch.randn(5, 2, 3),))
