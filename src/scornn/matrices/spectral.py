"""Singular values within a margin of 1."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from scornn.functional import full_precision, orthogonality_error, scaled_cayley, skew
from scornn.matrices import init
from scornn.matrices.base import Matrix
from scornn.matrices.checks import check_number, precise

SIDES = ("left", "right")


class Spectral(Matrix):
    r""":math:`W = P\,\mathrm{diag}(s)\,Q`, :math:`s = 1 + 2\,\mathrm{margin}\,(\mathrm{sigmoid}(q) - \tfrac12)`.

    P and Q are scaled Cayley transforms and start as the paper's rotations; q = 0 at the start, so W starts orthogonal.

    Args:
        n: size of W.
        margin: largest distance of a singular value from 1, in [0, 1]. With 0, W stays orthogonal and q is not made.

    Attributes:
        skew_left, skew_right: free numbers of P and Q.
        sign_left, sign_right: their D, buffers.
        spectrum: the numbers q.
    """

    signs = ("sign_left", "sign_right")

    def __init__(self, n: int, margin: float = 0.01, **where: Any) -> None:
        super().__init__(n)
        within = "margin, the largest distance of a singular value from 1,", margin, "a number in 0..1"
        self.margin = check_number(*within, lambda number: 0 <= number <= 1)
        for side in SIDES:
            self.register_parameter(f"skew_{side}", nn.Parameter(torch.empty(n * (n - 1) // 2, **where)))
            self.register_buffer(f"sign_{side}", torch.empty(n, **where))
        if self.margin:
            self.spectrum = nn.Parameter(torch.empty(n, **where))
        self.reset()

    @torch.no_grad()
    def reset(self) -> None:
        for side in SIDES:
            init.cayley_rotations_(getattr(self, f"skew_{side}"), self.n)
            getattr(self, f"sign_{side}").fill_(1)[self.n - self.n // 2 :] = -1
        if self.margin:
            nn.init.zeros_(self.spectrum)

    def singular_values(self) -> Tensor:
        """s, in no particular order."""
        if not self.margin:
            return torch.ones_like(precise(self.get_buffer("sign_left")))
        return 1 + 2 * self.margin * (torch.sigmoid(precise(self.spectrum)) - 0.5)

    def sides(self) -> Tensor:
        """P and Q, ``(2, n, n)``."""
        v = torch.stack([getattr(self, f"skew_{side}") for side in SIDES])
        D = torch.stack([getattr(self, f"sign_{side}") for side in SIDES])
        return scaled_cayley(skew(precise(v), self.n), precise(D))

    def forward(self) -> Tensor:
        with full_precision(self.like):
            P, Q = self.sides()
            W: Tensor = P * self.singular_values() @ Q
            return W.to(self.like.dtype)

    @torch.no_grad()
    def error(self) -> float | None:
        """The larger of ‖PᵀP − I‖_F and ‖QᵀQ − I‖_F: W itself is orthogonal only up to its margin."""
        return float(orthogonality_error(self.sides()).max())

    def extra_repr(self) -> str:
        return f"margin={self.margin:g}"
