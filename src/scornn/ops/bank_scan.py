"""Every state of a bank of rotations, h_t = R h_{t−1} + U x_t + b, in three rungs.

``naive`` is the loop with the dense R and defines the operator. ``manual`` is PyTorch: as R is a turn, the sum runs in
the turning frame, h_t = e^{i(t+1)θ}(h_0 + Σ_{s≤t} e^{−i(s+1)θ} z_s), and so does the gradient, backwards. ``native`` is
the kernel (:mod:`scornn.ops.bank_native`).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from scornn.ops import bank_native, naive
from scornn.ops import native as kernel
from scornn.ops.bank import Bank, Operands, Order, operator
from scornn.ops.rung import Rung, choose


def every_state(
    x: Tensor,
    h0: Tensor,
    bank: Bank,
    U: Tensor,
    b: Tensor | None,
    batch_sizes: Tensor | None,
    reverse: bool,
    backend: str,
) -> tuple[Tensor, Tensor]:
    """All states and the last ones; shapes and ``backend`` as :func:`scornn.ops.recurrence`."""
    rung = choose(RUNGS, backend, x)
    if rung.opaque and x.dtype in (torch.bfloat16, torch.float16):  # there are no complex numbers of these
        rounded = [None if t is None else t.float() for t in (x, h0, *bank, U, b)]
        output, h_n = rung.run(*rounded, batch_sizes, reverse)
        return output.to(x.dtype), h_n.to(x.dtype)
    output, h_n = rung.run(x, h0, *bank, U, b, batch_sizes, reverse)
    return output, h_n


def _naive(x: Tensor, h0: Tensor, angle: Tensor, sign: Tensor, U: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    b, batch_sizes, reverse = rest
    return naive.recurrence(x, h0, Bank(angle, sign).matrix(), U, b, "identity", batch_sizes, reverse)


def _states(operands: Operands) -> tuple[Bank, Order, Tensor]:
    """The bank, the order, and h as complex steps."""
    x, h0, angle, sign, U, b, batch_sizes, reverse = operands
    bank, order = Bank(angle, sign), Order(x, batch_sizes, reverse)
    z = bank.complex(F.linear(order.steps_of(x), U, b))
    turn = bank.powers(1, order.steps).unsqueeze(1)
    return bank, order, turn * (bank.complex(h0) + (turn.conj_physical() * z).cumsum(0))


def _forward(operands: Operands) -> tuple[Tensor, Tensor]:
    bank, order, h = _states(operands)
    states = bank.real(h)
    return order.rows_of(states), order.last_of(states).clone()


def _backward(grads: Any, h_n: Tensor, operands: Operands, needs: Any) -> list[Tensor | None]:
    g_output, g_h_n = grads
    x, h0, U = operands.x, operands.h0, operands.U
    bank, order, h = _states(operands)
    g = h0.new_zeros(order.steps, *h0.shape) if g_output is None else order.steps_of(g_output.resolve_neg())
    if g_h_n is not None:
        g = order.add_last(g, g_h_n)
    turn = bank.powers(0, order.steps).unsqueeze(1)
    dz = turn * (turn.conj_physical() * bank.complex(g)).flip(0).cumsum(0).flip(0)
    turned = bank.power(1) * torch.cat([bank.complex(h0).unsqueeze(0), h[:-1]])  # R h_{t−1}; h_t − z_t if all is finite
    angles = (dz * turned.conj_physical()).imag
    by_angle = (angles if not order.packed else angles[order.there]).flatten(0, -2).sum(0)[: bank.planes]
    dh0 = bank.real(dz[0] * bank.power(-1))
    dz = order.rows_of(bank.real(dz))
    flat = dz.flatten(0, -2)
    return [
        dz @ U if needs[0] else None,
        dh0 if needs[1] else None,
        by_angle if needs[2] else None,
        None,
        flat.mT @ x.flatten(0, -2) if needs[4] else None,
        flat.sum(0) if needs[5] else None,
    ]


def _kernel_backward(grads: Any, h_n: Tensor, operands: Operands, needs: Any) -> list[Tensor | None]:
    """The kernel walks back from the last state, which tells nothing of those before where it is not finite."""
    backward = bank_native.backward if bool(h_n.isfinite().all()) else _backward
    return backward(grads, h_n, operands, needs)


RUNGS = (
    Rung("native", operator("native", bank_native.forward, _kernel_backward), kernel.RUNG.unavailable, kernel.refuses),
    Rung("manual", operator("manual", _forward, _backward)),
    Rung("naive", _naive, opaque=False),
)
