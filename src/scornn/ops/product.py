"""The sequence operator with W applied as a product of cheap factors in every step, never as a matrix.

h_t = act(U x_t + W h_{t−1}) where W is given by its factors. For a large state this is cheaper
than the dense matrix. Two rungs: naive (autograd), and a hand-written backward that walks back through the states
with W* and then takes the gradients of all factors over all time steps, in parts that stay in the cache.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from scornn.ops import fourier, rotations
from scornn.ops.activations import ACTIVATIONS
from scornn.ops.layout import Layout

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
    return torch.view_as_complex(h.contiguous().unflatten(-1, (-1, 2))) if map.complex else h


def _state(h: Tensor, map: Map) -> Tensor:
    return torch.view_as_real(h).flatten(-2) if map.complex else h


def _prepared(name: str, factors: list[Tensor], state_size: int) -> tuple[Map, Any]:
    map = find(name)
    return map, map.prepare(factors, state_size // 2 if map.complex else state_size)


def naive(
    x: Tensor,
    h0: Tensor,
    factors: list[Tensor],
    U: Tensor,
    b: Tensor | None,
    name: str,
    activation: str,
    batch_sizes: Tensor | None,
    reverse: bool,
) -> tuple[Tensor, Tensor]:
    act, layout = ACTIVATIONS[activation].value, Layout.of(x, batch_sizes, reverse)
    map, W = _prepared(name, factors, h0.shape[-1])
    inputs = (x.flatten(0, 1) if batch_sizes is None else x) @ U.mT
    h, states = h0[:0], []
    for step in layout:
        h = h[: step.size] if step.carried == step.size else torch.cat([h, h0[step.carried : step.size]])
        h = act(inputs[step.rows] + _state(map.apply(_units(h, map), W), map), b)
        states.append(h)
    output = torch.cat(states[::-1] if reverse else states)
    h_n = output.index_select(0, layout.last_rows(output.device))
    return output.unflatten(0, x.shape[:2]) if batch_sizes is None else output, h_n


@torch.library.custom_op("scornn::product_forward", mutates_args=())
def manual(
    x: Tensor,
    h0: Tensor,
    factors: list[Tensor],
    U: Tensor,
    b: Tensor | None,
    name: str,
    activation: str,
    batch_sizes: Tensor | None,
    reverse: bool,
) -> tuple[Tensor, Tensor]:
    return naive(x, h0, factors, U, b, name, activation, batch_sizes, reverse)


@manual.register_fake
def _(*arguments: Any) -> tuple[Tensor, Tensor]:
    x, h0 = arguments[:2]
    return x.new_empty(*x.shape[:-1], h0.shape[-1]), h0.new_empty(h0.shape)


@torch.library.custom_op("scornn::product_backward", mutates_args=())
def _backward(
    grad_output: Tensor | None,
    grad_h_n: Tensor | None,
    x: Tensor,
    h0: Tensor,
    factors: list[Tensor],
    U: Tensor,
    b: Tensor | None,
    output: Tensor,
    name: str,
    activation: str,
    batch_sizes: Tensor | None,
    reverse: bool,
) -> list[Tensor]:
    """Gradients of x, h0, U, b, and of each factor."""
    layout = Layout.of(x, batch_sizes, reverse)
    map, W = _prepared(name, factors, h0.shape[-1])
    rows = x.flatten(0, 1) if batch_sizes is None else x
    output = output.flatten(0, 1) if batch_sizes is None else output
    dz = torch.zeros_like(output) if grad_output is None else grad_output.reshape(output.shape).clone()
    if grad_h_n is not None:
        dz.index_add_(0, layout.last_rows(dz.device), grad_h_n)
    dh0, db = torch.zeros_like(h0), x.new_zeros(0) if b is None else torch.zeros_like(b)
    pullback = ACTIVATIONS[activation].pullback
    for step in reversed(layout):
        here = dz[step.rows]
        here_dz, here_db = pullback(here, output[step.rows], b)
        here.copy_(here_dz)
        if b is not None:
            db += here_db.sum(0)
        dh = _state(map.adjoint(_units(here, map), W), map)
        dz[step.before : step.before + step.carried] += dh[: step.carried]
        dh0[step.carried : step.size] += dh[step.carried :]
    h = layout.states_before(output, h0)
    by_factor = [torch.zeros_like(factor) for factor in factors]
    size = max(CHUNK // h.shape[1], 1)
    for start in range(0, h.shape[0], size):
        part = slice(start, start + size)
        for total, gradient in zip(
            by_factor, map.gradients(_units(dz[part], map), _units(h[part], map), W), strict=False
        ):
            total += gradient
    return [(dz @ U).view(x.shape), dh0, dz.mT @ rows, db, *by_factor]


@_backward.register_fake
def _(*arguments: Any) -> list[Tensor]:
    x, h0, factors, U, b = arguments[2:7]
    return [x.new_empty(0) if t is None else t.new_empty(t.shape) for t in (x, h0, U, b, *factors)]


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, h0, factors, U, b, ctx.name, ctx.activation, batch_sizes, ctx.reverse = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x, h0, U, b, batch_sizes, output[0], *factors)


def _autograd(ctx: Any, grad_output: Tensor | None, grad_h_n: Tensor | None) -> tuple[Any, ...]:
    x, h0, U, b, batch_sizes, output, *factors = ctx.saved_tensors
    if grad_output is None and grad_h_n is None:
        return None, None, [None] * len(factors), None, None, None, None, None, None
    dx, dh0, dU, db, *by_factor = _backward(
        grad_output, grad_h_n, x, h0, factors, U, b, output, ctx.name, ctx.activation, batch_sizes, ctx.reverse
    )
    trained = [g if g.is_floating_point() else None for g in by_factor]
    return dx, dh0, trained, dU, None if b is None else db, None, None, None, None


def _no_second_derivative(ctx: Any, *grads: Any) -> None:
    raise RuntimeError(
        "The product form of a recurrence has no second derivative here. "
        'Build the layer with backend="naive" to differentiate a gradient.'
    )


manual.register_autograd(_autograd, setup_context=_setup)
_backward.register_autograd(_no_second_derivative, setup_context=lambda ctx, inputs, output: None)
