"""The loop of the gated orthogonal recurrent unit, in two rungs: naive (autograd) and a hand-written backward.

Rows of W, U and b stand in the order reset gate r, update gate g, candidate c::

    r = σ(U_r x + W_r h + b_r)        c  = modReLU(r ⊙ (W h) + U_c x, b_c)
    g = σ(U_g x + W_g h + b_g)        h' = g ⊙ h + (1 − g) ⊙ c

The backward pass needs the states alone: the gates of all time steps come back from them in one matrix product, and
only the chain from step to step is a loop.
"""

from __future__ import annotations

import torch
from torch import Tensor

from scornn.functional import modrelu
from scornn.ops.custom import Gradients, Incoming, Needs, Operands, register
from scornn.ops.layout import Layout


def _from_input(x: Tensor, U: Tensor, b: Tensor | None) -> Tensor:
    """What a step adds to W h: U x, and the biases of the two gates."""
    rows = x.flatten(0, 1) if x.dim() == 3 else x
    added = rows @ U.mT
    if b is None:
        return added
    gates = 2 * b.shape[0] // 3
    return added + torch.cat([b[:gates], torch.zeros_like(b[gates:])])


def _units(added: Tensor, s: Tensor, b: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """r, g and c of one or many steps, from the input's part and s = W h."""
    (a_r, a_g, a_c), (s_r, s_g, s_c) = added.chunk(3, -1), s.chunk(3, -1)
    r, g = torch.sigmoid(a_r + s_r), torch.sigmoid(a_g + s_g)
    b_c = s.new_zeros(()) if b is None else b[2 * b.shape[0] // 3 :]
    return r, g, modrelu(r * s_c + a_c, b_c)


def naive(
    x: Tensor,
    h0: Tensor,
    W: Tensor,
    U: Tensor,
    b: Tensor | None,
    activation: str,
    batch_sizes: Tensor | None,
    reverse: bool,
) -> tuple[Tensor, Tensor]:
    layout = Layout.of(x, batch_sizes, reverse)
    added, h, states = _from_input(x, U, b), h0[:0], []
    for step in layout:
        h = h[: step.size] if step.carried == step.size else torch.cat([h, h0[step.carried : step.size]])
        _, g, c = _units(added[step.rows], h @ W.mT, b)
        h = g * h + (1 - g) * c
        states.append(h)
    output = torch.cat(states[::-1] if reverse else states)
    h_n = output.index_select(0, layout.last_rows(output.device))
    return output.unflatten(0, x.shape[:2]) if batch_sizes is None else output, h_n


def _backward(incoming: Incoming, operands: Operands, output: Tensor, needs: Needs) -> Gradients:
    x, h0, W, U, b, _, batch_sizes, reverse = operands
    layout = Layout.of(x, batch_sizes, reverse)
    rows = x.flatten(0, 1) if batch_sizes is None else x
    output = output.flatten(0, 1) if batch_sizes is None else output
    h = layout.states_before(output, h0)
    s = h @ W.mT
    r, g, c = _units(_from_input(x, U, b), s, b)
    to_c = torch.where(c == 0, 0, 1 - g)  # ∂h'/∂z_c
    to_g = (h - c) * g * (1 - g)
    to_r = to_c * s.chunk(3, -1)[2] * r * (1 - r)
    to_s = torch.cat([to_r, to_g, to_c * r], -1)  # ∂h'/∂s

    dh = torch.zeros_like(output) if incoming.output is None else incoming.output.reshape(output.shape).clone()
    if incoming.h_n is not None:
        dh.index_add_(0, layout.last_rows(dh.device), incoming.h_n)
    dh0 = torch.zeros_like(h0)
    for step in reversed(layout):
        here = dh[step.rows]
        before = here * g[step.rows] + (here.repeat(1, 3) * to_s[step.rows]) @ W
        dh[step.before : step.before + step.carried] += before[: step.carried]
        dh0[step.carried : step.size] += before[step.carried :]

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


manual = register("goru", lambda operands: naive(*operands), _backward)
