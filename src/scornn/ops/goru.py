"""The loop of the gated orthogonal recurrent unit: naive (autograd), a hand-written backward, and the C++ kernel.

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
from scornn.ops import gated, native
from scornn.ops.layout import Layout, States
from scornn.ops.rung import Gradients, Incoming, Needs, Operands, Rung, recurrence_operator


def _from_input(rows: Tensor, U: Tensor, b: Tensor | None) -> Tensor:
    """What a step adds to W h: U x, and the biases of the two gates."""
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

    def advance(states: States, added: Tensor) -> States:
        (h,) = states
        _, g, c = _units(added, h @ W.mT, b)
        return (g * h + (1 - g) * c,)

    (output,), (h_n,) = layout.walk(_from_input(layout.rows(x), U, b), (h0,), advance)
    return output, h_n


def _backward(incoming: Incoming, operands: Operands, output: Tensor, needs: Needs) -> Gradients:
    x, h0, W, U, b, _, batch_sizes, reverse = operands
    layout = Layout.of(x, batch_sizes, reverse)
    rows, output = layout.rows(x), layout.rows(output)
    h = layout.states_before(output, h0)
    s = h @ W.mT
    r, g, c = _units(_from_input(rows, U, b), s, b)
    to_c = torch.where(c == 0, 0, 1 - g)  # ∂h'/∂z_c
    to_g = (h - c) * g * (1 - g)
    to_r = to_c * s.chunk(3, -1)[2] * r * (1 - r)
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


manual = recurrence_operator("goru", lambda operands: naive(*operands), _backward, "manual")


def kernel(
    x: Tensor,
    h0: Tensor,
    W: Tensor,
    U: Tensor,
    b: Tensor | None,
    activation: str,
    batch_sizes: Tensor | None,
    reverse: bool,
) -> tuple[Tensor, Tensor]:
    b = None if b is None else torch.cat([b, b.new_zeros(h0.shape[-1])])  # nothing beside W h
    return gated.kernel(x, h0, W, U, b, "goru", batch_sizes, reverse)


RUNGS = (
    Rung("native", kernel, native.RUNG.unavailable, native.RUNG.refuses),
    Rung("manual", manual),
    Rung("naive", naive, opaque=False),
)
