"""The scaled Cayley transform: the paper's theorems, held to rounding."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import grad, hessian, jvp, vmap

from scornn.functional import (
    inverse_scaled_cayley,
    modrelu,
    orthogonality_error,
    scaled_cayley,
    skew,
    skew_indices,
)

SIZES = [1, 2, 3, 5, 16, 17, 50, 190, 191]


def random_skew(n: int, scale: float = 1.0, dtype: torch.dtype = torch.float64) -> Tensor:
    return skew(torch.empty(n * (n - 1) // 2, dtype=dtype).uniform_(-scale, scale), n)


def signs(n: int, rho: int, dtype: torch.dtype = torch.float64) -> Tensor:
    D = torch.ones(n, dtype=dtype)
    D[n - rho :] = -1
    return D


def haar(n: int, dtype: torch.dtype = torch.float64) -> Tensor:
    Q, R = torch.linalg.qr(torch.randn(n, n, dtype=torch.float64))
    return (Q * R.diagonal().sign()).to(dtype)


class TestSkew:
    @pytest.mark.parametrize("n", [1, 2, 3, 17])
    def test_exactly_skew_and_complete(self, n: int) -> None:
        v = torch.randn(n * (n - 1) // 2)
        A = skew(v, n)
        assert torch.equal(A, -A.mT)
        row, column = skew_indices(n)
        assert torch.equal(A[row, column], v)

    def test_leading_dimensions(self) -> None:
        v = torch.randn(2, 3, 10)
        A = skew(v, 5)
        assert A.shape == (2, 3, 5, 5)
        assert torch.equal(A[1, 2], skew(v[1, 2], 5))

    @pytest.mark.parametrize("bandwidth", [0, 1, 3, 6])
    def test_band(self, bandwidth: int) -> None:
        n = 7
        count = n * bandwidth - bandwidth * (bandwidth + 1) // 2
        A = skew(torch.ones(count), n, bandwidth)
        i, j = torch.meshgrid(torch.arange(n), torch.arange(n), indexing="ij")
        assert torch.equal(A != 0, ((i - j).abs() <= bandwidth) & (i != j))

    @pytest.mark.parametrize("bandwidth", [-1, -7])
    def test_a_negative_band_is_refused(self, bandwidth: int) -> None:
        with pytest.raises(ValueError, match=f"bandwidth must be at least 0, got {bandwidth}"):
            skew(torch.zeros(0), 3, bandwidth)

    def test_wrong_count(self) -> None:
        with pytest.raises(ValueError, match=r"expected 3 numbers .* n=3; got shape \(4,\)"):
            skew(torch.zeros(4), 3)


class TestScaledCayley:
    @pytest.mark.parametrize("n", SIZES)
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_orthogonal_to_rounding_for_bounded_A(self, n: int, dtype: torch.dtype) -> None:
        W = scaled_cayley(random_skew(n, dtype=dtype), signs(n, n // 2, dtype))
        residual = torch.linalg.matrix_norm(W.mT @ W - torch.eye(n, dtype=dtype), ord=1)
        assert residual <= 30 * n * torch.finfo(dtype).eps

    @pytest.mark.parametrize("scale", [10.0, 1e3, 1e6])
    @pytest.mark.parametrize("n", [16, 17])
    def test_residual_grows_no_faster_than_the_condition(self, n: int, scale: float) -> None:
        A = random_skew(n, scale)
        W = scaled_cayley(A, signs(n, 3))
        residual = torch.linalg.matrix_norm(W.mT @ W - torch.eye(n, dtype=A.dtype), ord=1)
        condition = torch.linalg.cond(torch.eye(n, dtype=A.dtype) + A)
        assert residual <= 10 * condition * n * torch.finfo(A.dtype).eps

    @pytest.mark.parametrize("rho", [0, 1, 4, 5, 9])
    def test_determinant_is_the_sign_of_rho(self, rho: int) -> None:
        W = scaled_cayley(random_skew(9), signs(9, rho))
        assert torch.linalg.det(W).item() == pytest.approx((-1) ** rho)

    def test_is_the_papers_product_and_not_its_transpose(self) -> None:
        A, D, I = random_skew(6), signs(6, 2), torch.eye(6, dtype=torch.float64)
        expected = torch.linalg.inv(I + A) @ (I - A) @ torch.diag(D)
        torch.testing.assert_close(scaled_cayley(A, D), expected)
        assert not torch.allclose(scaled_cayley(A, D), expected.mT)

    def test_theorem_3_2(self) -> None:
        """dL/dA = Vᵀ − V with V = (I+A)⁻ᵀ dL/dW (D + Wᵀ), through the free numbers of A."""
        n = 9
        v = torch.empty(n * (n - 1) // 2, dtype=torch.float64).uniform_(-1, 1).requires_grad_()
        D, G, I = signs(n, 4), torch.randn(n, n, dtype=torch.float64), torch.eye(n, dtype=torch.float64)
        A = skew(v, n)
        W = scaled_cayley(A, D)
        (gradient,) = torch.autograd.grad((W * G).sum(), v)
        V = torch.linalg.inv(I + A).mT @ G @ (torch.diag(D) + W.mT)
        row, column = skew_indices(n)
        torch.testing.assert_close(gradient, (V.mT - V)[row, column].detach(), rtol=1e-10, atol=1e-10)

    def test_gradients_of_first_and_second_order(self) -> None:
        D = signs(4, 2)
        v = torch.empty(6, dtype=torch.float64).uniform_(-1, 1).requires_grad_()
        assert torch.autograd.gradcheck(lambda v: scaled_cayley(skew(v, 4), D), v)
        assert torch.autograd.gradgradcheck(lambda v: scaled_cayley(skew(v, 4), D), v)

    def test_backward_solves_nothing(self) -> None:
        v = torch.randn(45, requires_grad=True)
        W = scaled_cayley(skew(v, 10), signs(10, 5, torch.float32))
        with torch.profiler.profile() as profile:
            W.sum().backward()
        names = {event.name for event in profile.events()}
        assert "aten::matmul" in names
        assert not [name for name in names if "linalg" in name or "lu_" in name]

    def test_unitary(self) -> None:
        n = 7
        M = torch.randn(n, n, dtype=torch.complex128)
        theta = torch.rand(n, dtype=torch.float64) * 6
        W = scaled_cayley(M - M.mH, torch.polar(torch.ones_like(theta), theta))
        assert orthogonality_error(W) < 1e-13
        real = scaled_cayley((M - M.mH).to(torch.complex64), torch.ones(n))
        assert real.dtype == torch.complex64
        assert orthogonality_error(real) < 1e-5

    @pytest.mark.parametrize("n", [100, 170, 256])
    @pytest.mark.parametrize("transform", [scaled_cayley, vmap(scaled_cayley)], ids=["batch", "vmap"])
    def test_a_batch_of_large_matrices_on_several_threads(self, n: int, transform: Callable[..., Tensor]) -> None:
        A = skew(0.1 * torch.randn(3, n * (n - 1) // 2), n)
        D = torch.ones(3, n)
        before = torch.get_num_threads()
        torch.set_num_threads(2)
        try:
            W = transform(A, D)
        finally:
            torch.set_num_threads(before)
        for one, a, d in zip(W, A, D, strict=True):
            torch.testing.assert_close(one, scaled_cayley(a, d), rtol=0, atol=1e-4)
            assert orthogonality_error(one) < 10 * n * torch.finfo(torch.float32).eps

    def test_batch(self) -> None:
        A = skew(torch.randn(2, 3, 10, dtype=torch.float64), 5)
        W = scaled_cayley(A, signs(5, 2))
        torch.testing.assert_close(W[1, 2], scaled_cayley(A[1, 2], signs(5, 2)))

    @pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # torch.func.jvp's own
    def test_transforms_of_a_batch(self) -> None:
        v, tangent = torch.randn(2, 2, 3, 10, dtype=torch.float64)
        target = torch.randn(5, 5, dtype=torch.float64)

        def loss(v: Tensor) -> Tensor:
            return (scaled_cayley(skew(v, 5), signs(5, 2)) - target).square().sum()

        flat = v.flatten(0, 1)
        expected = torch.stack([torch.autograd.functional.jacobian(loss, one) for one in flat]).view_as(v)
        torch.testing.assert_close(vmap(vmap(grad(loss)))(v), expected)
        _, along = vmap(vmap(lambda v, tangent: jvp(loss, (v,), (tangent,))))(v, tangent)
        torch.testing.assert_close(along, (expected * tangent).sum(-1))
        second = torch.stack([torch.autograd.functional.hessian(loss, one) for one in flat[:2]])
        torch.testing.assert_close(vmap(hessian(loss))(flat[:2]), second)

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    def test_half_precision_is_computed_in_single(self, dtype: torch.dtype) -> None:
        A, D = random_skew(8, dtype=torch.float32).to(dtype), signs(8, 4, torch.float32)
        W = scaled_cayley(A, D.to(dtype))
        assert W.dtype == dtype
        assert torch.equal(W, scaled_cayley(A.float(), D).to(dtype))

    @pytest.mark.parametrize("bad", [float("nan"), float("inf")])
    def test_not_finite(self, bad: float) -> None:
        with pytest.raises(ValueError, match="NaN or infinity"):
            scaled_cayley(torch.tensor([[0.0, bad], [-bad, 0.0]]), torch.ones(2))

    def test_wrong_shapes(self) -> None:
        with pytest.raises(ValueError, match="square"):
            scaled_cayley(torch.zeros(2, 3), torch.ones(3))
        with pytest.raises(ValueError, match=r"3 diagonal entries .* got shape \(2,\)"):
            scaled_cayley(torch.zeros(3, 3), torch.ones(2))

    def test_ten_thousand_updates_do_not_drift(self) -> None:
        n = 16
        v, D = torch.zeros(n * (n - 1) // 2), signs(n, 8, torch.float32)
        for _ in range(10_000):
            v += 1e-2 * torch.randn_like(v)
            v.clamp_(-1, 1)
        W = scaled_cayley(skew(v, n), D)
        assert (W.mT @ W - torch.eye(n)).abs().max() <= 10 * n * torch.finfo(torch.float32).eps

    def test_agrees_with_torchs_own_cayley(self) -> None:
        """torch's cayley(X) is (I−X/2)⁻¹(I+X/2), so that D · cayley(−2DAD) is the scaled transform."""
        n = 8
        A, D = random_skew(n), signs(n, 3)
        linear = torch.nn.Linear(n, n, bias=False, dtype=torch.float64)
        torch.nn.utils.parametrizations.orthogonal(linear, orthogonal_map="cayley", use_trivialization=False)
        with torch.no_grad():
            linear.parametrizations.weight.original.copy_(-2 * D[:, None] * A * D)
        torch.testing.assert_close(D[:, None] * linear.weight, scaled_cayley(A, D))


