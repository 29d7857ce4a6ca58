"""A bank of rotations: what an orthogonal matrix is in the basis of its real Schur form.

    R = diag(R(θ_1), …, R(θ_p), ±1, …),        R(θ) = [[cos θ, −sin θ], [sin θ, cos θ]].

Units 2j and 2j + 1 are plane j; the units after the planes have a sign. A plane is a complex number a + ib, and R turns
it by e^{iθ}; a unit with a sign is one whose imaginary part is zero, with the angle 0 or π. So Rᵏ needs no product: it
is e^{ikθ}, from phases kθ in float64 (``docs/linear.md``).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from scornn.ops.layout import complex_pairs
from scornn.ops.rung import Shapes


class Bank(NamedTuple):
    """θ ``(p,)`` and the signs ``(n − 2p,)``, whose dtype is the states'; θ has it too, or is float64."""

    angle: Tensor
    sign: Tensor

    @property
    def cell(self) -> str:
        return "bank"

    def shapes(self, n: int, x: Tensor) -> Shapes:
        angle = self.angle.to(x.dtype) if self.angle.dtype == torch.float64 else self.angle  # it may be more exact
        return {"angle": (angle, (self.planes,)), "sign": (self.sign, (n - 2 * self.planes,))}

    @property
    def planes(self) -> int:
        return self.angle.shape[0]

    @property
    def units(self) -> int:
        return 2 * self.planes + self.sign.shape[0]

    def phases(self) -> Tensor:
        """The angle of every complex unit, float64."""
        angle = self.angle.double()
        return torch.cat([angle, (1 - self.sign.double()) * (math.pi / 2)]) if self.sign.shape[0] else angle

    def powers(self, first: int, count: int) -> Tensor:
        """e^{ikθ} for k = first, …, first + count − 1, ``(count, units)``, of the states' precision."""
        jumps, steps = self._factors(first, count, 1)
        return (jumps.unsqueeze(1) * steps).flatten(0, 1)[:count]

    def columns(self, U: Tensor, count: int) -> Tensor:
        """The columns of [R^{count−1}U … RU U], one after the other: ``(count · m, n)``."""
        jumps, steps = self._factors(count - 1, count, -1)
        jumps = jumps.unsqueeze(1) * self.complex(U.mT)
        turned = (jumps.unsqueeze(1) * steps.unsqueeze(1)).flatten(0, 1)
        return self.real(turned if len(turned) == count else turned[:count]).flatten(0, 1)  # a slice costs a backward

    def _factors(self, first: int, count: int, stride: int) -> tuple[Tensor, Tensor]:
        """√count coarse and √count fine powers whose products are e^{ikθ} for k = first, first + stride, ….

        Each is rounded once from float64. The products may be a few more than ``count``. A compiler has no whole root
        of a free length, and takes 32 fine ones.
        """
        fine = 32 if torch.compiler.is_compiling() else max(math.isqrt(count - 1) + 1, 1)
        coarse = -(-count // fine)
        k = torch.arange(max(coarse, fine), device=self.angle.device) * stride
        jumps, steps = self.power(torch.cat([first + fine * k[:coarse], k[:fine]])).split([coarse, fine])
        return jumps, steps

    def power(self, k: Tensor | int) -> Tensor:
        """e^{ikθ} ``(units,)``, or ``(len(k), units)``."""
        theta = self.phases()
        phase = theta * (k if isinstance(k, int) else k.to(theta.device, theta.dtype).unsqueeze(-1))
        dtype = self.sign.dtype
        return torch.complex(phase.cos().to(dtype), phase.sin().to(dtype))

    def complex(self, h: Tensor) -> Tensor:
        """Real ``(…, n)`` as complex ``(…, units)``."""
        planes = complex_pairs(h[..., : 2 * self.planes].unflatten(-1, (self.planes, 2)))
        if not self.sign.shape[0]:
            return planes
        rest = h[..., 2 * self.planes :]
        return torch.cat([planes, torch.complex(rest, torch.zeros_like(rest))], -1)

    def real(self, h: Tensor) -> Tensor:
        """The reverse of :meth:`complex`."""
        planes = h[..., : self.planes]
        planes = torch.stack([planes.real, planes.imag], -1).flatten(
            -2
        )  # view_as_real takes no gradient at an odd place
        return torch.cat([planes, h[..., self.planes :].real], -1) if self.sign.shape[0] else planes

    def turn(self) -> Tensor:
        """R as ``(2, n)``, float64: what multiplies a unit, and what multiplies the other unit of its plane."""
        angle, sign = self.angle.double(), self.sign.double()
        sin = torch.stack([-angle.sin(), angle.sin()], -1).flatten()
        cos = torch.cat([angle.cos().repeat_interleave(2), sign])
        return torch.stack([cos, torch.cat([sin, torch.zeros_like(sign)])])

    def matrix(self) -> Tensor:
        """R ``(n, n)``."""
        angle = self.angle.double()
        cos, sin = angle.cos().to(self.sign.dtype), angle.sin().to(self.sign.dtype)
        below = torch.stack([sin, torch.zeros_like(sin)], -1).flatten()
        below = torch.cat([below, torch.zeros_like(self.sign)])[:-1]
        return torch.diag(torch.cat([cos.repeat_interleave(2), self.sign])) + below.diag(-1) - below.diag(1)


def turned(h: Tensor, turn: Tensor) -> Tensor:
    """R h in float64, from what :meth:`Bank.turn` gives: rounded, R is another matrix, and T steps would show it.

    Units outside the planes have another one too, which counts for nothing.
    """
    h, pairs = h.to(turn.dtype), h.shape[-1] // 2
    swapped = h[..., : 2 * pairs].unflatten(-1, (pairs, 2)).flip(-1).flatten(-2)
    return turn[0] * h + turn[1] * torch.cat([swapped, h[..., 2 * pairs :]], -1)
