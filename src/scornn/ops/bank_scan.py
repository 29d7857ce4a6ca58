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

from scornn.ops import naive, native
from scornn.ops.bank import Bank
from scornn.ops.custom import register
from scornn.ops.layout import Order
from scornn.ops.rung import CELLS, Cell, Operands, Rung, empty_states, plainly, run

FUSED = 12
"""Inputs up to which the kernel multiplies by U itself: then z is never in memory."""


class Arguments(NamedTuple):
    """What the operators take: the operands with the bank in two."""

    x: Tensor
    h0: Tensor
    angle: Tensor
    sign: Tensor
    U: Tensor
    b: Tensor | None
    batch_sizes: Tensor | None
    reverse: bool

    @classmethod
    def of(cls, operands: Operands) -> Arguments:
        x, h0, bank, U, b, _, batch_sizes, reverse, *_ = operands
        return cls(x, h0, bank.angle, bank.sign, U, b, batch_sizes, reverse)

    @property
    def bank(self) -> Bank:
        return Bank(self.angle, self.sign)

    @property
    def operands(self) -> Operands:
        return Operands(self.x, self.h0, self.bank, self.U, self.b, "bank", self.batch_sizes, self.reverse)


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
    output, h_n = run(Operands(x, h0, bank, U, b, "bank", batch_sizes, reverse), backend)
    return output, h_n


def _naive(operands: Operands) -> tuple[Tensor, Tensor]:
    return naive.recurrence(operands._replace(W=Arguments.of(operands).bank.matrix(), cell="identity"))


def _states(given: Arguments) -> tuple[Bank, Order, Tensor]:
    """The bank, the order, and h as complex steps."""
    x, h0, _, _, U, b, batch_sizes, reverse = given
    bank, order = given.bank, Order(x, batch_sizes, reverse)
    z = bank.complex(F.linear(order.steps_of(x), U, b))
    turn = bank.powers(1, order.steps).unsqueeze(1)
    return bank, order, turn * (bank.complex(h0) + (turn.conj_physical() * z).cumsum(0))


def _forward(given: Arguments) -> tuple[Tensor, Tensor]:
    bank, order, h = _states(given)
    states = bank.real(h)
    return order.rows_of(states), order.last_of(states).clone()


def _backward(grads: Any, kept: Any, given: Arguments, needs: Any) -> list[Tensor | None]:
    g_output, g_h_n = grads
    x, h0, U = given.x, given.h0, given.U
    bank, order, h = _states(given)
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
        None,
    ]


def _call(given: Arguments, x: Tensor, output: Tensor, h_n: Tensor) -> native.Call:
    """A pass of the kernel; x is z where U is not fused."""
    exact, n, m = given.bank.turn(), given.h0.shape[1], given.U.shape[1]
    fused, high = m <= FUSED, exact.to(x.dtype)
    W = torch.cat([high, (exact - high).to(x.dtype)])
    U: Any = given.U if fused else None
    operands = given.operands._replace(x=x, W=W, U=U, b=given.b if fused else None)
    return native.Call(operands, output, h_n, flops=8.0 * (x.numel() // x.shape[-1]) * n * (1 + m * fused))


def _kernel_forward(given: Arguments) -> tuple[Tensor, Tensor]:
    native.require(given.operands)
    x, U = given.x, given.U
    output, h_n = empty_states(x, given.h0)
    if U.shape[1] > FUSED:
        x = _inputs_into(output, x, U, given.b)
    _call(given, x, output, h_n).forward()
    return output, h_n


def _inputs_into(z: Tensor, x: Tensor, U: Tensor, b: Tensor | None) -> Tensor:
    """z = Ux + b, written where it stands: a copy would be another read and write of as much as all states."""
    flat, rows = z.flatten(0, -2), x.flatten(0, -2)
    torch.mm(rows, U.mT, out=flat) if b is None else torch.addmm(b, rows, U.mT, out=flat)
    return z


def _kernel_backward(grads: Any, kept: Any, given: Arguments, needs: Any) -> list[Tensor | None]:
    native.require(given.operands)
    x, h0, U, b = given.x, given.h0, given.U, given.b
    fused = U.shape[1] <= FUSED
    source = x if fused else F.linear(x, U, b).contiguous()
    states = {"x": x if fused and needs[0] else None, "h0": h0 if needs[1] else None}
    weights = [h0.new_empty(h0.shape[1]), *((U, b) if fused else (None, None)), None]
    (dx, dh0), (by_unit, dU, db, _) = _call(given, source, *kept).backward(
        grads[0], {"h_n": grads[1]}, states, weights, over_x=not fused
    )
    assert by_unit is not None
    planes = 2 * len(given.angle)
    if not fused:
        dz = source.flatten(0, -2)  # written over z
        dx = source @ U if needs[0] else None
        dU = dz.mT @ x.flatten(0, -2) if needs[4] else None
        db = dz.sum(0)
    by_angle = (by_unit[1:planes:2] - by_unit[0:planes:2]).to(given.angle.dtype)
    return [dx, dh0, by_angle, None, dU, None if b is None else db, None]


# Under torch.compile the lazy conj of a complex tensor is lost inside an operator: conj_physical.


def _operator(name: str, forward: Any, backward: Any, kept: tuple[int, ...]) -> Callable[[Operands], Any]:
    """Register ``scornn::{name}_rotations``, a name that exported programs hold: all states and the last ones, of which
    ``kept`` are its backward's."""
    operator = register(
        f"{name}_rotations",
        Arguments,
        forward,
        backward,
        empty=empty_states,
        kept=kept,
        plain=lambda given: plainly(given.operands),
        flops=lambda x, h0, angle, sign, U, *others: 2 * math.prod(x[:-1]) * (math.prod(U) + 2 * U[0]),
    )
    return lambda operands: operator(*Arguments.of(operands))


_manual = _operator("manual", _forward, _backward, kept=(1,))


def _in_single_precision(operands: Operands) -> tuple[Tensor, ...]:
    """There are no complex numbers of half precision."""
    if operands.x.dtype not in (torch.bfloat16, torch.float16):
        return tuple(_manual(operands))
    dtype, given = operands.x.dtype, Arguments.of(operands)
    rounded: Any = [t.float() if isinstance(t, Tensor) and t.dtype == dtype else t for t in given]
    return tuple(t.to(dtype) for t in _manual(Arguments(*rounded).operands))


CELLS["bank"] = Cell(
    (
        native.rung(_operator("native", _kernel_forward, _kernel_backward, kept=(0, 1))),
        Rung("manual", _in_single_precision),
        Rung("naive", _naive, opaque=False),
    ),
    number=67,
)
