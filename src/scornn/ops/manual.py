"""The rung with a hand-written backward: still PyTorch, but no autograd node for each time step.

The backward pass walks back through the states with ``dz_t = act'(h_t) ⊙ (g_t + dz_{t+1} W)``; the gradients of
W, U and x are then one matrix product each over all time steps.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from scornn.ops.activations import ACTIVATIONS
from scornn.ops.layout import Layout, States
from scornn.ops.rung import Gradients, Incoming, Needs, Operands, Rung, recurrence_operator


def _forward(operands: Operands) -> tuple[Tensor, Tensor]:
    x, h0, W, U, b, activation, batch_sizes, reverse = operands[:8]
    act, Wt = ACTIVATIONS[activation].value, W.mT
    layout = Layout.of(x, batch_sizes, reverse)

    def advance(states: States, Ux: Tensor) -> States:
        return (act(torch.addmm(Ux, states[0], Wt), b),)

    (output,), (h_n,) = layout.walk(layout.rows(x) @ U.mT, (h0,), advance)
    return output, h_n


def pull_back(
    incoming: Incoming, layout: Layout, operands: Operands, output: Tensor, adjoint: Callable[[Tensor], Tensor]
) -> tuple[Tensor, Tensor, Tensor | None]:
    """dz of every row, dh0 and db of a recurrence, where ``adjoint`` takes dz to the gradient of the state before."""
    b, pullback = operands.b, ACTIVATIONS[operands.cell].pullback
    db = None if b is None else torch.zeros_like(b)

    def pull(here: Tensor, rows: slice) -> Tensor:
        dz, by_row = pullback(here, output[rows], b)
        here.copy_(dz)
        if db is not None:
            db.add_(by_row.sum(0))
        return adjoint(here)

    dz, dh0 = layout.walk_back(incoming.output, incoming.h_n, operands.h0, pull, output)
    return dz, dh0, db


def _backward(incoming: Incoming, operands: Operands, output: Tensor, needs: Needs) -> Gradients:
    x, h0, W, U, _, _, batch_sizes, reverse = operands[:8]
    layout = Layout.of(x, batch_sizes, reverse)
    output = layout.rows(output)
    dz, dh0, db = pull_back(incoming, layout, operands, output, lambda dz: dz @ W)
    return Gradients(
        x=(dz @ U).view(x.shape) if needs.x else None,
        h0=dh0 if needs.h0 else None,
        W=dz.mT @ layout.states_before(output, h0) if needs.W else None,
        U=dz.mT @ layout.rows(x) if needs.U else None,
        b=db if needs.b else None,
    )


recurrence = recurrence_operator("manual", _forward, _backward)
RUNG = Rung("manual", recurrence)
