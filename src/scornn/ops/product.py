"""The sequence operator with W applied as a product of cheap factors in every step, never as a matrix.

h_t = act(U x_t + W h_{t−1}) where W is what :func:`find` names, given by its factors. For a large state this is cheaper
than the dense matrix. Three rungs: naive (autograd); a hand-written backward that walks back through the states with
W* and then takes the gradients of all factors over all time steps, in parts that stay in the cache; and the kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from scornn.ops import fourier, rotations, structured
from scornn.ops.activations import ACTIVATIONS
from scornn.ops.layout import Layout, States, complex_pairs
from scornn.ops.manual import pull_back
from scornn.ops.rung import Incoming, Operands, Rung

CHUNK = 1 << 17  # numbers of the state held at a time by the gradient of the factors


class Map(NamedTuple):
    """A unitary map of states: its factors made ready, its value, its adjoint, and the gradients of its factors."""

    complex: bool
    prepare: Callable[[list[Tensor], int], Any]
    apply: Callable[[Tensor, Any], Tensor]
    adjoint: Callable[[Tensor, Any], Tensor]
    gradients: Callable[[Tensor, Tensor, Any], list[Tensor]]


def find(name: str) -> Map:
    """``fourier``, or ``rotations/real`` or ``rotations/complex`` with ``/tunable/L`` or ``/fft/0`` after it."""
    kind, *settings = name.split("/")
    if kind == "fourier":
        return Map(True, lambda made, n: fourier.Factors.of(*made), fourier.apply, fourier.adjoint, fourier.gradients)
    numbers, style, capacity = settings

    def prepare(made: list[Tensor], n: int) -> rotations.Rotations:
        phase, omega = made[1:] if numbers == "complex" else (None, None)
        return rotations.Rotations.of(rotations.layers(n, style, int(capacity)), made[0], phase, omega)

    return Map(numbers == "complex", prepare, rotations.apply, rotations.adjoint, rotations.gradients)


def _units(h: Tensor, map: Map) -> Tensor:
    """A state of adjacent pairs as complex numbers."""
    return complex_pairs(h.unflatten(-1, (-1, 2))) if map.complex else h


def _state(h: Tensor, map: Map) -> Tensor:
    return torch.view_as_real(h).flatten(-2) if map.complex else h


def _prepared(name: str, factors: list[Tensor | None], state_size: int) -> tuple[Map, Any]:
    map = find(name)
    return map, map.prepare(structured.present(factors), state_size // 2 if map.complex else state_size)


def naive(*arguments: Any) -> tuple[Tensor, Tensor]:
    x, h0, *factors, U, b, name, activation, batch_sizes, reverse = arguments
    act, layout = ACTIVATIONS[activation].value, Layout.of(x, batch_sizes, reverse)
    map, W = _prepared(name, factors, h0.shape[-1])

    def advance(states: States, Ux: Tensor) -> States:
        return (act(Ux + _state(map.apply(_units(states[0], map), W), map), b),)

    (output,), (h_n,) = layout.walk(layout.rows(x) @ U.mT, (h0,), advance)
    return output, h_n


def _backward(grads: Any, kept: Any, arguments: Any, needs: Any) -> list[Tensor | None]:
    """Gradients of x, h0, each factor that is trained, U and b."""
    x, h0, *factors, U, b, name, activation, batch_sizes, reverse = arguments
    layout = Layout.of(x, batch_sizes, reverse)
    map, W = _prepared(name, factors, h0.shape[-1])
    output = layout.rows(kept[0])
    operands = Operands(x, h0, U, U, b, activation, batch_sizes, reverse)
    dz, dh0, db = pull_back(
        Incoming(*grads), layout, operands, output, lambda dz: _state(map.adjoint(_units(dz, map), W), map)
    )
    h = layout.states_before(output, h0)
    by_factor = [None if factor is None else torch.zeros_like(factor) for factor in factors]
    size = max(CHUNK // h.shape[1], 1)
    for start in range(0, h.shape[0], size):
        part = slice(start, start + size)
        gradients = map.gradients(_units(dz[part], map), _units(h[part], map), W)
        for total, gradient in zip(
            structured.present(by_factor), gradients, strict=False
        ):  # a permutation, the last, has none
            total += gradient
    return [(dz @ U).view(x.shape), dh0, *by_factor, dz.mT @ layout.rows(x), db]


manual = structured.product_operator("product", naive, _backward, "manual")
RUNGS = (structured.RUNG, Rung("manual", manual), Rung("naive", naive, opaque=False))
