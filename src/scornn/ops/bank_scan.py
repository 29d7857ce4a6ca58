"""Every state of a bank of rotations, h_t = R h_{t−1} + U x_t + b, in three rungs.

``naive`` is the loop with the dense R and defines the operator. ``manual`` is PyTorch: as R is a turn, the sum runs in
the turning frame, h_t = e^{i(t+1)θ}(h_0 + Σ_{s≤t} e^{−i(s+1)θ} z_s), and so does the gradient, backwards. ``native`` is
the kernel (``csrc/rotations.h``). Both walk back from the last state and keep no other: R⁻¹ = Rᵀ.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from scornn.ops import library, naive
from scornn.ops import native as kernel
from scornn.ops.bank import Bank, Order
from scornn.ops.custom import empty_gradients, refuse_second_derivative
from scornn.ops.native import address, dense
from scornn.ops.recurrence import choose_rung


class Operands(NamedTuple):
    """What the scan takes. U is None where x_t is what enters the state; b only goes with a U."""

    x: Tensor
    h0: Tensor
    angle: Tensor
    sign: Tensor
    U: Tensor
    b: Tensor | None
    batch_sizes: Tensor | None
    reverse: bool


_SCHEMA = "Tensor x, Tensor h0, Tensor angle, Tensor sign, Tensor U, Tensor? b, Tensor? batch_sizes, bool reverse"
_NEEDS = 6  # the operands before batch_sizes may want a gradient; sign never does

Scan = Callable[..., tuple[Tensor, Tensor]]
Forward = Callable[[Operands], tuple[Tensor, Tensor]]
Backward = Callable[[Tensor | None, Tensor | None, Tensor, Operands, list[bool]], list[Tensor | None]]
"""From the gradients of the states and of the last state, the last state, the operands and what is wanted."""


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
    rung = choose_rung(backend, x)
    if rung is naive.recurrence:
        return naive.recurrence(x, h0, bank.matrix(), U, b, "identity", batch_sizes, reverse)
    scan = native if rung is kernel.recurrence else manual
    if x.dtype in (torch.bfloat16, torch.float16):  # there are no complex numbers of these
        rounded = [None if t is None else t.float() for t in (x, h0, *bank, U, b)]
        output, h_n = scan(*rounded, batch_sizes, reverse)
        return output.to(x.dtype), h_n.to(x.dtype)
    return scan(x, h0, *bank, U, b, batch_sizes, reverse)


def register(name: str, forward: Forward, backward: Backward) -> Scan:
    """Make ``scornn::{name}_rotations`` and its backward, as :func:`scornn.ops.custom.register` does."""

    def forward_op(*operands: Any) -> tuple[Tensor, Tensor]:
        return forward(Operands(*operands))

    def backward_op(*arguments: Any) -> list[Tensor]:
        g_output, g_h_n, h_n, *operands, needs = arguments
        gradients = backward(g_output, g_h_n, h_n, Operands(*operands), needs)
        return [h_n.new_empty(0) if g is None else g for g in gradients]

    result = "(Tensor, Tensor)"
    scan = torch.library.custom_op(
        f"scornn::{name}_rotations", forward_op, mutates_args=(), schema=f"({_SCHEMA}) -> {result}"
    )
    scan_backward = torch.library.custom_op(
        f"scornn::{name}_rotations_backward",
        backward_op,
        mutates_args=(),
        schema=f"(Tensor? g_output, Tensor? g_h_n, Tensor h_n, {_SCHEMA}, bool[] needs) -> Tensor[]",
    )

    @scan.register_fake
    def _(*operands: Any) -> tuple[Tensor, Tensor]:
        x, h0 = operands[:2]
        return x.new_empty(*x.shape[:-1], h0.shape[-1]), h0.new_empty(h0.shape)

    @scan_backward.register_fake
    def _(*arguments: Any) -> list[Tensor]:
        return empty_gradients(arguments[3 : 3 + _NEEDS], arguments[-1])

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        *tensors, ctx.reverse = inputs
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(output[1], *tensors)

    def autograd(ctx: Any, g_output: Tensor | None, g_h_n: Tensor | None) -> tuple[Tensor | None, ...]:
        if g_output is None and g_h_n is None:
            return (None,) * 8
        needs = list(ctx.needs_input_grad[:_NEEDS])
        gradients = scan_backward(g_output, g_h_n, *ctx.saved_tensors, ctx.reverse, needs)
        return (*(g if need else None for g, need in zip(gradients, needs, strict=True)), None, None)

    scan.register_autograd(autograd, setup_context=setup_context)
    refuse_second_derivative(scan_backward, name)
    return scan


def _manual_states(operands: Operands) -> tuple[Bank, Order, Tensor, Tensor]:
    """The bank, the order, and z and h as complex steps."""
    x, h0, angle, sign, U, b, batch_sizes, reverse = operands
    bank, order = Bank(angle, sign), Order(x, batch_sizes, reverse)
    z = bank.complex(F.linear(order.steps_of(x), U, b))
    turn = bank.powers(1, order.steps).unsqueeze(1)
    return bank, order, z, turn * (bank.complex(h0) + (turn.conj_physical() * z).cumsum(0))


def _manual_forward(operands: Operands) -> tuple[Tensor, Tensor]:
    bank, order, _, h = _manual_states(operands)
    states = bank.real(h)
    return order.rows_of(states), order.last_of(states).clone()


def _manual_backward(
    g_output: Tensor | None, g_h_n: Tensor | None, h_n: Tensor, operands: Operands, needs: list[bool]
) -> list[Tensor | None]:
    x, h0, U = operands.x, operands.h0, operands.U
    bank, order, z, h = _manual_states(operands)
    g = h0.new_zeros(order.steps, *h0.shape) if g_output is None else order.steps_of(g_output.resolve_neg())
    if g_h_n is not None:
        g = order.add_last(g, g_h_n)
    turn = bank.powers(0, order.steps).unsqueeze(1)
    dz = turn * (turn.conj_physical() * bank.complex(g)).flip(0).cumsum(0).flip(0)
    by_angle = (dz * (h - z).conj_physical()).imag.sum((0, 1))[: bank.planes]
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


manual = register("manual", _manual_forward, _manual_backward)


FUSED = 8
"""Inputs up to which the kernel multiplies by U itself: then z is never in memory."""


def _native_call(operands: Operands, x: Tensor, output: Tensor | None, h_n: Tensor) -> tuple[Any, list[Any], list[Any]]:
    """The kernel's description of a pass, its shards, and what must live as long. x is z where U is not fused."""
    bank, (batch, n), m = Bank(operands.angle, operands.sign), operands.h0.shape, operands.U.shape[1]
    fused = m <= FUSED
    theta = bank.phases().detach()
    by_unit = [torch.stack([v, v], -1) for v in (theta.cos(), theta.sin())]
    by_unit[1][:, 0] *= -1
    keep = torch.ones(len(theta), 2, dtype=torch.bool)
    keep[bank.planes :, 1] = False
    exact = torch.stack([v[keep] for v in by_unit])
    exact[1, 2 * bank.planes :] = 0
    high = exact.to(x.dtype)
    turn = torch.cat([high, (exact - high).to(x.dtype)])
    x, h0 = x.resolve_neg(), dense(operands.h0)
    U = dense(operands.U) if fused else None
    b = dense(operands.b) if fused and operands.b is not None else None
    sizes = None if operands.batch_sizes is None else operands.batch_sizes.contiguous()
    sequence = library.Sequence(
        steps=x.shape[0] if sizes is None else len(sizes),
        batch=batch,
        hidden=n,
        input=m if fused else n,
        dtype=0 if x.dtype == torch.float32 else 1,
        activation=library.ACTIVATION["rotations"],
        reverse=operands.reverse,
        isa=kernel._library().isa,
        batch_sizes=address(sizes),
        x=x.data_ptr(),
        x_stride=x.stride() if x.dim() == 3 else (0, *x.stride()),
        h0=h0.data_ptr(),
        W=turn.data_ptr(),
        U=address(U),
        b=address(b),
        output=address(output),
        h_n=h_n.data_ptr(),
    )
    rows = x.numel() // x.shape[-1]
    return sequence, kernel._shards(batch, 8.0 * rows * n * (1 + m * fused), sizes), [x, h0, U, b, h_n, sizes, turn]


