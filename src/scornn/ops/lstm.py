"""The LSTM over a sequence, in two rungs: naive (autograd), which equals torch.nn.LSTM, and the C++ kernel.

Rows of W, U and b stand in torch's order, input gate i, forget gate f, candidate g, output gate o::

    i, f, o = σ(U x + W h + b)        c' = f ⊙ c + i ⊙ g
    g = tanh(U x + W h + b)           h' = o ⊙ tanh(c')
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from scornn.ops import native
from scornn.ops.custom import register
from scornn.ops.layout import Layout, States
from scornn.ops.rung import Operands, Rung, no_second_derivative, recurrence_flops


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
    """On the kernel, one layer in one direction: the states, and the last h and c of each sequence.

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
    output, h_n, c_n, _, _ = _operator(*tensors, batch_sizes, reverse, keep)
    return output, h_n, c_n


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
    """The loop in plain PyTorch; arguments and result as :func:`kernel`."""
    layout = Layout.of(x, batch_sizes, reverse)
    added = layout.rows(x) @ U.mT

    def advance(states: States, here: Tensor) -> States:
        h, c = states
        i, f, g, o = (here + h @ W.mT).chunk(4, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c

    (output, _), (h_n, c_n) = layout.walk(added if b is None else added + b, (h0, c0), advance)
    return output, h_n, c_n


def _operands(x: Tensor, h0: Tensor, W: Tensor, U: Tensor, b: Any, batch_sizes: Any, reverse: bool) -> Operands:
    return Operands(x, h0, W, U, b, "lstm", batch_sizes, reverse)


def _forward(*arguments: Any) -> tuple[Tensor, ...]:
    x, h0, c0, W, U, b, batch_sizes, reverse, keep = arguments
    if batch_sizes is not None:
        native.check_sizes(batch_sizes, x.shape[0])
    output, h_n, c_n, every, gates = _empty_results(*arguments)
    cells = native.Cells(c0, c_n, every, gates) if keep else native.Cells(c0, c_n)
    native.Call(_operands(x, h0, W, U, b, batch_sizes, reverse), output, h_n, cells=cells).forward()
    return output, h_n, c_n, every, gates


def _empty_results(*arguments: Any) -> tuple[Tensor, ...]:
    """What the forward pass fills: states, last h and c, and for the backward pass, or empty, c and the gates."""
    x, h0, keep = arguments[0], arguments[1], arguments[-1]
    n = h0.shape[-1]
    kept = [x.new_empty(*x.shape[:-1], size) if keep else x.new_empty(0) for size in (n, 4 * n)]
    return x.new_empty(*x.shape[:-1], n), h0.new_empty(h0.shape), h0.new_empty(h0.shape), *kept


def _backward(grads: Any, kept: Any, arguments: Any, needs: Any) -> list[Tensor | None]:
    x, h0, c0, W, U, b, batch_sizes, reverse, _ = arguments
    output, every, gates = kept
    g_h_n, g_c_n = (None if g is None else native.dense(g) for g in grads[1:])
    dx, dh0, dc0 = (t.new_empty(t.shape) if need else None for t, need in zip((x, h0, c0), needs[:3], strict=True))
    incoming, outgoing = {"h_n": g_h_n, "c_n": g_c_n}, {"x": dx, "h0": dh0, "c0": dc0}
    weights = [p if need else None for p, need in zip((W, U, b), needs[3:], strict=True)]
    operands, cells = _operands(x, h0, W, U, b, batch_sizes, reverse), native.Cells(c0, None, every, gates)
    sums = native.Call(operands, output, None, cells=cells).backward(
        grads[0], {name: native.address(t) for name, t in (incoming | outgoing).items()}, [*weights, None]
    )
    return [dx, dh0, dc0, *sums[:3]]


_operator = register(
    "lstm",
    "Tensor x, Tensor h0, Tensor c0, Tensor W, Tensor U, Tensor? b, Tensor? batch_sizes, bool reverse, bool keep",
    _forward,
    _empty_results,
    _backward,
    inputs=6,
    results=5,
    differentiable=3,
    kept=(0, 3, 4),
    second_derivative=no_second_derivative("native"),
    flops=lambda x, h0, c0, W, U, *others: recurrence_flops(x, h0, W, U),
)
RUNGS = (
    Rung("native", kernel, native.RUNG.unavailable, native.RUNG.refuses),
    Rung("naive", naive, opaque=False),
)
