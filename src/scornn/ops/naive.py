"""The rung that defines the sequence operator: a loop in plain PyTorch, differentiated by autograd."""

from __future__ import annotations

import torch
from torch import Tensor

from scornn.ops.activations import ACTIVATIONS
from scornn.ops.layout import Layout


def recurrence(
    x: Tensor,
    h0: Tensor,
    W: Tensor,
    U: Tensor,
    b: Tensor | None,
    activation: str,
    batch_sizes: Tensor | None,
    reverse: bool,
) -> tuple[Tensor, Tensor]:
    act = ACTIVATIONS[activation].value
    layout = Layout.of(x, batch_sizes, reverse)
    inputs = ((x.flatten(0, 1) if batch_sizes is None else x) @ U.mT).split(layout.sizes)  # U x_t, by time
    h = h0[:0]
    states = []
    for step, Ux in zip(layout, reversed(inputs) if reverse else inputs, strict=True):
        h = h[: step.size] if step.carried == step.size else torch.cat([h, h0[step.carried : step.size]])
        h = act(Ux + h @ W.mT, b)
        states.append(h)
    output = torch.cat(states[::-1] if reverse else states)
    h_n = output.index_select(0, layout.last_rows(output.device))
    return output.unflatten(0, x.shape[:2]) if batch_sizes is None else output, h_n
