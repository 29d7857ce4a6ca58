"""Gated units over a sequence, LSTM, GRU and GORU: naive (autograd), a hand-written backward of GORU, the C++ kernel.

Rows of W and U stand in torch's order: of an LSTM input gate i, forget gate f, candidate g, output gate o::

    i, f, o = σ(U x + W h + b)        c' = f ⊙ c + i ⊙ g
    g = tanh(U x + W h + b)           h' = o ⊙ tanh(c')

and of the others reset gate r, update gate g, candidate c, where b has a fourth part s beside W_c h::

    r = σ(U_r x + W_r h + b_r)        c  = act(r ⊙ (W_c h + b_s) + U_c x, b_c)
    g = σ(U_g x + W_g h + b_g)        h' = g ⊙ h + (1 − g) ⊙ c

With act(a, b) = tanh(a + b) this is torch.nn.GRU, with modReLU and no s the gated orthogonal unit.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from scornn.functional import modrelu
from scornn.ops import native
from scornn.ops.custom import register
from scornn.ops.layout import Layout, States
from scornn.ops.rung import (
    Gradients,
    Incoming,
    Needs,
    Operands,
    Rung,
    no_second_derivative,
    recurrence_flops,
    recurrence_operator,
)


def kernel(*arguments: Any, c0: Tensor | None = None) -> tuple[Tensor, ...]:
    """On the kernel, one layer in one direction: the states and the last of each sequence, of an LSTM also the last c.

    Takes the fields of :class:`~scornn.ops.rung.Operands` in float32 or float64 on the CPU, with ``lstm``, ``gru`` or
    ``goru`` for the activation: W ``(gn, n)`` and U ``(gn, m)``, where g is 4 of an LSTM and 3 of the others, and b
    ``(4n,)`` or None for zero. An LSTM also takes c0 ``(B, n)``.
    """
    x, h0, W, U, b, *settings = operands = Operands(*arguments)
    native.check_shapes(operands, h0.shape[0], c0)
    tensors = (x, h0, c0, W, U, b)
    keep = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)
    output, h_n, c_n, _, _ = _operator(*tensors, *settings, keep)
    return (output, h_n) if c0 is None else (output, h_n, c_n)


def naive(*arguments: Any, c0: Tensor | None = None, R: Tensor | None = None) -> tuple[Tensor, ...]:
    """In plain PyTorch; arguments and result as :func:`kernel`. R ``(r, n)`` projects an LSTM's h."""
    x, h0, W, U, b, activation, batch_sizes, reverse = Operands(*arguments)
    layout = Layout.of(x, batch_sizes, reverse)
    added = layout.rows(x) @ U.mT

    def advance(states: States, here: Tensor) -> States:
        h, *cell = states
        if not cell:
            return (step(here, h, W, b, activation),)
        h, c = lstm_step(here if b is None else here + b, h, cell[0], W)
        return h if R is None else h @ R.mT, c

    every, last = layout.walk(added, (h0,) if c0 is None else (h0, c0), advance)
    return every[0], *last


def step(added: Tensor, h: Tensor, W: Tensor, b: Tensor | None, activation: str) -> Tensor:
    """The state of a GRU or GORU after one step, from U x and the state before it."""
    b_r, b_g, b_c, b_s = (h.new_zeros(4, 1) if b is None else b.unflatten(0, (4, -1))).unbind()
    (a_r, a_g, a_c), (s_r, s_g, s_c) = added.chunk(3, -1), (h @ W.mT).chunk(3, -1)
    r, g = torch.sigmoid(a_r + s_r + b_r), torch.sigmoid(a_g + s_g + b_g)
    a = r * (s_c + b_s) + a_c
    c = torch.tanh(a + b_c) if activation == "gru" else modrelu(a, b_c)
    return g * h + (1 - g) * c


