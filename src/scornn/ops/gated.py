"""Gated units over a sequence, LSTM, GRU and GORU: naive (autograd), torch's own loop, a hand-written backward of GORU,
the C++ kernel.

Rows of W and U stand in torch's order: of an LSTM input gate i, forget gate f, candidate g, output gate o::

    i, f, o = σ(U x + W h + b)        c' = f ⊙ c + i ⊙ g
    g = tanh(U x + W h + b)           h' = o ⊙ tanh(c')

and of the others reset gate r, update gate g, candidate c, where b has a fourth part s beside W_c h::

    r = σ(U_r x + W_r h + b_r)        c  = act(r ⊙ (W_c h + b_s) + U_c x, b_c)
    g = σ(U_g x + W_g h + b_g)        h' = g ⊙ h + (1 − g) ⊙ c

With act(a, b) = tanh(a + b) this is torch.nn.GRU, with modReLU and no s the gated orthogonal unit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from scornn.functional import modrelu
from scornn.ops import native
from scornn.ops.custom import register
from scornn.ops.layout import Layout, Order, States
from scornn.ops.rung import (
    CELLS,
    Cell,
    Gradients,
    Incoming,
    Needs,
    Operands,
    Rung,
    plainly,
    recurrence_flops,
    recurrence_operator,
)
from scornn.torch_internals import gates_loop


def naive(operands: Operands) -> tuple[Tensor, ...]:
    """In plain PyTorch. Of an LSTM also the last c."""
    x, h0, W, U, b, cell, batch_sizes, reverse, c0, R = operands
    layout = Layout.of(x, batch_sizes, reverse)
    added = layout.rows(x) @ U.mT

    def advance(states: States, here: Tensor) -> States:
        h, *c = states
        if not c:
            return (step(here, h, W, b, cell),)
        h, after = lstm_step(here if b is None else here + b, h, c[0], W)
        return h if R is None else h @ R.mT, after

    every, last = layout.walk(added, (h0,) if c0 is None else (h0, c0), advance)
    return every[0], *last


CANDIDATES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"gru": lambda a, b: torch.tanh(a + b), "goru": modrelu}
"""act(a, b) of the cells with a reset gate and an update gate."""


def step(added: Tensor, h: Tensor, W: Tensor, b: Tensor | None, cell: str) -> Tensor:
    """The state of a GRU or GORU after one step, from U x and the state before it."""
    b_r, b_g, b_c, b_s = (h.new_zeros(4, 1) if b is None else b.unflatten(0, (4, -1))).unbind()
    (a_r, a_g, a_c), (s_r, s_g, s_c) = added.chunk(3, -1), (h @ W.mT).chunk(3, -1)
    r, g = torch.sigmoid(a_r + s_r + b_r), torch.sigmoid(a_g + s_g + b_g)
    a = r * (s_c + b_s) + a_c
    return g * h + (1 - g) * CANDIDATES[cell](a, b_c)


def lstm_step(added: Tensor, h: Tensor, c: Tensor, W: Tensor) -> tuple[Tensor, Tensor]:
    """h and c of an LSTM after one step, from U x + b and those before it."""
    i, f, g, o = (added + h @ W.mT).chunk(4, -1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def _torch_loop(operands: Operands) -> tuple[Tensor, ...]:
    """By torch.nn.LSTM's and GRU's own loop, which has two biases: the second holds what stands beside W h."""
    x, h0, W, U, b, cell, batch_sizes, reverse, c0, R = operands
    weights = [U, W]
    if b is not None:
        nothing = torch.zeros_like(b)
        gates, n = len(U), b.shape[0] // 4
        weights += [b, nothing] if cell == "lstm" else [b[:gates], torch.cat([nothing[: 2 * n], b[gates:]])]
    weights += [] if R is None else [R]
    first: Any = h0.unsqueeze(0) if c0 is None else (h0.unsqueeze(0), c0.unsqueeze(0))
    settings, loop = (b is not None, 1, 0.0, False, False), gates_loop(cell)
    if batch_sizes is None:
        output, *last = loop(x.flip(0) if reverse else x, first, weights, *settings, False)
        output = output.flip(0) if reverse else output
    else:
        order = Order(x, batch_sizes, reverse).index if reverse else None
        output, *last = loop(x if order is None else x[order], batch_sizes, first, weights, *settings)
        output = output if order is None else output[order]
    return output, *(h.squeeze(0) for h in last)


class Arguments(NamedTuple):
    """What the kernel's operator takes. ``keep``: whether there will be a backward pass."""

    x: Tensor
    h0: Tensor
    c0: Tensor | None
    W: Tensor
    U: Tensor
    b: Tensor | None
    activation: str
    batch_sizes: Tensor | None
    reverse: bool
    keep: bool

    @property
    def operands(self) -> Operands:
        x, h0, c0, W, U, b, cell, batch_sizes, reverse, _ = self
        return Operands(x, h0, W, U, b, cell, batch_sizes, reverse, c0)


