"""The LSTM over a sequence: a loop in plain PyTorch that defines it, and the C++ kernel.

Rows of W, U and b stand in torch's order, input gate i, forget gate f, candidate g, output gate o::

    i, f, o = σ(U x + W h + b)        c' = f ⊙ c + i ⊙ g
    g = tanh(U x + W h + b)           h' = o ⊙ tanh(c')
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from scornn.ops import native
from scornn.ops.custom import Operands, empty_gradients, refuse_second_derivative
from scornn.ops.layout import Layout


def naive(
    x: Tensor,
    h0: Tensor,
    c0: Tensor,
    W: Tensor,
    U: Tensor,
    b: Tensor | None,
    batch_sizes: Tensor | None = None,
    reverse: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """x, batch_sizes and the states as in :func:`scornn.ops.recurrence`; returns the states, and the last h and c."""
    layout = Layout.of(x, batch_sizes, reverse)
    added = (x.flatten(0, 1) if batch_sizes is None else x) @ U.mT
    added = added if b is None else added + b
    h, c, states, cells = h0[:0], c0[:0], [], []
    for step in layout:
        h = torch.cat([h[: step.carried], h0[step.carried : step.size]])
        c = torch.cat([c[: step.carried], c0[step.carried : step.size]])
        i, f, g, o = (added[step.rows] + h @ W.mT).chunk(4, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        states.append(h)
        cells.append(c)
    output, every = (torch.cat(steps[::-1] if reverse else steps) for steps in (states, cells))
    last = layout.last_rows(output.device)
    h_n, c_n = output.index_select(0, last), every.index_select(0, last)
    return output.unflatten(0, x.shape[:2]) if batch_sizes is None else output, h_n, c_n


def kernel(
    x: Tensor,
    h0: Tensor,
    c0: Tensor,
    W: Tensor,
    U: Tensor,
    b: Tensor | None,
    batch_sizes: Tensor | None = None,
    reverse: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """As :func:`naive`, on the C++ kernel: float32 or float64 on the CPU."""
    tensors = (x, h0, c0, W, U, b)
    keep = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)
    output, h_n, c_n, _, _ = _forward(*tensors, batch_sizes, reverse, keep)
    return output, h_n, c_n


_INPUTS = "Tensor x, Tensor h0, Tensor c0, Tensor W, Tensor U, Tensor? b, Tensor? batch_sizes, bool reverse"


def _operands(x: Tensor, h0: Tensor, W: Tensor, U: Tensor, b: Any, batch_sizes: Any, reverse: bool) -> Operands:
    return Operands(x, h0, W, U, b, "lstm", batch_sizes, reverse)


@torch.library.custom_op(
    "scornn::lstm_forward",
    mutates_args=(),
    schema=f"({_INPUTS}, bool keep) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def _forward(*arguments: Any) -> tuple[Tensor, ...]:
    x, h0, c0, W, U, b, batch_sizes, reverse, keep = arguments
    if batch_sizes is not None:
        native.check_sizes(batch_sizes, x.shape[0])
    output, h_n, c_n, every, gates = _results(x, h0, keep)
    cells = native.Cells(c0, c_n, every, gates) if keep else native.Cells(c0, c_n)
    native.Call(_operands(x, h0, W, U, b, batch_sizes, reverse), output, h_n, cells=cells).forward()
    return output, h_n, c_n, every, gates


def _results(x: Tensor, h0: Tensor, keep: bool) -> tuple[Tensor, ...]:
    """What the forward pass fills: states, last h and c, and for the backward pass, or empty, c and the gates."""
    n = h0.shape[-1]
    kept = [x.new_empty(*x.shape[:-1], size) if keep else x.new_empty(0) for size in (n, 4 * n)]
    return x.new_empty(*x.shape[:-1], n), h0.new_empty(h0.shape), h0.new_empty(h0.shape), *kept


@torch.library.custom_op(
    "scornn::lstm_backward",
    mutates_args=(),
    schema="(Tensor? g_output, Tensor? g_h_n, Tensor? g_c_n, Tensor output, Tensor every, Tensor gates, "
    f"{_INPUTS}, bool[] needs) -> Tensor[]",
)
def _backward(*arguments: Any) -> list[Tensor]:
    g_output, g_h_n, g_c_n, output, every, gates, x, h0, c0, W, U, b, batch_sizes, reverse, needs = arguments
    g_h_n, g_c_n = (None if g is None else native.dense(g) for g in (g_h_n, g_c_n))
    dx, dh0, dc0 = (t.new_empty(t.shape) if need else None for t, need in zip((x, h0, c0), needs[:3], strict=True))
    incoming, outgoing = {"h_n": g_h_n, "c_n": g_c_n}, {"x": dx, "h0": dh0, "c0": dc0}
    weights = [p if need else None for p, need in zip((W, U, b), needs[3:], strict=True)]
    operands, cells = _operands(x, h0, W, U, b, batch_sizes, reverse), native.Cells(c0, None, every, gates)
    sums = native.Call(operands, output, None, cells=cells).backward(
        g_output, {name: native.address(t) for name, t in (incoming | outgoing).items()}, [*weights, None]
    )
    return [output.new_empty(0) if g is None else g for g in (dx, dh0, dc0, *sums[:3])]


@_forward.register_fake
def _(*arguments: Any) -> tuple[Tensor, ...]:
    return _results(arguments[0], arguments[1], arguments[-1])


@_backward.register_fake
def _(*arguments: Any) -> list[Tensor]:
    return empty_gradients(arguments[6:12], arguments[-1])


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, batch_sizes, ctx.reverse, _ = inputs
    states, _, _, every, gates = output
    ctx.mark_non_differentiable(every, gates)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(states, every, gates, *tensors, batch_sizes)


def _autograd(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
    if all(g is None for g in grads[:3]):
        return (None,) * 9
    needs = list(ctx.needs_input_grad[:6])
    gradients = _backward(*grads[:3], *ctx.saved_tensors, ctx.reverse, needs)
    return (*(g if need else None for g, need in zip(gradients, needs, strict=True)), None, None, None)


_forward.register_autograd(_autograd, setup_context=_setup)
refuse_second_derivative(_backward, "native")
