"""The sequence operator with W applied as a product of cheap factors in every step, never as a matrix.

h_t = act(U x_t + W h_{t−1}) where W is what :func:`find` names, given by its factors. For a large state this is cheaper
than the dense matrix. Three rungs: naive (autograd); a hand-written backward that walks back through the states with
W* and then takes the gradients of all factors over all time steps, in parts that stay in the cache; and the kernel,
with the batch in the vector lanes. Operators take three factors, None in the place of those that a map has not.
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
from scornn.ops.rung import Incoming, Operands, Rung, agree, empty_states, no_second_derivative

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


def _present(factors: list[Tensor | None]) -> list[Tensor]:
    return [factor for factor in factors if factor is not None]


def naive(*arguments: Any) -> tuple[Tensor, Tensor]:
    x, h0, *factors, U, b, name, activation, batch_sizes, reverse = arguments
    act, layout, map = ACTIVATIONS[activation].value, Layout.of(x, batch_sizes, reverse), find(name)
    W = map.prepare(_present(factors), map.units(h0.shape[-1]))

    def advance(states: States, Ux: Tensor) -> States:
        return (act(Ux + map.to_state(map.apply(map.of_state(states[0]), W)), b),)

    (output,), (h_n,) = layout.walk(layout.rows(x) @ U.mT, (h0,), advance)
    return output, h_n


def _backward(grads: Any, kept: Any, arguments: Any, needs: Any) -> list[Tensor | None]:
    """Gradients of x, h0, each factor that is trained, U and b."""
    x, h0, *factors, U, b, name, activation, batch_sizes, reverse = arguments
    layout, map = Layout.of(x, batch_sizes, reverse), find(name)
    W = map.prepare(_present(factors), map.units(h0.shape[-1]))
    output = layout.rows(kept[0])
    operands = Operands(x, h0, U, U, b, activation, batch_sizes, reverse)
    dz, dh0, db = pull_back(
        Incoming(*grads), layout, operands, output, lambda dz: map.to_state(map.adjoint(map.of_state(dz), W))
    )
    h = layout.states_before(output, h0)
    by_factor = [None if factor is None else torch.zeros_like(factor) for factor in factors]
    size = max(CHUNK // h.shape[1], 1)
    for start in range(0, h.shape[0], size):
        part = slice(start, start + size)
        gradients = map.gradients(map.of_state(dz[part]), map.of_state(h[part]), W)
        for total, gradient in zip(_present(by_factor), gradients, strict=False):  # a permutation, the last, has none
            total += gradient
    return [(dz @ U).view(x.shape), dh0, *by_factor, dz.mT @ layout.rows(x), db]


def _call(arguments: Any, output: Tensor, h_n: Tensor | None) -> native.Call:
    """A pass of the kernel, which takes cosines and sines side by side."""
    x, h0, *given, U, b, name, activation, batch_sizes, reverse = arguments
    map, factors = find(name), _present(given)
    n = map.units(h0.shape[-1])
    if map.layers is None:
        theta, v, permutation = factors
        agree(x, {"phase": (theta, (3, n)), "reflection": (v, (2, n, 2))})
        if permutation.dtype != torch.int64 or permutation.numel() != n:
            found = f"{permutation.numel()} in {permutation.dtype}"
            raise ValueError(f"expected a permutation of {n} numbers in int64, got {found}")
        kind, layers, index, made = "fourier", 0, permutation.contiguous(), [_turns(theta), native.dense(v)]
    else:
        places = map.layers(n)
        angles = (sum(place.pairs for place in places),)
        names = ("angle", "phase", "omega")
        agree(x, dict(zip(names, zip(factors, (angles, angles, (n,)), strict=False), strict=False)))
        kind, layers, index = "rotations", len(places), torch.tensor(places, dtype=torch.int64)
        made = [_turns(angle) for angle in factors]
    addresses = (ctypes.c_void_p * 3)(*(t.data_ptr() for t in made))
    struct = library.MapStruct(library.MAP[kind], layers, index.data_ptr(), addresses)
    operands = Operands(x, h0, U, U, b, activation, batch_sizes, reverse)  # in the place of W the kernel reads the map
    return native.Call(operands, output, h_n, map=struct, keep=(made, index))


def _turns(angle: Tensor) -> Tensor:
    return torch.stack([angle.cos(), angle.sin()], -1)


def _kernel_forward(*arguments: Any) -> tuple[Tensor, ...]:
    output, h_n = empty_states(*arguments)
    _call(arguments, output, h_n).forward()
    return output, h_n


def _kernel_backward(grads: Any, kept: Any, arguments: Any, needs: Any) -> list[Tensor | None]:
    x, h0, *factors, U, b = native.wanted(arguments[:7], needs)
    (dx, dh0), (_, dU, db, _, *by_factor) = _call(arguments, kept[0], None).backward(
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


def _operator(name: str, forward: Any, backward: Any, backend: str) -> Any:
    """Register a recurrence with a product for W, as ``scornn::{name}_forward``."""
    return register(
        name,
        "Tensor x, Tensor h0, Tensor factor, Tensor? second, Tensor? third, Tensor U, Tensor? b, str name, "
        "str activation, Tensor? batch_sizes, bool reverse",
        forward,
        empty_states,
        backward,
        inputs=7,
        results=2,
        differentiable=2,
        kept=(0,),
        second_derivative=no_second_derivative(backend),
        flops=_flops,
    )


kernel = _operator("structured", _kernel_forward, _kernel_backward, "native")
manual = _operator("product", naive, _backward, "manual")
RUNGS = (
    Rung("native", kernel, native.RUNG.unavailable, native.RUNG.refuses),
    Rung("manual", manual),
    Rung("naive", naive, opaque=False),
)
