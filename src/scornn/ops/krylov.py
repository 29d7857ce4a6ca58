"""The last state of a linear recurrence with a dense W, by doubling instead of a loop over the steps.

    h_T = W^T h_0 + Σ_k Wᵏ (U x_{T−1−k} + b),  where W^T is the T-th power:

K = [W^{S−1}U … WU U] is made as [W^{S/2}K', K'] from its half K', with squares of W, and multiplies blocks of S inputs.
The squares are made in float64, so that K has the error of log₂ S products. Everything here is plain PyTorch, which
autograd differentiates (``docs/linear.md``).
"""

from __future__ import annotations

import torch
from torch import Tensor

from scornn.ops.layout import side_by_side

BLOCK = 1 << 22
"""Numbers in K."""


def pays(steps: int, batch: int, inputs: int, hidden: int) -> bool:
    """Whether doubling has less than half of the loop's arithmetic."""
    size = _block(steps, inputs, hidden)
    squares = 2 * size.bit_length() * hidden**3  # in float64
    doubling = size * inputs * hidden**2 + steps * inputs * hidden * batch + steps // size * batch * hidden**2
    return squares + doubling < steps * batch * hidden**2 / 2


def last_state(x: Tensor, h0: Tensor, W: Tensor, U: Tensor, b: Tensor | None) -> Tensor:
    """The state ``(B, n)`` after the steps ``(T, B, m)``, from h_0 ``(B, n)``."""
    if b is not None:  # one more input, which is always 1
        x, U = torch.cat([x, x.new_ones(*x.shape[:2], 1)], -1), torch.cat([U, b.unsqueeze(-1)], -1)
    (steps, _, m), h = x.shape, h0
    size = _block(steps, m, W.shape[0])
    K, square = U.mT, W.double()
    powers = [W]  # W, W², W⁴, …
    while len(K) < size * m:
        K = torch.cat([K @ powers[-1].mT, K])
        square = square @ square
        powers.append(square.to(W.dtype))
    first = steps % size
    for power in (power for k, power in enumerate(powers) if first >> k & 1):
        h = h @ power.mT
    if first:
        h = h + side_by_side(x[:first]) @ K[-first * m :]
    for begin in range(first, steps, size):
        h = torch.addmm(h @ powers[-1].mT, side_by_side(x[begin : begin + size]), K)
    return h


def _block(steps: int, inputs: int, hidden: int) -> int:
    """S, a power of two: no more than the steps, and so that K fits."""
    most = max(1, min(steps, BLOCK // (inputs * hidden)))
    return 1 << (most.bit_length() - 1)
