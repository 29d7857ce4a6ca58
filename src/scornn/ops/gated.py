"""Units with a reset and an update gate over a sequence, GRU and GORU: naive (autograd), and the C++ kernel.

Rows of W and U stand in the order reset gate r, update gate g, candidate c; b has a fourth part s beside W_c h::

    r = σ(U_r x + W_r h + b_r)        c  = act(r ⊙ (W_c h + b_s) + U_c x, b_c)
    g = σ(U_g x + W_g h + b_g)        h' = g ⊙ h + (1 − g) ⊙ c

With act(a, b) = tanh(a + b) this is torch.nn.GRU, with modReLU the gated orthogonal unit.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from scornn.functional import modrelu
from scornn.ops import native
from scornn.ops.custom import register
from scornn.ops.layout import Layout, States
from scornn.ops.rung import Operands, Rung, no_second_derivative, recurrence_flops


def kernel(
    x: Tensor,
    h0: Tensor,
    W: Tensor,
    U: Tensor,
    b: Tensor | None,
    activation: str,
    batch_sizes: Tensor | None = None,
    reverse: bool = False,
) -> tuple[Tensor, Tensor]:
    """On the kernel, one layer in one direction: the states, and the last state of each sequence.

    Args:
        x, batch_sizes, reverse: as in :func:`scornn.ops.recurrence`; float32 or float64 on the CPU.
        h0: ``(B, n)``.
        W: ``(3n, n)``.
        U: ``(3n, m)``.
        b: ``(4n,)``, or None for zero.
        activation: ``gru`` or ``goru``.
    """
    tensors = (x, h0, W, U, b)
    (batch, n), m = h0.shape, x.shape[-1]
    expected = ((*x.shape,), (batch, n), (3 * n, n), (3 * n, m), (4 * n,))
    for name, t, shape in zip(("x", "h0", "W", "U", "b"), tensors, expected, strict=True):
        if t is not None and (tuple(t.shape), t.dtype, t.device) != (shape, x.dtype, x.device):
            raise ValueError(
                f"expected {name} of shape {shape}, {x.dtype} on {x.device}; "
                f"got {tuple(t.shape)}, {t.dtype} on {t.device}"
            )
    keep = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)
    output, h_n, _ = _operator(*tensors, activation, batch_sizes, reverse, keep)
    return output, h_n


def naive(
    x: Tensor,
    h0: Tensor,
    W: Tensor,
    U: Tensor,
    b: Tensor | None,
    activation: str,
    batch_sizes: Tensor | None = None,
    reverse: bool = False,
) -> tuple[Tensor, Tensor]:
    """The loop in plain PyTorch; arguments and result as :func:`kernel`."""
    layout = Layout.of(x, batch_sizes, reverse)
    b_r, b_g, b_c, b_s = (x.new_zeros(4, 1) if b is None else b.unflatten(0, (4, -1))).unbind()

    def advance(states: States, added: Tensor) -> States:
        (h,) = states
        (a_r, a_g, a_c), (s_r, s_g, s_c) = added.chunk(3, -1), (h @ W.mT).chunk(3, -1)
        r, g = torch.sigmoid(a_r + s_r + b_r), torch.sigmoid(a_g + s_g + b_g)
        a = r * (s_c + b_s) + a_c
        c = torch.tanh(a + b_c) if activation == "gru" else modrelu(a, b_c)
        return (g * h + (1 - g) * c,)

    (output,), (h_n,) = layout.walk(layout.rows(x) @ U.mT, (h0,), advance)
    return output, h_n


def _forward(*arguments: Any) -> tuple[Tensor, ...]:
    *operands, keep = arguments
    x, batch_sizes = arguments[0], arguments[6]
    if batch_sizes is not None:
        native.check_sizes(batch_sizes, x.shape[0])
    output, h_n, gates = _empty_results(*arguments)
    native.Call(Operands(*operands), output, h_n, cells=native.Cells(gates=gates) if keep else None).forward()
    return output, h_n, gates


def _empty_results(*arguments: Any) -> tuple[Tensor, ...]:
    """What the forward pass fills: states, the last ones, and for the backward pass, or empty, r, g, c and s."""
    x, h0, keep = arguments[0], arguments[1], arguments[-1]
    n = h0.shape[-1]
    gates = x.new_empty(*x.shape[:-1], 4 * n) if keep else x.new_empty(0)
    return x.new_empty(*x.shape[:-1], n), h0.new_empty(h0.shape), gates


def _backward(grads: Any, kept: Any, arguments: Any, needs: Any) -> list[Tensor | None]:
    operands, (output, gates) = Operands(*arguments[:-1]), kept
    g_h_n = None if grads[1] is None else native.dense(grads[1])
    dx, dh0 = (t.new_empty(t.shape) if need else None for t, need in zip(operands[:2], needs[:2], strict=True))
    weights = [p if need else None for p, need in zip(operands[2:5], needs[2:], strict=True)]
    others = {name: native.address(t) for name, t in (("h_n", g_h_n), ("x", dx), ("h0", dh0))}
    sums = native.Call(operands, output, None, cells=native.Cells(gates=gates)).backward(
        grads[0], others, [*weights, None]
    )
    return [dx, dh0, *sums[:3]]


_operator = register(
    "gated",
    "Tensor x, Tensor h0, Tensor W, Tensor U, Tensor? b, str activation, Tensor? batch_sizes, bool reverse, bool keep",
    _forward,
    _empty_results,
    _backward,
    inputs=5,
    results=3,
    differentiable=2,
    kept=(0, 2),
    second_derivative=no_second_derivative("native"),
    flops=recurrence_flops,
)
RUNGS = (
    Rung("native", kernel, native.RUNG.unavailable, native.RUNG.refuses),
    Rung("naive", naive, opaque=False),
)
