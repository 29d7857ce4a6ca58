"""The rung with a hand-written backward: still PyTorch, but no autograd node for each time step.

The backward pass walks back through the states with ``dz_t = act'(h_t) ⊙ (g_t + dz_{t+1} W)``; the gradients of
W, U and x are then one matrix product each over all time steps.
"""

from __future__ import annotations

import torch
from torch import Tensor

from scornn.ops.activations import ACTIVATIONS
from scornn.ops.custom import Gradients, Incoming, Needs, Operands, register
from scornn.ops.layout import Layout


def _forward(operands: Operands) -> tuple[Tensor, Tensor]:
    x, h0, W, U, b, activation, batch_sizes, reverse = operands
    act = ACTIVATIONS[activation].value
    layout = Layout.of(x, batch_sizes, reverse)
    output = (x.flatten(0, 1) if batch_sizes is None else x) @ U.mT  # U x_t, overwritten by h_t
    Wt = W.mT
    for step in layout:
        h = output[step.before : step.before + step.carried]
        if step.carried < step.size:
            h = torch.cat([h, h0[step.carried : step.size]])
        here = output[step.rows]
        here.copy_(act(torch.addmm(here, h, Wt), b))
    h_n = output.index_select(0, layout.last_rows(output.device))
    return output.unflatten(0, x.shape[:2]) if batch_sizes is None else output, h_n


def _backward(incoming: Incoming, operands: Operands, output: Tensor, needs: Needs) -> Gradients:
    x, h0, W, U, b, activation, batch_sizes, reverse = operands
    layout = Layout.of(x, batch_sizes, reverse)
    rows = x.flatten(0, 1) if batch_sizes is None else x
    output = output.flatten(0, 1) if batch_sizes is None else output
    dz = torch.zeros_like(output) if incoming.output is None else incoming.output.reshape(output.shape).clone()
    if incoming.h_n is not None:
        dz.index_add_(0, layout.last_rows(dz.device), incoming.h_n)
    dh0, db = torch.zeros_like(h0), None if b is None else torch.zeros_like(b)
    pullback = ACTIVATIONS[activation].pullback
    for step in reversed(layout):
        here = dz[step.rows]
        here_dz, here_db = pullback(here, output[step.rows], b)
        here.copy_(here_dz)
        if db is not None:
            db += here_db.sum(0)
        dh = here @ W
        dz[step.before : step.before + step.carried] += dh[: step.carried]
        dh0[step.carried : step.size] += dh[step.carried :]
    return Gradients(
        x=(dz @ U).view(x.shape) if needs.x else None,
        h0=dh0 if needs.h0 else None,
        W=dz.mT @ layout.states_before(output, h0) if needs.W else None,
        U=dz.mT @ rows if needs.U else None,
        b=db if needs.b else None,
    )


recurrence = register("manual", _forward, _backward)
