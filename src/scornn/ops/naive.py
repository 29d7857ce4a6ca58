"""The rung that defines the sequence operator: a loop in plain PyTorch, differentiated by autograd."""

from __future__ import annotations

from torch import Tensor

from scornn.ops.activations import ACTIVATIONS
from scornn.ops.layout import Layout, States
from scornn.ops.rung import Operands, Rung


def recurrence(operands: Operands) -> tuple[Tensor, Tensor]:
    x, h0, W, U, b, activation, batch_sizes, reverse = operands[:8]
    act = ACTIVATIONS[activation].value
    layout = Layout.of(x, batch_sizes, reverse)

    def advance(states: States, Ux: Tensor) -> States:
        return (act(Ux + states[0] @ W.mT, b),)

    (output,), (h_n,) = layout.walk(layout.rows(x) @ U.mT, (h0,), advance)
    return output, h_n


RUNG = Rung("naive", recurrence, opaque=False)
