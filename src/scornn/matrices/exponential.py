"""The exponential map, around the identity or around a base that follows W."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from scornn.functional import full_precision, skew
from scornn.matrices import init
from scornn.matrices.base import Matrix
from scornn.matrices.checks import check_choice, check_integer, precise
from scornn.ops.exponential import skew_exponential

STARTS = {"henaff": init.rotation_angles_, "cayley": init.cayley_rotations_}


class Exponential(Matrix):
    r""":math:`W = \exp(A)`, :math:`A^T = -A`: every rotation, but no W with determinant −1.

    Args:
        n: size of W.
        start: of A, 2 × 2 blocks: ``henaff``, angles from U(−π, π); or ``cayley``, the numbers of the scoRNN paper.

    Attributes:
        skew: the n(n−1)/2 free numbers of A.
        differentiable_twice: take :func:`torch.linalg.matrix_exp`, which is slower and has a second derivative.
    """

    orthogonal = True
    differentiable_twice: bool = False

    def __init__(self, n: int, start: str = "henaff", **where: Any) -> None:
        super().__init__(n)
        self.start = check_choice("start", start, tuple(STARTS))
        self.skew = nn.Parameter(torch.empty(n * (n - 1) // 2, **where))
        self.reset()

    def reset(self) -> None:
        STARTS[self.start](self.skew, self.n)

    def forward(self) -> Tensor:
        exponential = torch.linalg.matrix_exp if self.differentiable_twice else skew_exponential
        return exponential(skew(precise(self.skew), self.n)).to(self.skew.dtype)

    def extra_repr(self) -> str:
        return f"start={self.start}"


class MovingExponential(Exponential):
    r"""Dynamic trivialisation: :math:`W = B\exp(A)`, and every K steps of the optimizer B ← W, A ← 0.

    Args:
        n: size of W.
        start: of B, as of :class:`Exponential`; A starts at zero.
        rebase_every: K, at least 1; None to move the base only by :meth:`rebase`.

    Attributes:
        base: B, a buffer.
        steps: steps since the base last moved, a buffer. :meth:`after_step` counts them.
    """

    averages = False  # A means something else after each move of the base
    base: Tensor
    steps: Tensor

    def __init__(self, n: int, start: str = "henaff", rebase_every: int | None = 100, **where: Any) -> None:
        Matrix.__init__(self, n)
        self.start = check_choice("start", start, tuple(STARTS))
        self.rebase_every = rebase_every
        if rebase_every is not None:
            check_integer("rebase_every, where it is not None,", rebase_every, 1)
        self.skew = nn.Parameter(torch.empty(n * (n - 1) // 2, **where))
        self.register_buffer("base", torch.empty(n, n, **where))
        self.register_buffer("steps", torch.zeros((), dtype=torch.long, device=where.get("device")))
        self.reset()

    @torch.no_grad()
    def reset(self) -> None:
        super().reset()
        self.base.copy_(skew_exponential(skew(self.skew.double(), self.n)))
        self.skew.zero_()
        self.steps.zero_()

    def forward(self) -> Tensor:
        with full_precision(self.skew):
            return (precise(self.base) @ precise(super().forward())).to(self.skew.dtype)

    @torch.no_grad()
    def rebase(self) -> None:
        """B ← W, made orthogonal to rounding by one Newton–Schulz step in float64; A ← 0."""
        B = self().double()
        self.base.copy_(1.5 * B - 0.5 * B @ (B.mT @ B))
        self.skew.zero_()

    @torch.no_grad()
    def after_step(self) -> None:
        self.steps += 1
        if self.rebase_every is not None and int(self.steps) >= self.rebase_every:
            self.rebase()
            self.steps.zero_()

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, rebase_every={self.rebase_every}"