def _native_forward(operands: Operands) -> tuple[Tensor, Tensor]:
    x, h0, U = operands.x, operands.h0, operands.U
    if operands.batch_sizes is not None:
        kernel.check_sizes(operands.batch_sizes, x.shape[0])
    output, h_n = x.new_empty(*x.shape[:-1], h0.shape[-1]), h0.new_empty(h0.shape)
    source = x
    if U.shape[1] > FUSED:
        source = output.copy_(F.linear(x, U, operands.b)) if output.numel() else output
    sequence, shards, keep = _native_call(operands, source, output, h_n)
    kernel._workers.run([library.Task(ctypes.pointer(sequence), None, *rows) for rows in shards])
    del keep
    return output, h_n


def _native_backward(
    g_output: Tensor | None, g_h_n: Tensor | None, h_n: Tensor, operands: Operands, needs: list[bool]
) -> list[Tensor | None]:
    x, h0, U, b = operands.x, operands.h0, operands.U, operands.b
    fused = U.shape[1] <= FUSED
    source = x if fused else F.linear(x, U, b).contiguous()
    sequence, shards, keep = _native_call(operands, source, None, h_n.contiguous())
    g_output = None if g_output is None else g_output.resolve_neg()
    g_h_n = None if g_h_n is None else dense(g_h_n)
    strides = (0, 0, 0) if g_output is None else g_output.stride() if g_output.dim() == 3 else (0, *g_output.stride())
    dx = (x.new_empty(x.shape) if needs[0] else None) if fused else source  # dz over z
    dh0 = h0.new_empty(h0.shape) if needs[1] else None
    sums = [[h0.new_zeros(h0.shape[-1:]), U.new_zeros(U.shape), h0.new_zeros(h0.shape[-1:])] for _ in shards or [0]]
    tasks = []
    for part, rows in zip(sums, shards, strict=False):
        gradients = library.Gradients(
            output=address(g_output),
            output_stride=strides,
            h_n=address(g_h_n),
            x=address(dx),
            h0=address(dh0),
            **{name: address(t) for name, t in zip(("W", "U", "b"), part, strict=True)},
        )
        tasks.append(library.Task(ctypes.pointer(sequence), ctypes.pointer(gradients), *rows))
    kernel._workers.run(tasks)
    del keep
    by_unit, dU, db = (torch.stack(parts).sum(0) for parts in zip(*sums, strict=True))
    planes = 2 * len(operands.angle)
    if not fused:
        dz = source.flatten(0, -2)
        dx = source @ U if needs[0] else None
        dU = dz.mT @ x.flatten(0, -2) if needs[4] else dU
        db = dz.sum(0)
    return [dx, dh0, by_unit[1:planes:2] - by_unit[0:planes:2], None, dU, None if b is None else db]


native = register("native", _native_forward, _native_backward)
