"""The rung of :mod:`scornn.ops.product` on the C++ kernel: W as a product of factors, the batch in the vector lanes."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import torch
from torch import Tensor

from scornn.ops import fourier, library, native, rotations
from scornn.ops.custom import register
from scornn.ops.rung import Operands, Rung, empty_states, no_second_derivative


def _map(name: str, factors: list[Tensor], units: int) -> tuple[library.MapStruct, object]:
    """The factors of W as the kernel takes them, cosines and sines side by side, and what must live as long."""
    kind, *settings = name.split("/")
    if kind == "fourier":
        theta, v, index = factors
        made, layers, index = [_turns(theta), native.dense(v)], 0, index.contiguous()
    else:
        places = rotations.layers(units, settings[1], int(settings[2]))
        made, layers, index = [_turns(angle) for angle in factors], len(places), torch.tensor(places, dtype=torch.int64)
    addresses = (ctypes.c_void_p * 3)(*(t.data_ptr() for t in made))
    return library.MapStruct(library.MAP[kind], layers, index.data_ptr(), addresses), (made, index)


def present(factors: list[Tensor | None]) -> list[Tensor]:
    """Operators take three factors, None in the place of those that a map has not."""
    return [factor for factor in factors if factor is not None]


def _turns(angle: Tensor) -> Tensor:
    return torch.stack([angle.cos(), angle.sin()], -1)


def _call(arguments: Any, output: Tensor, h_n: Tensor | None) -> native.Call:
    x, h0, *factors, U, b, name, activation, batch_sizes, reverse = arguments
    units = h0.shape[-1] // (2 if activation == "complex_modrelu" else 1)
    operands = Operands(x, h0, U, U, b, activation, batch_sizes, reverse)  # in the place of W the kernel reads the map
    map, keep = _map(name, present(factors), units)
    return native.Call(operands, output, h_n, map=map, keep=keep)


def _forward(*arguments: Any) -> tuple[Tensor, ...]:
    x, batch_sizes = arguments[0], arguments[-2]
    if batch_sizes is not None:
        native.check_sizes(batch_sizes, x.shape[0])
    output, h_n = empty_states(*arguments)
    _call(arguments, output, h_n).forward()
    return output, h_n


def _backward(grads: Any, kept: Any, arguments: Any, needs: Any) -> list[Tensor | None]:
    x, h0, *factors, U, b = native.wanted(arguments[:7], needs)
    (dx, dh0), (_, dU, db, _, *by_factor) = _call(arguments, kept[0], None).backward(
        grads[0], {"h_n": grads[1]}, {"x": x, "h0": h0}, [None, U, b, None], factors
    )
    return [dx, dh0, *by_factor, dU, db]


def _flops(*shapes: Any) -> int:
    """Of the forward pass: the product with U, and the factors of W, for each row."""
    x, h0, _, _, _, U, _, name, *_ = shapes
    kind, *settings = name.split("/")
    if kind == "fourier":
        map = fourier.flops(h0[-1] // 2)
    else:
        complex = settings[0] == "complex"
        units = h0[-1] // 2 if complex else h0[-1]
        map = rotations.flops(rotations.layers(units, settings[1], int(settings[2])), units, complex)
    return int(math.prod(x[:-1]) * (2 * math.prod(U) + map))


def product_operator(name: str, forward: Any, backward: Any, backend: str) -> Any:
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


kernel = product_operator("structured", _forward, _backward, "native")
RUNG = Rung("native", kernel, native.RUNG.unavailable, native.RUNG.refuses)