def lstm_step(added: Tensor, h: Tensor, c: Tensor, W: Tensor) -> tuple[Tensor, Tensor]:
    """h and c of an LSTM after one step, from U x + b and those before it."""
    i, f, g, o = (added + h @ W.mT).chunk(4, -1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def _forward(*arguments: Any) -> tuple[Tensor, ...]:
    x, h0, c0, W, U, b, activation, batch_sizes, reverse, keep = arguments
    output, h_n, c_n, every, gates = made = _empty_results(*arguments)
    kept = (every if c0 is not None else None, gates) if keep else (None, None)
    cells = native.Cells(c0, None if c0 is None else c_n, *kept)
    native.Call(Operands(x, h0, W, U, b, activation, batch_sizes, reverse), output, h_n, cells=cells).forward()
    return made


def _empty_results(*arguments: Any) -> tuple[Tensor, ...]:
    """What the forward pass fills: states, last h and c, and for the backward pass every c and the gates; or empty."""
    x, h0, c0, keep = *arguments[:3], arguments[-1]
    n, last_c = h0.shape[-1], x.new_empty(0) if c0 is None else h0.new_empty(h0.shape)
    sizes = (n if c0 is not None else 0, 4 * n) if keep else (0, 0)
    kept = [x.new_empty(*x.shape[:-1], size) if size else x.new_empty(0) for size in sizes]
    return x.new_empty(*x.shape[:-1], n), h0.new_empty(h0.shape), last_c, *kept


def _backward(grads: Any, kept: Any, arguments: Any, needs: Any) -> list[Tensor | None]:
    x, h0, c0, W, U, b, activation, batch_sizes, reverse, _ = arguments
    output, every, gates = kept
    cells = native.Cells(c0, None, every if c0 is not None else None, gates)
    call = native.Call(Operands(x, h0, W, U, b, activation, batch_sizes, reverse), output, None, cells=cells)
    dx, dh0, dc0, *weights = native.wanted((x, h0, c0, W, U, b), needs)
    incoming, states = {"h_n": grads[1], "c_n": grads[2]}, {"x": dx, "h0": dh0, "c0": dc0}
    made, sums = call.backward(grads[0], incoming, states, [*weights, None])
    return [*made, *sums[:3]]


_operator = register(
    "gated",
    "Tensor x, Tensor h0, Tensor? c0, Tensor W, Tensor U, Tensor? b, str activation, Tensor? batch_sizes, "
    "bool reverse, bool keep",
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


def _goru(run: Any) -> Any:
    """With the three parts of a GORU's b: nothing beside W h."""

    def without_s(*arguments: Any) -> tuple[Tensor, ...]:
        operands = Operands(*arguments)
        b = None if operands.b is None else torch.cat([operands.b, operands.b.new_zeros(operands.h0.shape[-1])])
        return run(*operands._replace(b=b, activation="goru"))

    return without_s


def _goru_backward(incoming: Incoming, operands: Operands, output: Tensor, needs: Needs) -> Gradients:
    """Needs the states alone: the gates of all time steps come back from them in one matrix product, and only the
    chain from step to step is a loop."""
    x, h0, W, U, b, _, batch_sizes, reverse = operands
    layout = Layout.of(x, batch_sizes, reverse)
    rows, output = layout.rows(x), layout.rows(output)
    h = layout.states_before(output, h0)
    s = h @ W.mT
    b_r, b_g, b_c = (x.new_zeros(3, 1) if b is None else b.unflatten(0, (3, -1))).unbind()
    (a_r, a_g, a_c), (s_r, s_g, s_c) = (rows @ U.mT).chunk(3, -1), s.chunk(3, -1)
    r, g = torch.sigmoid(a_r + s_r + b_r), torch.sigmoid(a_g + s_g + b_g)
    c = modrelu(r * s_c + a_c, b_c)
    to_c = torch.where(c == 0, 0, 1 - g)  # ∂h'/∂z_c
    to_g = (h - c) * g * (1 - g)
    to_r = to_c * s_c * r * (1 - r)
    to_s = torch.cat([to_r, to_g, to_c * r], -1)  # ∂h'/∂s

    def pull(here: Tensor, rows: slice) -> Tensor:
        return here * g[rows] + (here.repeat(1, 3) * to_s[rows]) @ W

    dh, dh0 = layout.walk_back(incoming.output, incoming.h_n, h0, pull, output)
    ds = dh.repeat(1, 3) * to_s
    da = torch.cat([ds[:, : -c.shape[1]], dh * to_c], -1)
    db = torch.cat([da[:, : -c.shape[1]], dh * to_c * c.sign()], -1).sum(0) if b is not None else None
    return Gradients(
        x=(da @ U).view(x.shape) if needs.x else None,
        h0=dh0 if needs.h0 else None,
        W=ds.mT @ h if needs.W else None,
        U=da.mT @ rows if needs.U else None,
        b=db if needs.b else None,
    )


RUNGS = (
    Rung("native", kernel, native.RUNG.unavailable, native.RUNG.refuses),
    Rung("naive", naive, opaque=False),
)
GORU_RUNGS = (
    Rung("native", _goru(kernel), native.RUNG.unavailable, native.RUNG.refuses),
    Rung("manual", recurrence_operator("goru", lambda operands: _goru(naive)(*operands), _goru_backward, "manual")),
    Rung("naive", _goru(naive), opaque=False),
)
