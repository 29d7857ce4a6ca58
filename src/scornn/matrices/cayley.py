"""The scaled Cayley transform: real, with fixed signs, and complex, with phases that are trained."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from scornn.functional import inverse_scaled_cayley, rounding, scaled_cayley, skew, skew_indices
from scornn.matrices import init
from scornn.matrices.base import Matrix
from scornn.matrices.checks import check_integer, check_rho, is_sharded, precise
from scornn.matrices.complex import ComplexMatrix, unit
from scornn.ops.cayley import cayley
from scornn.torch_internals import has_values


class ScaledCayley(Matrix):
    r"""The paper's :math:`W = (I + A)^{-1}(I - A)D`: A skew-symmetric, D a fixed diagonal of ±1.

    Args:
        n: size of W.
        rho: number of −1 in D, 0..n. Default n // 2. The determinant of W is (−1)^rho.
        bandwidth: ℓ of a banded A, which leaves nℓ − ℓ(ℓ+1)/2 free numbers. Default None, a full A.

    Attributes:
        skew: the free numbers of A.
        sign: D, a buffer.

    Example:
        >>> linear = torch.nn.Linear(8, 8)
        >>> torch.nn.utils.parametrize.register_parametrization(linear, "weight", ScaledCayley(8, rho=4))
        ParametrizedLinear(...)
        >>> bool(scornn.functional.orthogonality_error(linear.weight) < 1e-5)
        True
    """

    orthogonal, signs = True, ("sign",)
    sign: Tensor

    def __init__(self, n: int, rho: int | None = None, bandwidth: int | None = None, **where: Any) -> None:
        super().__init__(n)
        self._rho_at_start = n // 2 if rho is None else check_rho(rho, n)
        self.bandwidth = None if bandwidth is None else check_integer("bandwidth", bandwidth, 0, n - 1)
        band = n - 1 if bandwidth is None else bandwidth
        self.skew = nn.Parameter(torch.empty(n * band - band * (band + 1) // 2, **where))
        self.register_buffer("sign", torch.empty(n, **where))
        self.reset()

    @torch.no_grad()
    def reset(self) -> None:
        """Section 4.2: rotations in A, and the last rho signs −1."""
        init.cayley_rotations_(self.skew, self.n, self.bandwidth)
        self.sign.fill_(1)[self.n - self._rho_at_start :] = -1

    def forward(self) -> Tensor:
        v = precise(self.skew)
        return cayley(v, self.sign.to(v.dtype), self.bandwidth).to(self.skew.dtype)

    @torch.no_grad()
    def assign(self, W: Tensor) -> None:
        """Find A and D by the constructive Theorem 3.1."""
        n = self.n
        if "skew" not in self._parameters or is_sharded(self.skew):
            raise RuntimeError("skew is parametrized, pruned or sharded, and would not keep it: assign before")
        W = torch.as_tensor(W, device="cpu").detach()
        if tuple(W.shape) != (n, n):
            raise ValueError(f"expected a matrix of shape {(n, n)}, got {tuple(W.shape)}")
        A, D = inverse_scaled_cayley(W)
        row, column = skew_indices(n, self.bandwidth, A.device)
        outside = A.clone()
        outside[row, column] = outside[column, row] = 0
        if not outside.numel() or outside.abs().max() <= rounding(n, W.dtype):
            self.skew.copy_(A[row, column])
            self.sign.copy_(D)
        elif not self._take_with_present_signs(W):
            raise ValueError(
                "for the signs that were found, and for those that are there, this matrix needs entries of A outside "
                f"the bandwidth {self.bandwidth}; build it with bandwidth=None"
            )

    def _take_with_present_signs(self, W: Tensor) -> bool:
        """Whether an A in the band makes W with the D that is there. If so, it is taken."""
        if not has_values(self.sign):
            return False
        n, D = self.n, self.sign.to("cpu", torch.float64)
        I = torch.eye(n, dtype=torch.float64, device="cpu")
        A = torch.linalg.solve_ex(I + W.double() * D, I - W.double() * D).result
        row, column = skew_indices(n, self.bandwidth, A.device)
        v = ((A - A.mT) / 2)[row, column].to(self.skew.dtype)
        if not torch.isfinite(v).all():
            return False
        made = scaled_cayley(skew(v.double(), n, self.bandwidth), D)
        fits = bool((made - W).abs().max() <= rounding(n, W.dtype))
        if fits:
            self.skew.copy_(v)
        return fits

    @property
    def rho(self) -> int:
        """The number of −1 in D; as asked for where D has no values."""
        return int((self.sign < 0).sum()) if has_values(self.sign) else self._rho_at_start

    def extra_repr(self) -> str:
        return f"rho={self.rho}" + ("" if self.bandwidth is None else f", bandwidth={self.bandwidth}")


def symmetric(v: Tensor, n: int) -> Tensor:
    """Arrange n(n+1)/2 numbers, row by row from the diagonal on, as a symmetric matrix.

    Example:
        >>> symmetric(torch.tensor([1.0, 2.0, 3.0]), 2)
        tensor([[1., 2.],
                [2., 3.]])
    """
    row, column = torch.triu_indices(n, n, device=v.device)
    upper = v.new_zeros(n * n).index_copy(0, row * n + column, v).view(n, n)
    return upper + torch.triu(upper, 1).mT


class UnitaryCayley(ComplexMatrix):
    r"""The complex case, :math:`A^* = -A` and :math:`D = \mathrm{diag}(e^{iθ})`, both trained: the W of scuRNN.

    Attributes:
        skew: the n(n−1)/2 real parts above the diagonal of A.
        symmetric: the n(n+1)/2 imaginary parts on and above it.
        phase: θ.
    """

    orthogonal = True

    def __init__(self, n: int, **where: Any) -> None:
        super().__init__(n)
        self.skew = nn.Parameter(torch.empty(n * (n - 1) // 2, **where))
        self.symmetric = nn.Parameter(torch.empty(n * (n + 1) // 2, **where))
        self.phase = nn.Parameter(torch.empty(n, **where))
        self.reset()

    def reset(self) -> None:
        """The paper's real rotation blocks in A, θ from U(0, 2π)."""
        init.cayley_rotations_(self.skew, self.n)
        nn.init.zeros_(self.symmetric)
        nn.init.uniform_(self.phase, 0, 2 * math.pi)

    def complex_form(self) -> Tensor:
        A = torch.complex(skew(precise(self.skew), self.n), symmetric(precise(self.symmetric), self.n))
        return scaled_cayley(A, unit(self.phase))
