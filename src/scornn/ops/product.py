"""The sequence operator with W applied as a product of cheap factors in every step, never as a matrix.

h_t = act(U x_t + W h_{t−1}) where W is what :func:`find` names, given by its factors. For a large state this is cheaper
than the dense matrix. Three rungs: naive (autograd); a hand-written backward that walks back through the states with
W* and then takes the gradients of all factors over all time steps, in parts that stay in the cache; and the kernel,
with the batch in the vector lanes.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from scornn.ops import fourier, library, native, rotations
from scornn.ops.activations import ACTIVATIONS
from scornn.ops.custom import register
from scornn.ops.layout import Layout, States, complex_pairs
from scornn.ops.manual import pull_back
from scornn.ops.rung import CELLS, Cell, Incoming, Operands, Rung, Shapes, empty_states, plainly

CHUNK = 1 << 17  # numbers of the state held at a time by the gradient of the factors


class Map(NamedTuple):
    """A unitary map of states: its factors made ready, its value, its adjoint, and the gradients of its factors.

    ``layers`` are those of rotations for so many units; None for the Fourier product.
    """

    complex: bool
    layers: Callable[[int], list[rotations.Layer]] | None
    prepare: Callable[[list[Tensor], int], Any]
    apply: Callable[[Tensor, Any], Tensor]
    adjoint: Callable[[Tensor, Any], Tensor]
    gradients: Callable[[Tensor, Tensor, Any], list[Tensor]]

    def units(self, state_size: int) -> int:
        return state_size // 2 if self.complex else state_size

    def of_state(self, h: Tensor) -> Tensor:
        """A state of adjacent pairs as complex numbers."""
        return complex_pairs(h.unflatten(-1, (-1, 2))) if self.complex else h

    def to_state(self, h: Tensor) -> Tensor:
        return torch.view_as_real(h).flatten(-2) if self.complex else h


def find(name: str) -> Map:
    """``fourier``, or ``rotations/real`` or ``rotations/complex`` with ``/tunable/L`` or ``/fft/0`` after it."""
    if name == "fourier":
        factors = fourier.Factors.of
        return Map(True, None, lambda made, n: factors(*made), fourier.apply, fourier.adjoint, fourier.gradients)
    _, numbers, style, capacity = name.split("/")

    def layers(n: int) -> list[rotations.Layer]:
        return rotations.layers(n, style, int(capacity))

    def prepare(made: list[Tensor], n: int) -> rotations.Rotations:
        phase, omega = made[1:] if numbers == "complex" else (None, None)
        return rotations.Rotations.of(layers(n), made[0], phase, omega)

    return Map(numbers == "complex", layers, prepare, rotations.apply, rotations.adjoint, rotations.gradients)


class Product(NamedTuple):
    """W by the name of its map and its factors."""

    name: str
    factors: list[Tensor]

    @property
    def cell(self) -> str:
        return "product"

    def shapes(self, n: int, x: Tensor) -> Shapes:
        map = find(self.name)
        units = map.units(n)
        if map.layers is not None:
            pairs = (sum(layer.pairs for layer in map.layers(units)),)
            expected = ("angle", pairs), ("phase", pairs), ("omega", (units,))
            return {name: (factor, shape) for factor, (name, shape) in zip(self.factors, expected, strict=False)}
        theta, v, permutation = self.factors
        if permutation.dtype != torch.int64 or permutation.numel() != units:
            found = f"{permutation.numel()} in {permutation.dtype}"
            raise ValueError(f"expected a permutation of {units} numbers in int64, got {found}")
        return {"phase": (theta, (3, units)), "reflection": (v, (2, units, 2))}


class Arguments(NamedTuple):
    """What the operators take: the operands with W in four, None in the place of factors that a map has not."""

    x: Tensor
    h0: Tensor
    factor: Tensor
    second: Tensor | None
    third: Tensor | None
    U: Tensor
    b: Tensor | None
    name: str
    activation: str
    batch_sizes: Tensor | None
    reverse: bool

    @classmethod
    def of(cls, operands: Operands) -> Arguments:
        x, h0, W, U, b, activation, batch_sizes, reverse, *_ = operands
        first, second, third = [*W.factors, None, None][:3]
        return cls(x, h0, first, second, third, U, b, W.name, activation, batch_sizes, reverse)

    @property
    def W(self) -> Product:
        return Product(self.name, [factor for factor in self[2:5] if factor is not None])

    @property
    def operands(self) -> Operands:
        return Operands(self.x, self.h0, self.W, self.U, self.b, self.activation, self.batch_sizes, self.reverse)


def naive(operands: Operands) -> tuple[Tensor, Tensor]:
    x, h0, product, U, b, activation, batch_sizes, reverse = operands[:8]
    act, layout, map = ACTIVATIONS[activation].value, Layout.of(x, batch_sizes, reverse), find(product.name)
    W = map.prepare(product.factors, map.units(h0.shape[-1]))

    def advance(states: States, Ux: Tensor) -> States:
        return (act(Ux + map.to_state(map.apply(map.of_state(states[0]), W)), b),)

    (output,), (h_n,) = layout.walk(layout.rows(x) @ U.mT, (h0,), advance)
    return output, h_n


def _backward(grads: Any, kept: Any, given: Arguments, needs: Any) -> list[Tensor | None]:
    """Gradients of x, h0, each factor that is trained, U and b."""
    x, h0, U = given.x, given.h0, given.U
    layout, map = Layout.of(x, given.batch_sizes, given.reverse), find(given.name)
    W = map.prepare(given.W.factors, map.units(h0.shape[-1]))
    output = layout.rows(kept[0])
    dz, dh0, db = pull_back(
        Incoming(*grads), layout, given.operands, output, lambda dz: map.to_state(map.adjoint(map.of_state(dz), W))
    )
    h = layout.states_before(output, h0)
    by_factor = [None if factor is None else torch.zeros_like(factor) for factor in given[2:5]]
    totals = [total for total in by_factor if total is not None]
    size = max(CHUNK // h.shape[1], 1)
    for start in range(0, h.shape[0], size):
        part = slice(start, start + size)
        gradients = map.gradients(map.of_state(dz[part]), map.of_state(h[part]), W)
        for total, gradient in zip(totals, gradients, strict=False):  # a permutation, the last, has none
            total += gradient
    return [(dz @ U).view(x.shape), dh0, *by_factor, dz.mT @ layout.rows(x), db]


def _call(given: Arguments, output: Tensor, h_n: Tensor | None) -> native.Call:
    """A pass of the kernel, which takes cosines and sines side by side."""
    operands, map, factors = given.operands, find(given.name), given.W.factors
    native.require(operands)
    if map.layers is None:
        theta, v, permutation = factors
        kind, layers, index, made = "fourier", 0, permutation.contiguous(), [_turns(theta), native.dense(v)]
    else:
        places = map.layers(map.units(given.h0.shape[-1]))
        kind, layers, index = "rotations", len(places), torch.tensor(places, dtype=torch.int64)
        made = [_turns(angle) for angle in factors]
    addresses = (ctypes.c_void_p * 3)(*(t.data_ptr() for t in made))
    struct = library.MapStruct(library.MAP[kind], layers, index.data_ptr(), addresses)
    return native.Call(operands, output, h_n, map=struct, keep=(made, index))


def _turns(angle: Tensor) -> Tensor:
    return torch.stack([angle.cos(), angle.sin()], -1)


def _kernel_forward(given: Arguments) -> tuple[Tensor, ...]:
    output, h_n = empty_states(given.x, given.h0)
    _call(given, output, h_n).forward()
    return output, h_n


def _kernel_backward(grads: Any, kept: Any, given: Arguments, needs: Any) -> list[Tensor | None]:
    x, h0, *factors, U, b = native.wanted(given[:7], needs)
    (dx, dh0), (_, dU, db, _, *by_factor) = _call(given, kept[0], None).backward(
        grads[0], {"h_n": grads[1]}, {"x": x, "h0": h0}, [None, U, b, None], factors
    )
    return [dx, dh0, *by_factor, dU, db]


def _flops(*shapes: Any) -> int:
    """Of the forward pass: the product with U, and the factors of W, for each row."""
    x, h0, _, _, _, U, _, name, *_ = shapes
    map = find(name)
    units = map.units(h0[-1])
    own = fourier.flops(units) if map.layers is None else rotations.flops(map.layers(units), units, map.complex)
    return int(math.prod(x[:-1]) * (2 * math.prod(U) + own))


def _operator(name: str, forward: Any, backward: Any, backend: str) -> Callable[[Operands], Any]:
    """Register a recurrence with a product for W, as ``scornn::{name}_forward``."""
    operator = register(
        name,
        Arguments,
        forward,
        backward,
        empty=empty_states,
        plain=lambda given: plainly(given.operands),
        flops=_flops,
    )
    return lambda operands: operator(*Arguments.of(operands))


kernel = _operator("structured", _kernel_forward, _kernel_backward, "native")
manual = _operator("product", lambda given: naive(given.operands), _backward, "manual")
CELLS["product"] = Cell((native.rung(kernel), Rung("manual", manual), Rung("naive", naive, opaque=False)))