def special_matrices() -> dict[str, Tensor]:
    n = 12
    v = torch.randn(n, 1, dtype=torch.float64)
    cycle = torch.eye(n, dtype=torch.float64).roll(1, 0)
    return {
        "identity": torch.eye(n, dtype=torch.float64),
        "minus identity": -torch.eye(n, dtype=torch.float64),
        "reflection": torch.eye(n, dtype=torch.float64) - 2 * v @ v.mT / (v.mT @ v),
        "cycle": cycle,
        "transposition": torch.eye(n, dtype=torch.float64)[[1, 0, *range(2, n)]],
        "random permutation": torch.eye(n, dtype=torch.float64)[torch.randperm(n)],
        "one by one": -torch.ones(1, 1, dtype=torch.float64),
    }


class TestInverse:
    @pytest.mark.parametrize("name", special_matrices())
    def test_matrices_that_the_plain_transform_cannot_reach(self, name: str) -> None:
        W = special_matrices()[name]
        A, D = inverse_scaled_cayley(W)
        assert torch.equal(A, -A.mT)
        assert set(D.tolist()) <= {1.0, -1.0}
        assert A.abs().max() <= 1 + 1e-12
        torch.testing.assert_close(scaled_cayley(A, D), W, rtol=0, atol=1e-12)

    @pytest.mark.parametrize("n", [1, 2, 3, 8, 33, 64, 170])
    def test_random_orthogonal(self, n: int) -> None:
        W = haar(n)
        A, D = inverse_scaled_cayley(W)
        assert A.abs().max() <= 1 + 1e-10
        torch.testing.assert_close(scaled_cayley(A, D), W, rtol=0, atol=1e-12)

    def test_the_papers_example(self) -> None:
        alpha = 0.99999
        beta = (1 - alpha**2) ** 0.5
        W = torch.tensor([[-alpha, -beta], [beta, -alpha]], dtype=torch.float64)
        I = torch.eye(2, dtype=torch.float64)
        plain = torch.linalg.solve(I + W, I - W)
        assert plain.abs().max().item() == pytest.approx(447.212, abs=1e-3)
        A, D = inverse_scaled_cayley(W)
        assert A.abs().max() <= 1
        torch.testing.assert_close(scaled_cayley(A, D), W, rtol=0, atol=1e-12)

    @settings(max_examples=50, deadline=None)
    @given(n=st.integers(1, 24), rho=st.floats(0, 1), seed=st.integers(0, 2**32 - 1), scale=st.floats(0, 3))
    def test_round_trip_from_A(self, n: int, rho: float, seed: int, scale: float) -> None:
        torch.manual_seed(seed)
        W = scaled_cayley(random_skew(n, scale), signs(n, round(rho * n)))
        A, D = inverse_scaled_cayley(W)
        assert not A.numel() or A.abs().max() <= 1 + 1e-10
        torch.testing.assert_close(scaled_cayley(A, D), W, rtol=0, atol=1e-12)

    def test_A_comes_back_where_D_is_the_same(self) -> None:
        A, D = random_skew(9, 0.05), signs(9, 4)
        A_again, D_again = inverse_scaled_cayley(scaled_cayley(A, D))
        assert torch.equal(D, D_again)
        torch.testing.assert_close(A, A_again, rtol=0, atol=1e-13)

    def test_float32(self) -> None:
        W = haar(40, torch.float32)
        A, D = inverse_scaled_cayley(W)
        assert A.dtype == D.dtype == torch.float32
        torch.testing.assert_close(scaled_cayley(A, D), W, rtol=0, atol=1e-5)

    def test_the_repair_that_a_refusal_names_keeps_the_matrix(self) -> None:
        """The Q of a QR factorisation would turn every column of a wrong sign around."""
        W = scaled_cayley(random_skew(9), signs(9, 4)) + 1e-4 * torch.randn(9, 9, dtype=torch.float64)
        with pytest.raises(ValueError, match=r"left, _, right = torch\.linalg\.svd\(W\) and left @ right give"):
            inverse_scaled_cayley(W)
        left, _, right = torch.linalg.svd(W)
        torch.testing.assert_close(scaled_cayley(*inverse_scaled_cayley(left @ right)), W, rtol=0, atol=1e-3)

    @pytest.mark.parametrize(
        ("W", "message"),
        [
            (2 * torch.eye(3), r"not orthogonal: .* = 5\.2"),
            (torch.full((2, 2), float("nan")), "not orthogonal"),
            (torch.zeros(2, 3), r"square matrix, got shape \(2, 3\)"),
            (torch.eye(2, dtype=torch.complex64), "real floating-point matrix, got torch.complex64"),
            (torch.eye(2, dtype=torch.int64), "real floating-point matrix, got torch.int64"),
        ],
    )
    def test_refuses(self, W: Tensor, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            inverse_scaled_cayley(W)

    @pytest.mark.parametrize("bound", [0.5, float("nan")])
    def test_refuses_a_bound(self, bound: float) -> None:
        with pytest.raises(ValueError, match="bound must be at least 1"):
            inverse_scaled_cayley(torch.eye(3), bound)


class TestModReLU:
    def test_values(self) -> None:
        z = torch.tensor([-2.0, -1.0, -0.0, 0.0, 0.5, 1.0, 3.0])
        torch.testing.assert_close(modrelu(z, torch.tensor(-1.0)), torch.tensor([-1.0, 0, 0, 0, 0, 0, 2]))
        torch.testing.assert_close(modrelu(z, torch.tensor(0.5)), torch.tensor([-2.5, -1.5, 0, 0, 1, 1.5, 3.5]))

    def test_denormals_keep_their_sign(self) -> None:
        z = torch.tensor([1e-45, -1e-45])
        torch.testing.assert_close(modrelu(z, torch.tensor(1.0)), torch.tensor([1.0, -1.0]))

    def test_nan_propagates(self) -> None:
        assert modrelu(torch.tensor([float("nan")]), torch.tensor(-1.0)).isnan().all()
        assert modrelu(torch.tensor([complex("nan")]), torch.tensor(-1.0)).isnan().all()

    def test_complex_keeps_the_phase(self) -> None:
        z = torch.tensor([3 + 4j, 0j, 0.3 + 0.4j])
        torch.testing.assert_close(modrelu(z, torch.tensor(-1.0)), torch.tensor([2.4 + 3.2j, 0j, 0j]))

    @pytest.mark.parametrize("b", [-0.5, 0.0, 0.5])
    @pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
    def test_gradient_is_zero_where_the_value_is(self, b: float, dtype: torch.dtype) -> None:
        z = torch.tensor([0.0, -0.0, 0.25 if b < 0 else 0.0], dtype=dtype, requires_grad=True)
        bias = torch.full((3,), b, dtype=torch.float64, requires_grad=True)
        modrelu(z, bias).abs().sum().backward()
        assert z.grad is not None
        assert bias.grad is not None
        assert (z.grad == 0).all()
        assert (bias.grad == 0).all()

    @pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
    def test_gradcheck(self, dtype: torch.dtype) -> None:
        z = torch.randn(20, dtype=dtype, requires_grad=True)
        b = torch.randn(20, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(modrelu, (z, b))


def test_orthogonality_error() -> None:
    assert orthogonality_error(torch.eye(4)).item() == 0
    assert orthogonality_error(2 * torch.eye(4)).item() == pytest.approx(6)
    assert orthogonality_error(torch.eye(3).expand(5, 3, 3)).shape == (5,)
    with pytest.raises(ValueError, match="square"):
        orthogonality_error(torch.zeros(2, 3))


CONTEXTS = {
    "meta": lambda: torch.device("meta"),
    "fake": FakeTensorMode,
    "inference": torch.inference_mode,
    "no_grad": torch.no_grad,
}


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("bandwidth", [None, 2])
def test_no_context_leaves_anything_behind(context: str, bandwidth: int | None) -> None:
    count = len(skew_indices(5, bandwidth)[0])
    with CONTEXTS[context]():
        A = skew(torch.empty(count), 5, bandwidth)
        assert scaled_cayley(torch.zeros_like(A), torch.ones(5)).shape == (5, 5)
    v = torch.randn(count, dtype=torch.float64, requires_grad=True)
    A = skew(v, 5, bandwidth)
    assert type(A) is torch.Tensor
    assert A.device.type == "cpu"
    row, column = skew_indices(5, bandwidth)
    assert torch.equal(A[row, column], v)
    A.square().sum().backward()
    torch.testing.assert_close(v.grad, 4 * v.detach())
