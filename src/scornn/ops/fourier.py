"""The W of the restricted-capacity uRNN as a product: W = D₃ R₂ F⁻¹ D₂ Π R₁ F D₁, its inverse and its gradients.

D_j are diagonal with numbers of modulus 1, R_j reflections, F the unitary Fourier transform, Π a permutation.

Conjugates are taken by conj_physical: inside an operator that torch.compile runs, the lazy conjugate bit is lost.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from scornn.ops.layout import complex_pairs


class Factors(NamedTuple):
    """D_j = diag(phases[j]), R_j reflects along reflections[j]; ``back`` undoes the permutation."""

    phases: Tensor  # (3, n), complex, of modulus 1
    reflections: Tensor  # (2, n), complex
    permutation: Tensor  # (n,)
    back: Tensor

    @classmethod
    def of(cls, theta: Tensor, v: Tensor, permutation: Tensor) -> Factors:
        """From angles ``(3, n)`` and vectors as pairs ``(2, n, 2)``."""
        phases = torch.complex(theta.cos(), theta.sin())
        return cls(phases, complex_pairs(v), permutation, torch.argsort(permutation))


def flops(n: int) -> int:
    """Of W h for one row of n units: three diagonals, two reflections, two transforms of 5 n log2 n."""
    return 3 * 6 * n + 2 * 16 * n + 2 * round(5 * n * math.log2(n))


def reflect(h: Tensor, v: Tensor) -> Tensor:
    """h − 2 (h·v) v̄ / |v|² over the last dimension, h·v without a conjugate: unitary, and its own inverse."""
    return h - (2 / v.abs().square().sum()) * (h @ v).unsqueeze(-1) * v.conj_physical()


def apply(h: Tensor, factors: Factors) -> Tensor:
    """W h over the last dimension of a complex h."""
    phases, v, permutation, _ = factors
    h = torch.fft.fft(h * phases[0], norm="ortho")
    h = reflect(h, v[0])[..., permutation] * phases[1]
    return reflect(torch.fft.ifft(h, norm="ortho"), v[1]) * phases[2]


def adjoint(g: Tensor, factors: Factors) -> Tensor:
    """W* g = W⁻¹ g over the last dimension of a complex g."""
    phases, v, _, back = factors
    g = torch.fft.fft(reflect(g * phases[2].conj_physical(), v[1]), norm="ortho")
    g = reflect((g * phases[1].conj_physical())[..., back], v[0])
    return torch.fft.ifft(g, norm="ortho") * phases[0].conj_physical()


def _reflection_gradient(g: Tensor, h: Tensor, v: Tensor) -> Tensor:
    """dL/dv of reflect(h, v), summed over rows. With s = h·v, t = ḡ·v̄ and c = 2/|v|²."""
    length = v.abs().square().sum()
    s, t = h @ v, (g @ v).conj_physical()
    turn = 4 * (s * t).real.sum() / length**2
    return turn * v - (2 / length) * ((h.mT @ t).conj_physical() + g.conj_physical().mT @ s)


def gradients(g: Tensor, h: Tensor, factors: Factors) -> list[Tensor]:
    """dL/dθ ``(3, n)`` and dL/dv ``(2, n, 2)`` of W h, where g = dL/d(W h); both summed over rows."""
    phases, v, permutation, back = factors
    a1 = h * phases[0]
    f1 = torch.fft.fft(a1, norm="ortho")
    a2 = reflect(f1, v[0])[:, permutation] * phases[1]
    f2 = torch.fft.ifft(a2, norm="ortho")
    out = reflect(f2, v[1]) * phases[2]
    theta3 = (g * out.conj_physical()).imag.sum(0)  # d(a e^{iθ}) = i a e^{iθ} dθ
    g = g * phases[2].conj_physical()
    v2 = _reflection_gradient(g, f2, v[1])
    g = torch.fft.fft(reflect(g, v[1]), norm="ortho")
    theta2 = (g * a2.conj_physical()).imag.sum(0)
    g = (g * phases[1].conj_physical())[:, back]
    v1 = _reflection_gradient(g, f1, v[0])
    g = torch.fft.ifft(reflect(g, v[0]), norm="ortho")
    theta1 = (g * a1.conj_physical()).imag.sum(0)
    return [torch.stack([theta1, theta2, theta3]), torch.view_as_real(torch.stack([v1, v2]))]
