"""Every state of a bank of rotations, h_t = R h_{t−1} + U x_t + b, in three rungs.

``naive`` is the loop with the dense R and defines the operator. ``manual`` is PyTorch: as R is a turn, the sum runs in
the turning frame, h_t = e^{i(t+1)θ}(h_0 + Σ_{s≤t} e^{−i(s+1)θ} z_s), and so does the gradient, backwards. ``native`` is
the kernel (``csrc/bank.h``), whose backward pass reads few of the states and makes the others again. U and b are the
kernel's where there are few inputs; otherwise z = Ux + b is one product beforehand, and the gradients of U and x are
products afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from scornn.ops import naive, native, rung
from scornn.ops.bank import Bank, check
from scornn.ops.custom import register
from scornn.ops.layout import Order
from scornn.ops.rung import Run, Rung, choose, empty_states

FUSED = 12
"""Inputs up to which the kernel multiplies by U itself: then z is never in memory."""


class Operands(NamedTuple):
    """What the operator takes: the arguments of :func:`every_state`, the bank in two."""

    x: Tensor
    h0: Tensor
    angle: Tensor
    sign: Tensor
    U: Tensor
    b: Tensor | None
    batch_sizes: Tensor | None
    reverse: bool


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
    check(x, h0, bank, U, b, batch_sizes)
    chosen = choose(RUNGS, backend, x)
    if chosen.opaque and x.dtype in (torch.bfloat16, torch.float16):  # there are no complex numbers of these
        rounded = [None if t is None else t if t.dtype == torch.float64 else t.float() for t in (x, h0, *bank, U, b)]
        output, h_n = chosen.run(*rounded, batch_sizes, reverse)
        return output.to(x.dtype), h_n.to(x.dtype)
    output, h_n = chosen.run(x, h0, *bank, U, b, batch_sizes, reverse)
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


def _backward(grads: Any, kept: Any, operands: Operands, needs: Any) -> list[Tensor | None]:
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
    by_angle = (order.kept(angles) if order.packed else angles.flatten(0, -2)).sum(0)[: bank.planes]
    dh0 = bank.real(dz[0] * bank.power(-1))
    dz = order.rows_of(bank.real(dz))
    flat = dz.flatten(0, -2)
    return [
        dz @ U if needs[0] else None,
        dh0 if needs[1] else None,
        by_angle.to(bank.angle.dtype) if needs[2] else None,
        None,
        flat.mT @ x.flatten(0, -2) if needs[4] else None,
        flat.sum(0) if needs[5] else None,
    ]


def _call(operands: Operands, x: Tensor, output: Tensor, h_n: Tensor) -> native.Call:
    """A pass of the kernel; x is z where U is not fused."""
    exact, n, m = Bank(operands.angle, operands.sign).turn(), operands.h0.shape[1], operands.U.shape[1]
    fused, high = m <= FUSED, exact.to(x.dtype)
    turn = torch.cat([high, (exact - high).to(x.dtype)])
    U: Any = operands.U if fused else None
    b, order = operands.b if fused else None, (operands.batch_sizes, operands.reverse)
    given = rung.Operands(x, operands.h0, turn, U, b, "bank", *order)
    flops = 8.0 * (x.numel() // x.shape[-1]) * n * (1 + m * fused)
    return native.Call(given, output, h_n, flops=flops)


def _kernel_forward(operands: Operands) -> tuple[Tensor, Tensor]:
    x, U = operands.x, operands.U
    output, h_n = empty_states(x, operands.h0)
    if U.shape[1] > FUSED:
        x = _inputs_into(output, x, U, operands.b)
    _call(operands, x, output, h_n).forward()
    return output, h_n


def _inputs_into(z: Tensor, x: Tensor, U: Tensor, b: Tensor | None) -> Tensor:
    """z = Ux + b, written where it stands: a copy would be another read and write of as much as all states."""
    flat, rows = z.flatten(0, -2), x.flatten(0, -2)
    torch.mm(rows, U.mT, out=flat) if b is None else torch.addmm(b, rows, U.mT, out=flat)
    return z


def _kernel_backward(grads: Any, kept: Any, operands: Operands, needs: Any) -> list[Tensor | None]:
    x, h0, U, b = operands.x, operands.h0, operands.U, operands.b
    fused = U.shape[1] <= FUSED
    source = x if fused else F.linear(x, U, b).contiguous()
    states = {"x": x if fused and needs[0] else None, "h0": h0 if needs[1] else None}
    weights = [h0.new_empty(h0.shape[1]), *((U, b) if fused else (None, None)), None]
    (dx, dh0), (by_unit, dU, db, _) = _call(operands, source, *kept).backward(
        grads[0], {"h_n": grads[1]}, states, weights, over_x=not fused
    )
    assert by_unit is not None
    planes = 2 * len(operands.angle)
    if not fused:
        dz = source.flatten(0, -2)  # written over z
        dx = source @ U if needs[0] else None
        dU = dz.mT @ x.flatten(0, -2) if needs[4] else None
        db = dz.sum(0)
    by_angle = (by_unit[1:planes:2] - by_unit[0:planes:2]).to(operands.angle.dtype)
    return [dx, dh0, by_angle, None, dU, None if b is None else db]


Forward = Callable[[Operands], tuple[Tensor, Tensor]]
Backward = Callable[[Any, Any, Operands, Any], list[Tensor | None]]
"""From the gradients of the states and of the last state, the results that were kept, the operands, and what is wanted
of the operands up to b, sign among them, which has none. Under torch.compile the lazy conj of a complex tensor is lost
inside an operator: conj_physical."""


def _operator(name: str, forward: Forward, backward: Backward, kept: tuple[int, ...]) -> Run:
    """Register ``scornn::{name}_rotations``: all states and the last ones, of which ``kept`` are its backward's."""
    return register(
        f"{name}_rotations",
        "Tensor x, Tensor h0, Tensor angle, Tensor sign, Tensor U, Tensor? b, Tensor? batch_sizes, bool reverse",
        lambda *arguments: forward(Operands(*arguments)),
        empty_states,
        lambda grads, kept, arguments, needs: backward(grads, kept, Operands(*arguments), needs),
        inputs=6,
        results=2,
        differentiable=2,
        kept=kept,
        second_derivative=rung.no_second_derivative(name),
        flops=lambda x, h0, angle, sign, U, *others: 2 * math.prod(x[:-1]) * (math.prod(U) + 2 * U[0]),
    )


_KERNEL = _operator("native", _kernel_forward, _kernel_backward, kept=(0, 1))
RUNGS = (
    Rung("native", _KERNEL, native.RUNG.unavailable, native.refuses),
    Rung("manual", _operator("manual", _forward, _backward, kept=(1,))),
    Rung("naive", _naive, opaque=False),
)
