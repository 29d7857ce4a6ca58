"""The kernel's Cayley transform against the plain one: outputs, gradients, and an A that is too large."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from scornn.functional import orthogonality_error, scaled_cayley, skew
from scornn.ops import library
from scornn.ops.cayley import cayley

pytestmark = pytest.mark.skipif(isinstance(library.load(), str), reason="no kernel")


def problem(n: int, bandwidth: int, scale: float = 0.7) -> tuple[Tensor, Tensor]:
    torch.manual_seed(n)
    D = torch.ones(n, dtype=torch.float64)
    D[n // 2 :] = -1
    return scale * torch.randn(n * bandwidth - bandwidth * (bandwidth + 1) // 2, dtype=torch.float64), D


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("n", [1, 2, 3, 8, 16, 17, 31, 32, 33, 64, 65, 170, 257, 300])
def test_w_and_its_gradient(n: int, dtype: torch.dtype) -> None:
    for bandwidth in {n - 1, min(n - 1, 3), n // 2 if n > 1 else 0, 0}:
        v, D = problem(n, bandwidth)
        G = torch.randn(n, n, dtype=torch.float64)
        exact = v.clone().requires_grad_()
        expected = scaled_cayley(skew(exact, n, bandwidth), D)
        expected.backward(G)
        ours = v.to(dtype).requires_grad_()
        W = cayley(ours, D.to(dtype), bandwidth)
        assert "cayley" in str(W.grad_fn)
        W.backward(G.to(dtype).t().contiguous().t())
        eps = torch.finfo(dtype).eps
        assert exact.grad is not None
        assert ours.grad is not None
        torch.testing.assert_close(W.double(), expected, rtol=0, atol=20 * n**0.5 * eps)
        torch.testing.assert_close(ours.grad.double(), exact.grad, rtol=0, atol=50 * n * eps)


@pytest.mark.parametrize("scale", [1.0, 1e1, 1e2, 1e4, 1e6])
@pytest.mark.parametrize("n", [33, 170, 171])
def test_a_large_a_is_as_accurate_as_lapack_makes_it(n: int, scale: float) -> None:
    """An odd n with a huge A is the bad case of both: one eigenvalue of I + A is 1, the others are of A's size."""
    v, D = problem(n, n - 1, scale)
    exact = scaled_cayley(skew(v, n), D)
    lapack = scaled_cayley(skew(v.float(), n), D.float())
    W = cayley(v.float(), D.float())
    rounding = 16 * n**0.5 * torch.finfo(torch.float32).eps
    assert float((W - exact).abs().max()) <= rounding + 4 * float((lapack - exact).abs().max())
    assert float(orthogonality_error(W)) <= rounding * n**0.5 + 4 * float(orthogonality_error(lapack))


def test_the_bits_do_not_depend_on_threads() -> None:
    v, D = problem(200, 199)
    before = torch.get_num_threads()
    try:
        made = []
        for threads in (1, 2):
            torch.set_num_threads(threads)
            made.append(cayley(v, D))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*made)


def test_what_is_not_finite_is_refused() -> None:
    v, D = problem(8, 7)
    v[3] = torch.nan
    with pytest.raises(ValueError, match="NaN or infinity"):
        cayley(v, D)


def test_second_derivatives() -> None:
    v, D = problem(5, 4)
    assert torch.autograd.gradgradcheck(lambda v: cayley(v, D), v.requires_grad_())


def test_a_wrong_number_of_free_numbers_says_what_was_expected() -> None:
    with pytest.raises(ValueError, match="expected 28 numbers"):
        cayley(torch.zeros(27), torch.ones(8))
