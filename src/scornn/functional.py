"""The mathematics of the scaled Cayley transform, in the paper's letters.

``A`` is skew-symmetric (skew-Hermitian in the complex case), ``D`` is the diagonal of ±1 (of unit-modulus numbers in
the complex case) given as a vector, and ``W = (I + A)⁻¹(I − A) D``. Every function takes and gives tensors, keeps
leading batch dimensions, and is differentiable where that has a meaning.

The helpers that are not in ``__all__`` choose the precision of what is made.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from scornn.torch_internals import assert_later, has_values, under_functorch

__all__ = ["inverse_scaled_cayley", "modrelu", "orthogonality_error", "scaled_cayley", "skew", "skew_indices"]


def skew(v: Tensor, n: int, bandwidth: int | None = None) -> Tensor:
    r"""Arrange free numbers as a skew-symmetric matrix.

    Row by row above the diagonal: :math:`A_{01}, A_{02}, \dots, A_{12}, \dots` With a bandwidth ℓ only the
    entries with :math:`|i-j| \le ℓ` are free. The result satisfies ``A == -A.mT`` exactly.

    Args:
        v: ``(..., count)`` with count = n(n−1)/2, or nℓ − ℓ(ℓ+1)/2 for a band.
        n: size of the matrix.
        bandwidth: ℓ, from 0 to n−1; None for a full matrix.

    Returns:
        ``(..., n, n)``.

    Example:
        >>> skew(torch.tensor([1.0, 2.0, 3.0]), 3)
        tensor([[ 0.,  1.,  2.],
                [-1.,  0.,  3.],
                [-2., -3.,  0.]])
    """
    row, column = skew_indices(n, bandwidth, device=v.device)
    if v.dim() == 0 or v.shape[-1] != row.numel():
        raise ValueError(
            f"skew: expected {row.numel()} numbers in the last dimension for n={n}"
            + (f", bandwidth={bandwidth}" if bandwidth is not None else "")
            + f"; got shape {tuple(v.shape)}"
        )
    upper: Tensor = v.new_zeros(*v.shape[:-1], n * n).index_copy(-1, row * n + column, v).unflatten(-1, (n, n))
    return upper - upper.mT


def skew_indices(n: int, bandwidth: int | None = None, device: torch.device | None = None) -> tuple[Tensor, Tensor]:
    """Rows and columns of the free entries of an n × n skew matrix, in the order of :func:`skew`."""
    if bandwidth is None or bandwidth >= n - 1:
        row, column = torch.triu_indices(n, n, 1, device=device)
        return row, column
    if bandwidth < 0:
        raise ValueError(f"bandwidth must be at least 0, got {bandwidth}")
    count = n * bandwidth - bandwidth * (bandwidth + 1) // 2
    line = torch.arange(n, device=device)
    in_row = (n - 1 - line).clamp(max=bandwidth)
    row = line.repeat_interleave(in_row, output_size=count)
    first = in_row.cumsum(0) - in_row
    column = torch.arange(count, device=device) - first[row] + row + 1
    return row, column


def scaled_cayley(A: Tensor, D: Tensor) -> Tensor:
    r"""The scaled Cayley transform :math:`W = (I + A)^{-1}(I - A)D`.

    With :math:`R = (I + A)^{-1}` this is :math:`W = (2R - I)D`: one inverse. Its gradient with respect to an
    unconstrained ``A`` is :math:`-2R^T \frac{\partial L}{\partial W} D R^T`, two matrix products and no solve;
    through :func:`skew` that becomes Theorem 3.2's :math:`V^T - V` (``docs/gradient.md``). ``I + A`` is never
    singular, because the eigenvalues of a skew matrix are imaginary.

    Args:
        A: ``(..., n, n)``, skew-symmetric, or skew-Hermitian for a unitary W.
        D: ``(..., n)``, entries ±1, or of modulus 1 for a unitary W.

    Returns:
        ``(..., n, n)``, orthogonal (unitary) to rounding. Half-precision input is computed in float32 and
        the result is rounded back.

    Example:
        >>> A = skew(torch.tensor([1.0]), 2)
        >>> scaled_cayley(A, torch.tensor([1.0, 1.0]))
        tensor([[ 0., -1.],
                [ 1.,  0.]])
    """
    if A.dim() < 2 or A.shape[-1] != A.shape[-2]:
        raise ValueError(f"scaled_cayley: expected a square matrix A, got shape {tuple(A.shape)}")
    if D.dim() == 0 or D.shape[-1] != A.shape[-1]:
        raise ValueError(
            f"scaled_cayley: expected D with {A.shape[-1]} diagonal entries as a vector, got shape {tuple(D.shape)}"
        )
    dtype = torch.promote_types(A.dtype, D.dtype) if D.is_complex() else A.dtype
    work = torch.float32 if dtype in (torch.bfloat16, torch.float16) else dtype
    A, D = A.to(work), D.to(work)
    _require_finite(A)
    I = torch.eye(A.shape[-1], dtype=work, device=A.device)
    with full_precision(A):
        R = _inverse(I + A)
        return ((2 * R - I) * D.unsqueeze(-2)).to(dtype)


def under_autocast(x: Tensor) -> bool:
    return x.device.type != "meta" and torch.is_autocast_enabled(x.device.type)


def full_precision(x: Tensor) -> AbstractContextManager[Any]:
    """No autocast: a recurrent matrix made in half precision is not orthogonal."""
    return torch.autocast(x.device.type, enabled=False) if under_autocast(x) else nullcontext()


def _inverse(M: Tensor) -> Tensor:
    """Inverses of matrices, on the CPU one after the other.

    The batched factorisation of torch 2.13 with MKL and several threads gives wrong pivots from n = 170 on: results
    are wrong without an error. One matrix at a time is right.
    """
    if M.numel() == 0 or M.device.type != "cpu":
        return _inverse_of_one(M)
    hidden_batch = under_functorch() and not torch.compiler.is_compiling()
    inverse = _OneByOne.apply if hidden_batch else _inverse_of_one
    if M.dim() == 2:
        return inverse(M)
    return torch.stack([inverse(one) for one in M.flatten(0, -3).unbind(0)]).view_as(M)


def _inverse_of_one(M: Tensor) -> Tensor:
    return torch.linalg.inv_ex(M).inverse


class _OneByOne(torch.autograd.Function):
    """The inverse of a matrix that may stand for a batch of them, under vmap."""

    @staticmethod
    def forward(M: Tensor) -> Tensor:
        return _inverse_of_one(M)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(output)
        ctx.save_for_forward(output)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (R,) = ctx.saved_tensors
        return -R.mH @ gradient @ R.mH

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor) -> Tensor:
        (R,) = ctx.saved_tensors
        return -R @ tangent @ R

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int], M: Tensor) -> tuple[Tensor, int]:
        return torch.stack([_OneByOne.apply(one) for one in M.unbind(in_dims[0])]), 0  # type: ignore[no-untyped-call]


def _require_finite(A: Tensor) -> None:
    if A.numel() == 0:
        return
    message = "scaled_cayley: A holds NaN or infinity; the skew-symmetric parameters have diverged"
    finite = torch.isfinite(torch.linalg.vector_norm(A.detach(), torch.inf))
    if torch.compiler.is_compiling():
        assert_later(finite, message)
    elif has_values(finite) and not finite:
        raise ValueError(message)


@torch.no_grad()
def inverse_scaled_cayley(W: Tensor, bound: float = 1.0) -> tuple[Tensor, Tensor]:
    r"""Theorem 3.1, made constructive: ``A`` and ``D`` with ``scaled_cayley(A, D) == W`` and :math:`|a_{ij}| \le 1`.

    Works for every real orthogonal matrix, also with eigenvalues −1, where the plain Cayley transform fails.
    First D is chosen by an elimination of :math:`W + D` in which each sign makes its pivot at least 1, so that
    :math:`I + WD` is well away from singular; then pairs of signs are flipped while some :math:`|a_{ij}|` exceeds the
    bound. A flip of :math:`(i, j)` multiplies :math:`|\det(I + WD)| \le 2^n` by :math:`a_{ij}^2 > 1`, so the
    flips come to an end (``docs/constructive.md``).

    Args:
        W: ``(n, n)``, real, orthogonal to rounding.
        bound: largest :math:`|a_{ij}|` allowed, at least 1 (permutations need exactly 1).

    Returns:
        ``A (n, n)`` and ``D (n,)``, of W's dtype.

    Example:
        >>> A, D = inverse_scaled_cayley(-torch.eye(3))
        >>> int(A.count_nonzero()), D
        (0, tensor([-1., -1., -1.]))
    """
    require_orthogonal(W, "inverse_scaled_cayley")
    if not bound >= 1:
        raise ValueError(f"inverse_scaled_cayley: bound must be at least 1, got {bound}: some matrices need |a_ij| = 1")
    work = W.double()
    D = _signs_of_large_pivots(work)
    A = _cayley(work * D)
    slack = bound * (1 + 64 * W.shape[0] * torch.finfo(torch.float64).eps)
    while A.numel() and (largest := A.abs().max()) > slack:
        i, j = divmod(int((A.abs() == largest).flatten().int().argmax()), A.shape[0])
        D[[i, j]] *= -1
        A = _flip_pair(A, i, j)
    A = _cayley(work * D)  # once more from W itself: the rank-2 updates have gathered rounding errors
    return A.to(W.dtype), D.to(W.dtype)


def require_orthogonal(W: Tensor, what: str) -> None:
    """Raise where W is not orthogonal to rounding; ``what`` asks for it."""
    if W.dim() != 2 or W.shape[0] != W.shape[1]:
        raise ValueError(f"{what}: expected a square matrix, got shape {tuple(W.shape)}")
    if not W.is_floating_point():
        raise ValueError(f"{what}: expected a real floating-point matrix, got {W.dtype}")
    n = W.shape[0]
    error = float(orthogonality_error(W.double()))
    tolerance = rounding(n, W.dtype)
    if not error <= tolerance:
        raise ValueError(
            f"{what}: W is not orthogonal: ‖WᵀW − I‖_F = {error:.3g}, expected at most {tolerance:.3g} "
            f"for n={n} in {W.dtype}; left, _, right = torch.linalg.svd(W) and left @ right give the nearest that is"
        )


def rounding(n: int, dtype: torch.dtype) -> float:
    """How far rounding takes an n × n matrix of such numbers from orthogonal: half precision is rounded to, once."""
    made = 100 * max(n, 1) * torch.finfo(torch.promote_types(dtype, torch.float32)).eps
    return max(made, 10 * n**0.5 * torch.finfo(dtype).eps)


def _signs_of_large_pivots(W: Tensor) -> Tensor:
    """D such that eliminating W + D without row exchanges meets only pivots of modulus ≥ 1."""
    n = W.shape[0]
    S = W.clone()
    D = W.new_empty(n)
    for k in range(n):
        D[k] = 1.0 if S[k, k] >= 0 else -1.0
        S[k, k] += D[k]
        S[k + 1 :, k + 1 :] -= torch.outer(S[k + 1 :, k] / S[k, k], S[k, k + 1 :])
    return D


def _cayley(Z: Tensor) -> Tensor:
    """A = (I + Z)⁻¹(I − Z), made exactly skew."""
    I = torch.eye(Z.shape[0], dtype=Z.dtype, device=Z.device)
    A: Tensor = torch.linalg.solve(I + Z, I - Z)
    return (A - A.mT) / 2


def _flip_pair(A: Tensor, i: int, j: int) -> Tensor:
    """The A that gives the same W once d_i and d_j have changed sign: a principal pivot on {i, j}."""
    S = [i, j]
    rest = [k for k in range(A.shape[0]) if k not in S]
    B_inverse = A.new_tensor([[0.0, -1.0], [1.0, 0.0]]) / A[i, j]
    C = A[S][:, rest]
    P = B_inverse @ C
    flipped = torch.empty_like(A)
    s, r = (torch.tensor(places, dtype=torch.long, device=A.device) for places in (S, rest))
    flipped[s[:, None], s] = B_inverse
    flipped[s[:, None], r] = P
    flipped[r[:, None], s] = -P.mT
    flipped[r[:, None], r] = A[r[:, None], r] + C.mT @ P
    return (flipped - flipped.mT) / 2


def modrelu(z: Tensor, b: Tensor) -> Tensor:
    r"""modReLU: :math:`\frac{z}{|z|}\,\mathrm{relu}(|z| + b)`, and 0 at :math:`z = 0`.

    For real z it is :math:`\mathrm{sign}(z)\,\mathrm{relu}(|z| + b)`. The gradient is 0 wherever the value is,
    also at z = 0 with b > 0, where the function jumps: pixel sequences begin with exact zeros.

    Args:
        z: real or complex, ``(..., n)``.
        b: real, broadcastable to z.

    Example:
        >>> modrelu(torch.tensor([-2.0, 0.0, 0.5]), torch.tensor(-1.0))
        tensor([-1., 0., 0.])
    """
    if z.is_complex():
        zero = z == 0
        modulus = torch.where(zero, 1, z).abs()
        return torch.where(zero, 0, z / modulus * torch.relu(modulus + b))
    return torch.where(z == 0, 0, z.sign() * torch.relu(z.abs() + b))


def orthogonality_error(W: Tensor) -> Tensor:
    r"""The paper's measure :math:`\|W^*W - I\|_F`, for each matrix of a batch.

    Example:
        >>> orthogonality_error(torch.eye(3))
        tensor(0.)
    """
    if W.dim() < 2 or W.shape[-1] != W.shape[-2]:
        raise ValueError(f"orthogonality_error: expected a square matrix, got shape {tuple(W.shape)}")
    I = torch.eye(W.shape[-1], dtype=W.dtype, device=W.device)
    with full_precision(W):
        return torch.linalg.matrix_norm(W.mH @ W - I)
