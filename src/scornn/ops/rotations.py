"""Layers of 2 × 2 rotations on disjoint pairs of units: the W of EURNN and GORU, its inverse and its gradients.

A pair (a, b) with angle θ and, in the complex case, phase φ becomes h_a' = cos θ h_a − e^{iφ} sin θ h_b and
h_b' = sin θ h_a + e^{iφ} cos θ h_b; at the end unit j is turned by e^{iω_j}.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

STYLES = ("tunable", "fft")


class Layer(NamedTuple):
    """Pairs (a, a + stride), from unit ``offset`` on, in blocks of twice the stride."""

    offset: int
    stride: int
    pairs: int


def layers(n: int, style: str, capacity: int) -> list[Layer]:
    """Tunable: neighbours, from unit 0 and from unit 1 in turn. FFT style: layer i at a distance of n / 2^{i+1}."""
    if style == "tunable":
        return [Layer(i % 2, 1, (n - i % 2) // 2) for i in range(capacity)]
    return [Layer(0, n >> (i + 1), n // 2) for i in range(n.bit_length() - 1)]


def flops(places: list[Layer], n: int, complex: bool) -> int:
    """Of W h for one row: real additions and multiplications."""
    pairs = sum(layer.pairs for layer in places)
    return 18 * pairs + 6 * n if complex else 6 * pairs


class Rotations(NamedTuple):
    """cos θ, sin θ and e^{iφ} of each layer, ``(blocks, stride)``; φ and e^{iω} are None for real rotations."""

    layers: list[Layer]
    cos: list[Tensor]
    sin: list[Tensor]
    turn: list[Tensor] | None
    last: Tensor | None

    @classmethod
    def of(cls, layers: list[Layer], angle: Tensor, phase: Tensor | None, omega: Tensor | None) -> Rotations:
        """From the θ, and for complex ones the φ, of all layers one after the other, and the ω."""

        def split(v: Tensor) -> list[Tensor]:
            parts = v.split([layer.pairs for layer in layers])
            return [part.view(-1, layer.stride) for part, layer in zip(parts, layers, strict=True)]

        turn = None if phase is None else split(torch.complex(phase.cos(), phase.sin()))
        last = None if omega is None else torch.complex(omega.cos(), omega.sin())
        return cls(layers, split(angle.cos()), split(angle.sin()), turn, last)


def _pairs(h: Tensor, layer: Layer) -> tuple[Tensor, Tensor]:
    inside = h[..., layer.offset : layer.offset + 2 * layer.pairs].unflatten(-1, (-1, 2, layer.stride))
    return inside[..., 0, :], inside[..., 1, :]


def _put_back(h: Tensor, layer: Layer, a: Tensor, b: Tensor) -> Tensor:
    turned = torch.stack([a, b], -2).flatten(-3)
    end = layer.offset + 2 * layer.pairs
    if end - layer.offset == h.shape[-1]:
        return turned
    return torch.cat([h[..., : layer.offset], turned, h[..., end:]], -1)


def apply(h: Tensor, rotations: Rotations) -> Tensor:
    """W h over the last dimension."""
    for k, layer in enumerate(rotations.layers):
        a, b = _pairs(h, layer)
        if rotations.turn is not None:
            b = b * rotations.turn[k]
        c, s = rotations.cos[k], rotations.sin[k]
        h = _put_back(h, layer, c * a - s * b, s * a + c * b)
    return h if rotations.last is None else h * rotations.last


def adjoint(g: Tensor, rotations: Rotations) -> Tensor:
    """W* g = W⁻¹ g over the last dimension."""
    if rotations.last is not None:
        g = g * rotations.last.conj_physical()
    for k in reversed(range(len(rotations.layers))):
        g = _undo(g, rotations, k)
    return g


def _undo(g: Tensor, rotations: Rotations, k: int) -> Tensor:
    layer, c, s = rotations.layers[k], rotations.cos[k], rotations.sin[k]
    a, b = _pairs(g, layer)
    a, b = c * a + s * b, c * b - s * a
    if rotations.turn is not None:
        b = b * rotations.turn[k].conj_physical()
    return _put_back(g, layer, a, b)


def _imaginary(g: Tensor, h: Tensor) -> Tensor:
    """Σ Im(g h̄) over rows: the derivative of h e^{iα} with respect to α."""
    return (g.imag * h.real - g.real * h.imag).sum(0)


def gradients(g: Tensor, h: Tensor, rotations: Rotations) -> list[Tensor]:
    """Of θ, and for complex rotations of φ and ω, summed over rows, where g is the gradient of W h.

    W is undone layer by layer on the states and on their gradients at once, so nothing is kept for each layer.
    """
    rows = g.shape[0]
    both = torch.cat([g, apply(h, rotations)])
    last = []
    if rotations.last is not None:
        last = [_imaginary(both[:rows], both[rows:])]
        both = both * rotations.last.conj_physical()
    angles, phases = [], []
    for k in reversed(range(len(rotations.layers))):
        a, b = _pairs(both, rotations.layers[k])
        if both.is_complex():
            a, b = torch.view_as_real(a), torch.view_as_real(b)
        by_angle = (b[:rows] * a[rows:] - a[:rows] * b[rows:]).sum(0)  # (h_a', h_b') turns into (−h_b', h_a')
        angles.append((by_angle.sum(-1) if both.is_complex() else by_angle).flatten())
        both = _undo(both, rotations, k)
        if rotations.turn is not None:
            _, b = _pairs(both, rotations.layers[k])
            phases.append(_imaginary(b[:rows], b[rows:]).flatten())
    nothing = [g.real.new_zeros(0)]
    by_phase = [] if rotations.turn is None else [torch.cat(phases[::-1] or nothing)]
    return [torch.cat(angles[::-1] or nothing), *by_phase, *last]
