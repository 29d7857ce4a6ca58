"""The rung of :mod:`scornn.ops.product` on the C++ kernel: W as a product of factors, the batch in the vector lanes."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import torch
from torch import Tensor

from scornn.ops import library, native, rotations
from scornn.ops.custom import register
from scornn.ops.rung import Operands, Rung, no_second_derivative


class _Map:
    """The factors of W as the kernel takes them: cosines and sines side by side."""

    def __init__(self, name: str, factors: list[Tensor], units: int) -> None:
        kind, *settings = name.split("/")
        if kind == "fourier":
            theta, v, index = factors
            made = [_turns(theta), native.dense(v)]
            layers = 0
            index = index.contiguous()
        else:
            places = rotations.layers(units, settings[1], int(settings[2]))
            made, layers = [_turns(angle) for angle in factors], len(places)
            index = torch.tensor(places, dtype=torch.int64)
        addresses = [*(t.data_ptr() for t in made), None, None][:3]
        self.keep = (made, index)
        self.struct = library.MapStruct(library.MAP[kind], layers, index.data_ptr(), (ctypes.c_void_p * 3)(*addresses))


def _turns(angle: Tensor) -> Tensor:
    return torch.stack([angle.cos(), angle.sin()], -1)


def _call(arguments: Any, output: Tensor, h_n: Tensor | None) -> native.Call:
    x, h0, factors, U, b, name, activation, batch_sizes, reverse = arguments
    units = h0.shape[-1] // (2 if activation == "complex_modrelu" else 1)
    operands = Operands(x, h0, U, U, b, activation, batch_sizes, reverse)  # in the place of W the kernel reads the map
    map = _Map(name, factors, units)
    return native.Call(operands, output, h_n, map=map.struct, keep=map)


def _forward(*arguments: Any) -> tuple[Tensor, ...]:
    x, batch_sizes = arguments[0], arguments[7]
    if batch_sizes is not None:
        native.check_sizes(batch_sizes, x.shape[0])
    output, h_n = _empty_results(*arguments)
    _call(arguments, output, h_n).forward()
    return output, h_n


def _empty_results(x: Tensor, h0: Tensor, *others: Any) -> tuple[Tensor, ...]:
    return x.new_empty(*x.shape[:-1], h0.shape[-1]), h0.new_empty(h0.shape)


def _backward(grads: Any, kept: Any, arguments: Any, needs: Any) -> list[Tensor | list[Tensor] | None]:
    x, h0, factors, U, b = arguments[:5]
    g_h_n = None if grads[1] is None else native.dense(grads[1])
    dx, dh0 = (t.new_empty(t.shape) if need else None for t, need in zip((x, h0), needs[:2], strict=True))
    others = {name: native.address(t) for name, t in (("h_n", g_h_n), ("x", dx), ("h0", dh0))}
    trained = [factor if needs[2] else None for factor in factors if factor.is_floating_point()]
    weights = [None, U if needs[3] else None, b if needs[4] else None, None]
    _, dU, db, _, *by_factor = _call(arguments, kept[0], None).backward(grads[0], others, weights, trained)
    rest = [torch.zeros_like(factor) for factor in factors[len(trained) :]]  # a permutation
    return [dx, dh0, [*by_factor, *rest] if needs[2] else [None] * len(factors), dU, db]  # type: ignore[list-item]


kernel = register(
    "structured",
    "Tensor x, Tensor h0, Tensor[] factors, Tensor U, Tensor? b, str name, str activation, Tensor? batch_sizes, "
    "bool reverse",
    _forward,
    _empty_results,
    _backward,
    inputs=5,
    results=2,
    differentiable=2,
    kept=(0,),
    second_derivative=no_second_derivative("native"),
    flops=lambda x, h0, factors, U, *others: 2 * math.prod(x[:-1]) * math.prod(U),  # W is no product of matrices
)
RUNG = Rung("native", kernel, native.RUNG.unavailable, native.RUNG.refuses)