def kernel(operands: Operands) -> tuple[Tensor, ...]:
    """On the kernel, in float32 or float64 on the CPU."""
    x, h0, W, U, b, cell, batch_sizes, reverse, c0, _ = operands
    tensors: Any = (x, h0, c0, W, U, b)
    keep = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)
    output, h_n, c_n, _, _ = _operator(*tensors, cell, batch_sizes, reverse, keep)
    return (output, h_n) if c0 is None else (output, h_n, c_n)


def _cells(c0: Tensor | None, c_n: Tensor | None, every: Tensor, gates: Tensor) -> native.Cells:
    return native.Cells(None, None, gates) if c0 is None else native.Cells(c_n, every, gates)


def _forward(given: Arguments) -> tuple[Tensor, ...]:
    native.require(given.operands)
    output, h_n, c_n, every, gates = made = _empty_results(*given)
    cells = _cells(given.c0, c_n, every, gates)
    native.Call(given.operands, output, h_n, cells=cells if given.keep else native.Cells(cells.c_n)).forward()
    return made


def _empty_results(*arguments: Any) -> tuple[Tensor, ...]:
    """What the forward pass fills: states, last h and c, and for the backward pass every c and the gates; or empty."""
    x, h0, c0, keep = *arguments[:3], arguments[-1]
    n, last_c = h0.shape[-1], x.new_empty(0) if c0 is None else h0.new_empty(h0.shape)
    sizes = (n if c0 is not None else 0, 4 * n) if keep else (0, 0)
    kept = [x.new_empty(*x.shape[:-1], size) if size else x.new_empty(0) for size in sizes]
    return x.new_empty(*x.shape[:-1], n), h0.new_empty(h0.shape), last_c, *kept


def _backward(grads: Any, kept: Any, given: Arguments, needs: Any) -> list[Tensor | None]:
    native.require(given.operands)
    output, every, gates = kept
    call = native.Call(given.operands, output, None, cells=_cells(given.c0, None, every, gates))
    dx, dh0, dc0, *weights = native.wanted(given[:6], needs)
    incoming, states = {"h_n": grads[1], "c_n": grads[2]}, {"x": dx, "h0": dh0, "c0": dc0}
    made, sums = call.backward(grads[0], incoming, states, [*weights, None])
    return [*made, *sums[:3]]


_operator = register(
    "gated",
    Arguments,
    _forward,
    _backward,
    empty=_empty_results,
    results=5,
    differentiable=3,
    kept=(0, 3, 4),
    plain=lambda given: plainly(given.operands),
    flops=lambda x, h0, c0, W, U, *others: recurrence_flops(x, h0, W, U),
)


def _goru_backward(incoming: Incoming, operands: Operands, output: Tensor, needs: Needs) -> Gradients:
    """Needs the states alone: the gates of all time steps come back from them in one matrix product, and only the
    chain from step to step is a loop."""
    x, h0, W, U, b, _, batch_sizes, reverse = operands[:8]
    layout = Layout.of(x, batch_sizes, reverse)
    rows, output = layout.rows(x), layout.rows(output)
    h = layout.states_before(output, h0)
    s = h @ W.mT
    b_r, b_g, b_c, b_s = (x.new_zeros(4, 1) if b is None else b.unflatten(0, (4, -1))).unbind()
    (a_r, a_g, a_c), (s_r, s_g, s_c) = (rows @ U.mT).chunk(3, -1), s.chunk(3, -1)
    r, g = torch.sigmoid(a_r + s_r + b_r), torch.sigmoid(a_g + s_g + b_g)
    s_c = s_c + b_s
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
    db = torch.cat([da[:, : -c.shape[1]], dh * to_c * c.sign(), dh * to_c * r], -1).sum(0) if b is not None else None
    return Gradients(
        x=(da @ U).view(x.shape) if needs.x else None,
        h0=dh0 if needs.h0 else None,
        W=ds.mT @ h if needs.W else None,
        U=da.mT @ rows if needs.U else None,
        b=db if needs.b else None,
    )


def _refuses_projections(operands: Operands) -> str | None:
    return native.refuses(operands) if operands.R is None else "it has no projections (proj_size)"


_NATIVE, _NAIVE = native.rung(kernel), Rung("naive", naive, opaque=False)
_TORCH = Rung("torch", _torch_loop)  # it has no rule for torch.func's transforms either
_MANUAL = Rung("manual", recurrence_operator("goru", naive, _goru_backward, "manual"))
CELLS["lstm"] = Cell((_NATIVE._replace(refuses=_refuses_projections), _TORCH, _NAIVE), 64, gates=4, biases=4)
CELLS["gru"] = Cell((_NATIVE, _TORCH, _NAIVE), 65, gates=3, biases=4)
CELLS["goru"] = Cell((_NATIVE, _MANUAL, _NAIVE), 66, gates=3, biases=4)
