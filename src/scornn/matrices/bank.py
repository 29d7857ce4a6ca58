"""A bank of rotations: what an orthogonal W is in the basis of its real Schur form."""

from __future__ import annotations

import math
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from scornn.functional import full_precision
from scornn.matrices.base import Head, Matrix, read
from scornn.matrices.checks import check_choice, check_rho, precise
from scornn.ops import bank
from scornn.ops.bank_last import last_state
from scornn.ops.bank_scan import every_state

STARTS = ("uniform", "spaced", "cayley")


class Bank(Matrix):
    r""":math:`R = \mathrm{diag}(R(θ_1), …, R(θ_p), ±1, …)`, the W of the linear memory: n/2 angles.

    An odd n leaves one unit with a sign, an odd rho in an even n two units, +1 and −1. Without an activation it runs
    without a loop over time.

    Args:
        n: size of R.
        rho: number of −1 in the D of the scoRNN that this is, 0..n: the determinant is (−1)^rho. Default the even
            number at or under n/2.
        start: ``uniform``, angles from U[0, π]; ``spaced``, the same without chance, (j + ½)π/p; ``cayley``, the
            paper's section 4.2: t_j from U[0, π/2], and t_j + π for the last rho // 2 planes.

    Attributes:
        angle: θ.
        sign: the signs of the units outside the planes, a buffer.
    """

    orthogonal, signs = True, ("sign",)
    angle: Tensor
    sign: Tensor

    def __init__(self, n: int, rho: int | None = None, start: str = "uniform", **where: Any) -> None:
        super().__init__(n)
        self.start = check_choice("start", start, STARTS)
        self.rho = n // 4 * 2 if rho is None else check_rho(rho, n)
        planes = (n - (n % 2 or 2 * (self.rho % 2))) // 2
        self.angle = nn.Parameter(torch.empty(planes, **where))
        self.register_buffer("sign", torch.empty(n - 2 * planes, **where))
        self.reset()

    @torch.no_grad()
    def reset(self) -> None:
        angle, sign, rho = self.angle, self.sign, self.rho
        nn.init.uniform_(angle, 0, math.pi if self.start == "uniform" else math.pi / 2)
        if self.start == "spaced":
            angle.copy_((torch.arange(len(angle), device=angle.device) + 0.5) * (math.pi / max(len(angle), 1)))
        if self.start == "cayley":
            angle[len(angle) - rho // 2 :] += math.pi
        sign.fill_(1)
        sign[len(sign) - rho % 2 :] = -1

    def parts(self) -> bank.Bank:
        """The angles and signs, as :mod:`scornn.ops.bank` takes them."""
        return bank.Bank(self.angle, self.sign)

    def forward(self) -> Tensor:
        return bank.Bank(precise(self.angle), precise(self.sign)).matrix().to(self.angle.dtype)

    def recurrence(
        self, x: Tensor, h0: Tensor, U: Tensor, b: Tensor | None, head: Head | None = None, **settings: Any
    ) -> tuple[Tensor, Tensor]:
        if settings["activation"] != "identity":
            return super().recurrence(x, h0, U, b, head, **settings)
        order = (settings[key] for key in ("batch_sizes", "reverse", "backend"))
        return read(every_state(x, h0, self.parts(), U, b, *order), head)

    def last_state(
        self, x: Tensor, h0: Tensor, U: Tensor, b: Tensor | None, batch_sizes: Tensor | None, reverse: bool
    ) -> Tensor:
        """The last state of each sequence by one product, without the others."""
        with full_precision(x):
            return last_state(x, h0, self.parts(), U, b, batch_sizes, reverse)

    @torch.no_grad()
    def frozen(self) -> Matrix:
        """The same angles as constants: its W would be rounded."""
        frozen = deepcopy(self)
        del frozen.angle
        frozen.register_buffer("angle", self.angle.detach().clone())
        return frozen
