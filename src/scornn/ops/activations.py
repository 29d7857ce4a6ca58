"""The activations of the sequence operator: the value from z, and the gradient from the state alone.

Every activation here can be differentiated knowing only its output h, so a backward pass needs to keep the
states and nothing else. Where h is NaN a pullback gives what autograd gives for the value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from scornn.functional import modrelu

LEAKY_SLOPE = 0.1
COMPLEX_EPSILON = 1e-5  # smooths the modulus of the complex modReLU at 0, as in the uRNN programs


class Activation(NamedTuple):
    """``value(z, b) -> h`` and ``pullback(g, h, b) -> (dz, db)``, with db still separate for each row.

    ``number`` is that of ``enum scornn_cell`` in the kernel; None where the kernel has none.
    """

    value: Callable[[Tensor, Tensor | None], Tensor]
    pullback: Callable[[Tensor, Tensor, Tensor | None], tuple[Tensor, Tensor]]
    number: int | None = None
    units_per_bias: int = 1


def _additive(
    value: Callable[[Tensor], Tensor], slope: Callable[[Tensor, Tensor], Tensor], number: int | None = None
) -> Activation:
    """h = value(z + b), whose gradient is slope(g, h) for both z and b."""

    def pullback(g: Tensor, h: Tensor, b: Tensor | None) -> tuple[Tensor, Tensor]:
        dz = slope(g, h)
        return dz, dz

    return Activation(lambda z, b: value(z if b is None else z + b), pullback, number)


def _modrelu(z: Tensor, b: Tensor | None) -> Tensor:
    return modrelu(z, z.new_zeros(()) if b is None else b)


def _modrelu_pullback(g: Tensor, h: Tensor, b: Tensor | None) -> tuple[Tensor, Tensor]:
    dz = torch.where(h == 0, 0, g * (h == h))  # the sign of a NaN is 0
    return dz, dz * h.sign()


def _complex_modrelu(z: Tensor, b: Tensor | None) -> Tensor:
    """z relu(r + b) / (r + ε) with r = |z|, over adjacent pairs (Re, Im).

    Where it is 0, so is its gradient, also where it underflows: the state could not tell.
    """
    pairs = z.unflatten(-1, (-1, 2))
    safe = torch.where((pairs == 0).all(-1, keepdim=True), 1, pairs)
    r = torch.hypot(safe[..., 0], safe[..., 1])
    gain = torch.relu(r if b is None else r + b) / (r + COMPLEX_EPSILON)
    h = gain.unsqueeze(-1) * pairs
    return torch.where((h == 0).all(-1, keepdim=True), 0, h).flatten(-2)


def _complex_modrelu_pullback(g: Tensor, h: Tensor, b: Tensor | None) -> tuple[Tensor, Tensor]:
    """r comes back from q = |h| as the positive root of r² + (b − q) r − q ε = 0, written without cancellation."""
    eps = COMPLEX_EPSILON
    G, H = g.unflatten(-1, (-1, 2)), h.unflatten(-1, (-1, 2))
    q = torch.hypot(H[..., 0], H[..., 1])
    silent = q == 0
    q = torch.where(silent, 1, q)
    b = q.new_zeros(()) if b is None else b
    c = q - b
    middle = eps**0.5 * torch.sqrt(q)  # √(εq), which does not underflow
    root = torch.hypot(c, 2 * middle)  # squares would overflow
    r = torch.where(c > 0, (c + root) / 2, 2 * middle * (middle / (root - c)))
    u = H / q.unsqueeze(-1)
    along = (u * G).sum(-1)  # u·g
    gain = torch.where(b < 0, q / r, (r + b) / (r + eps))  # the same number; each where it is exact
    bend = r / (r + eps) * ((eps - b) / (r + eps))  # r · d gain / dr
    dz = gain.unsqueeze(-1) * G + (bend * along).unsqueeze(-1) * u
    db = along * (r / (r + eps))
    return torch.where(silent.unsqueeze(-1), 0, dz).flatten(-2), torch.where(silent, 0, db)


ACTIVATIONS: dict[str, Activation] = {
    "modrelu": Activation(_modrelu, _modrelu_pullback, 4),
    "relu": _additive(torch.relu, lambda g, h: torch.where(h <= 0, 0, g), 1),
    "leaky_relu": _additive(
        lambda z: torch.nn.functional.leaky_relu(z, LEAKY_SLOPE),
        lambda g, h: torch.where(h > 0, g, LEAKY_SLOPE * g),
        2,
    ),
    "tanh": _additive(torch.tanh, lambda g, h: g * (1 - h * h), 3),
    "identity": _additive(lambda z: z, lambda g, h: g, 0),
    "complex_modrelu": Activation(_complex_modrelu, _complex_modrelu_pullback, 5, units_per_bias=2),
}
REAL = tuple(name for name in ACTIVATIONS if name != "complex_modrelu")
"""Those of real units."""
