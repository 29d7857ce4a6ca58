"""The LSTM over a sequence, on the C++ kernel. What defines it is torch.nn.LSTM.

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
    """One layer in one direction: the states, and the last h and c of each sequence.

    Args:
        x, batch_sizes, reverse: as in :func:`scornn.ops.recurrence`; float32 or float64 on the CPU.
        h0, c0: ``(B, n)``.
        W: ``(4n, n)``.
        U: ``(4n, m)``.
        b: ``(4n,)``, or None for zero.
    """
    tensors = (x, h0, c0, W, U, b)
    (batch, n), m = h0.shape, x.shape[-1]
    expected = ((*x.shape,), (batch, n), (batch, n), (4 * n, n), (4 * n, m), (4 * n,))
    for name, t, shape in zip(("x", "h0", "c0", "W", "U", "b"), tensors, expected, strict=True):
        if t is not None and (tuple(t.shape), t.dtype, t.device) != (shape, x.dtype, x.device):
            raise ValueError(
                f"expected {name} of shape {shape}, {x.dtype} on {x.device}; "
                f"got {tuple(t.shape)}, {t.dtype} on {t.device}"
            )
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
