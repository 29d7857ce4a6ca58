"""A recurrence and the linear head that reads its states: y_t = V h_t + c, in one pass where the kernel runs.

What defines the operator is :func:`torch.nn.functional.linear` on the states of :func:`scornn.ops.recurrence`. On the
kernel the head reads a state while it is in cache, and the gradient that comes in is that of y, thin as y, where the
plain way writes and reads one as large as all the states.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from scornn.ops import native
from scornn.ops.custom import (
    SETTINGS,
    WEIGHTS,
    Incoming,
    Needs,
    Operands,
    empty_gradients,
    refuse_second_derivative,
)
from scornn.ops.recurrence import check, choose_rung

WIDEST = 4
"""A head is read in the same pass where it has at most 1/WIDEST as many outputs as there are states: the kernel carries
dy along in products with x and W, which for a wide head costs more than a pass of its own."""


def readout(
    x: Tensor,
    h0: Tensor,
    W: Tensor,
    U: Tensor,
    b: Tensor | None,
    V: Tensor,
    c: Tensor,
    *,
    activation: str = "modrelu",
    batch_sizes: Tensor | None = None,
    reverse: bool = False,
    backend: str = "auto",
) -> tuple[Tensor, Tensor]:
    r"""Run :math:`h_t = \mathrm{act}(U x_t + W h_{t-1})` and read :math:`y_t = V h_t + c`.

    Args:
        x, h0, W, U, b, activation, batch_sizes, reverse, backend: as :func:`scornn.ops.recurrence`. ``native`` reads
            in the same pass whatever the sizes, ``auto`` where that is faster.
        V: ``(p, n)``.
        c: ``(p,)``.

    Returns:
        y ``(T, B, p)`` or ``(N, p)``, and the last state of each sequence ``(B, n)``.

    Example:
        >>> I, x = torch.eye(2), torch.ones(3, 1, 2)
        >>> readout(x, torch.zeros(1, 2), I, I, None, torch.ones(1, 2), torch.zeros(1), activation="identity")[0][-1]
        tensor([[6.]])
    """
    check(x, h0, W, U, b, activation, batch_sizes)
    if V.dim() != 2 or V.shape[1] != W.shape[0] or c.shape != V.shape[:1]:
        raise ValueError(
            f"expected V of shape (p, {W.shape[0]}) and c of shape (p,), got {tuple(V.shape)} and {tuple(c.shape)}"
        )
    rung = choose_rung(backend, x)
    alike = V.dtype == c.dtype == x.dtype and V.device == c.device == x.device
    autocast = x.device.type != "meta" and torch.is_autocast_enabled(x.device.type)
    worth_it = backend == "native" or WIDEST * V.shape[0] <= V.shape[1]
    if rung is native.recurrence and alike and worth_it and not autocast:
        _, h_n, y = _forward(x, h0, W, U, b, V, c, activation, batch_sizes, reverse)
        return y, h_n
    output, h_n = rung(x, h0, W, U, b, activation, batch_sizes, reverse)
    return F.linear(output, V, c), h_n


_INPUTS = f"{WEIGHTS}, Tensor V, Tensor c"


@torch.library.custom_op(
    "scornn::readout_forward", mutates_args=(), schema=f"({_INPUTS}, {SETTINGS}) -> (Tensor, Tensor, Tensor)"
)
def _forward(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    *weights, V, c = arguments[:7]
    operands = Operands(*weights, *arguments[7:])
    y = operands.x.new_empty(*operands.x.shape[:-1], V.shape[0])
    output, h_n = native.forward(operands, native.Head(V, c, y))
    return output, h_n, y


@torch.library.custom_op(
    "scornn::readout_backward",
    mutates_args=(),
    schema=f"(Tensor? g_output, Tensor? g_h_n, Tensor g_y, Tensor output, {_INPUTS}, {SETTINGS}, bool[] needs)"
    " -> Tensor[]",
)
def _backward(*arguments: Any) -> list[Tensor]:
    g_output, g_h_n, g_y, output = arguments[:4]
    *weights, V, c = arguments[4:11]
    *settings, (*needs, needs_V, needs_c) = arguments[11:]
    incoming, operands = Incoming(g_output, g_h_n), Operands(*weights, *settings)
    gradients, dV = native.backward_with_head(
        incoming, g_y, operands, output, Needs(*needs), native.Head(V, c), needs_V
    )
    dc = g_y.flatten(0, -2).sum(0) if needs_c else None
    return [output.new_empty(0) if gradient is None else gradient for gradient in (*gradients, dV, dc)]


@_forward.register_fake
def _(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    x, h0, V = arguments[0], arguments[1], arguments[5]
    return x.new_empty(*x.shape[:-1], h0.shape[-1]), h0.new_empty(h0.shape), x.new_empty(*x.shape[:-1], V.shape[0])


@_backward.register_fake
def _(*arguments: Any) -> list[Tensor]:
    return empty_gradients(arguments[4:11], arguments[-1])


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    *tensors, ctx.activation, batch_sizes, ctx.reverse = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(output[0], *tensors, batch_sizes)


def _autograd(ctx: Any, g_output: Tensor | None, g_h_n: Tensor | None, g_y: Tensor | None) -> tuple[Tensor | None, ...]:
    if g_output is None and g_h_n is None and g_y is None:
        return (None,) * 10
    output, *tensors, batch_sizes = ctx.saved_tensors
    if g_y is None:
        g_y = output.new_zeros(*output.shape[:-1], tensors[5].shape[0])
    needs = list(ctx.needs_input_grad[:7])
    settings = (ctx.activation, batch_sizes, ctx.reverse)
    gradients = _backward(g_output, g_h_n, g_y, output, *tensors, *settings, needs)
    return (*(g if need else None for g, need in zip(gradients, needs, strict=True)), None, None, None)


_forward.register_autograd(_autograd, setup_context=_setup)
refuse_second_derivative(_backward, "native")
