"""The last state of a bank of rotations without a loop over the steps.

The last state is a product, h_T = Σ_k Rᵏ U x_{T−1−k} + R^T h_0, where R^T is the T-th power: rows of
K = [R^{S−1}U … RU U] times blocks of S inputs, with the state turned by Rˢ from block to block. K has no batch in it,
and of the states one in S is made. Everything here is plain PyTorch, which autograd differentiates.
"""

from __future__ import annotations

import torch
from torch import Tensor

from scornn.ops.bank import Bank
from scornn.ops.layout import Order, side_by_side
from scornn.ops.rung import Operands, check
from scornn.torch_internals import has_values, under_transform

BLOCK = 1 << 21
"""Numbers in K."""


def last_state(
    x: Tensor, h0: Tensor, bank: Bank, U: Tensor, b: Tensor | None, batch_sizes: Tensor | None, reverse: bool
) -> Tensor:
    """The last state of each sequence ``(B, n)``; arguments as :func:`scornn.ops.bank_scan.every_state`."""
    check(Operands(x, h0, bank, U, b, "bank", batch_sizes, reverse))
    if x.dtype in (torch.bfloat16, torch.float16):
        rounded = Bank(bank.angle.float(), bank.sign.float())
        b = None if b is None else b.float()
        return last_state(x.float(), h0.float(), rounded, U.float(), b, batch_sizes, reverse).to(h0.dtype)
    order = Order(x, batch_sizes, reverse, end=True)
    steps = order.steps_of(x)
    T, m, n = len(steps), steps.shape[-1], bank.units
    size = max(1, min(T, BLOCK // (m * n)))
    first = (T - 1) % size + 1
    K = bank.columns(U, size)
    h = side_by_side(steps[:first]) @ (K if first == size else K[-first * m :])
    if first < T:
        turn = bank.power(size)
    for begin in range(first, T, size):
        h = torch.addmm(bank.real(bank.complex(h) * turn), side_by_side(steps[begin : begin + size]), K)
    if _may_be_nonzero(h0):
        h = h + bank.real(bank.power(order.lengths if order.packed else T) * bank.complex(h0))
    return h if b is None else h + _sum_of_powers(bank, b, order, size)


def frames(x: Tensor, bank: Bank, U: Tensor, size: int) -> tuple[Tensor, Bank, Tensor]:
    """Steps ``(T, B, m)`` as ``(T / size, B, size · m)``, and the bank and input matrix whose states are every size-th.

    h_{t+S} = Rˢ h_t + [R^{S−1}U … RU U] x_{t+1 … t+S}: one turn by S·θ, which stays in float64: rounded, it would be
    another matrix than R, and T / S turns would show it.
    """
    batch, m = x.shape[1:]
    steps = x.unflatten(0, (-1, size)).transpose(1, 2).reshape(len(x) // size, batch, size * m)
    return steps, Bank(bank.angle.double() * size, bank.sign**size), bank.columns(U, size).mT.contiguous()


def _sum_of_powers(bank: Bank, b: Tensor, order: Order, size: int) -> Tensor:
    """Σ_{k<T} Rᵏ b: what a constant input leaves."""
    turned = bank.complex(b)
    if order.packed:
        return bank.real((bank.powers(0, order.steps) * turned).cumsum(0)[order.lengths - 1])
    first, powers = (order.steps - 1) % size + 1, bank.powers(0, size)
    total, block = powers[:first].sum(0), powers.sum(0)
    for _ in range(first, order.steps, size):
        total = total * bank.power(size) + block
    return bank.real(total * turned)


def _may_be_nonzero(h0: Tensor) -> bool:
    unknown = h0.requires_grad or torch.compiler.is_compiling() or under_transform() or not has_values(h0)
    return unknown or bool(h0.any())
