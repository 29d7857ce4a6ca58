"""W is itself the parameter, free to go anywhere."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from scornn.functional import full_precision, skew
from scornn.matrices import init
from scornn.matrices.base import Matrix
from scornn.matrices.checks import check_choice, check_number, precise


def deviation(W: Tensor) -> Tensor:
    """‖WᵀW − I‖²_F, differentiable, in float32 or better."""
    with full_precision(W):
        W = precise(W)
        return (W.mT @ W - torch.eye(W.shape[0], dtype=W.dtype, device=W.device)).square().sum()


class Free(Matrix):
    r"""Any W.

    Args:
        n: size of W.
        start: ``glorot``, uniform; ``identity``; or ``rotation``, :math:`\exp(A)` with angles from U(−π, π) in 2 × 2
            blocks of A.
        soft_orthogonality: λ of the penalty :math:`λ\|W^TW - I\|_F^2` that the training loss adds.

    Attributes:
        weight: W.
    """

    def __init__(self, n: int, start: str = "glorot", soft_orthogonality: float = 0.0, **where: Any) -> None:
        super().__init__(n)
        self.start = check_choice("start", start, ("glorot", "identity", "rotation"))
        allowed = "a finite number of at least 0"
        self.soft_orthogonality = check_number(
            "soft_orthogonality", soft_orthogonality, allowed, lambda number: number >= 0
        )
        self.weight = nn.Parameter(torch.empty(n, n, **where))
        self.reset()

    @torch.no_grad()
    def reset(self) -> None:
        if self.start == "glorot":
            nn.init.xavier_uniform_(self.weight)
        elif self.start == "identity":
            self.weight.zero_().fill_diagonal_(1)
        else:
            t = torch.empty(self.n * (self.n - 1) // 2, dtype=torch.float64, device="cpu")
            self.weight.copy_(torch.linalg.matrix_exp(skew(init.rotation_angles_(t, self.n), self.n)))

    def forward(self) -> Tensor:
        return self.weight

    @torch.no_grad()
    def assign(self, W: Tensor) -> None:
        self.weight.copy_(W)

    def penalty(self) -> Tensor | None:
        return self.soft_orthogonality * deviation(self.W()) if self.soft_orthogonality else None

    def extra_repr(self) -> str:
        return ""
