"""A product of Householder reflections."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from scornn.functional import full_precision
from scornn.matrices.base import Matrix
from scornn.matrices.checks import check_integer, precise


def householder_product(U: Tensor) -> Tensor:
    r"""The product :math:`H(u_1) \cdots H(u_k)` of reflections :math:`H(u) = I - 2uu^T`, in its WY form.

    :math:`W = I - U T^{-1} U^T` with :math:`T = \mathrm{striu}(U^T U) + \tfrac12 I`: one triangular solve.

    Args:
        U: ``(n, k)``, columns of length 1.

    Example:
        >>> householder_product(torch.tensor([[0.0], [1.0]]))
        tensor([[ 1.,  0.],
                [ 0., -1.]])
    """
    I = torch.eye(U.shape[0], dtype=U.dtype, device=U.device)
    T = torch.triu(U.mT @ U, 1) + torch.eye(U.shape[1], dtype=U.dtype, device=U.device) / 2
    return I - U @ torch.linalg.solve_triangular(T, U.mT, upper=True)


class Householder(Matrix):
    r""":math:`W = H(u_1) H(u_2) \cdots H(u_k)`, :math:`H(u) = I - 2uu^T / u^Tu`.

    u_j is zero above row j. For k = n the last reflection, which has one number, is replaced by that number's sign on
    the last coordinate, so that both determinants can be had; the sign gets no gradient.

    Args:
        n: size of W.
        reflections: k, 1..n. Default n // 8, and at least 1.

    Attributes:
        reflection: the nk − k(k−1)/2 numbers on and below the diagonal of (u_1 … u_k), row by row, from N(0, 0.01).
    """

    orthogonal = True

    def __init__(self, n: int, reflections: int | None = None, **where: Any) -> None:
        super().__init__(n)
        k = max(n // 8, 1) if reflections is None else reflections
        self.reflections = check_integer("reflections", k, 1, n)
        self.reflection = nn.Parameter(torch.empty(n * k - k * (k - 1) // 2, **where))
        self.reset()

    def reset(self) -> None:
        nn.init.normal_(self.reflection, std=0.01)

    def vectors(self) -> Tensor:
        """(u_1 … u_k) ``(n, k)``, columns of length 1."""
        n, k, v = self.n, self.reflections, precise(self.reflection)
        row, column = torch.tril_indices(n, k, device=v.device)
        U = v.new_zeros(n * k).index_copy(0, row * k + column, v).view(n, k)
        return U / torch.linalg.vector_norm(U, dim=0)

    def forward(self) -> Tensor:
        with full_precision(self.reflection):
            U = self.vectors()
            if self.reflections < self.n:
                return householder_product(U).to(self.reflection.dtype)
            W = householder_product(U[:, :-1])
            sign = torch.cat([W.new_ones(self.n - 1), U[-1:, -1].detach()])
            return (W * sign).to(self.reflection.dtype)

    def extra_repr(self) -> str:
        return f"reflections={self.reflections}"
