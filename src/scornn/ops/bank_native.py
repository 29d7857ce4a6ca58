"""Every state of a bank of rotations on the C++ kernel (``csrc/bank.h``).

The backward pass walks back from the last state with R⁻¹ = Rᵀ and keeps no other. U and b are the kernel's where there
are few inputs; otherwise z = Ux + b is one product beforehand, and the gradients of U and x are products afterwards.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from scornn.ops import library
from scornn.ops import native as kernel
from scornn.ops.bank import Bank, Operands
from scornn.ops.native import address, dense
from scornn.ops.rung import empty_states

FUSED = 8
"""Inputs up to which the kernel multiplies by U itself: then z is never in memory."""


def _call(operands: Operands, x: Tensor, output: Tensor | None, h_n: Tensor) -> tuple[Any, list[Any], list[Any]]:
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
    sequence = library.SequenceStruct(
        steps=x.shape[0] if sizes is None else len(sizes),
        batch=batch,
        hidden=n,
        input=m if fused else n,
        dtype=0 if x.dtype == torch.float32 else 1,
        activation=library.ACTIVATION["bank"],
        reverse=operands.reverse,
        isa=kernel._library().isa,
        batch_sizes=address(sizes),
        x=x.data_ptr(),
        x_stride=kernel._strides(x),
        h0=h0.data_ptr(),
        W=turn.data_ptr(),
        U=address(U),
        b=address(b),
        output=address(output),
        h_n=h_n.data_ptr(),
    )
    rows = x.numel() // x.shape[-1]
    return (
        sequence,
        kernel._shards(batch, 8.0 * rows * n * (1 + m * fused), sizes),
        [x, h0, U, b, output, h_n, sizes, turn],
    )


def forward(operands: Operands) -> tuple[Tensor, Tensor]:
    x, h0, U = operands.x, operands.h0, operands.U
    if operands.batch_sizes is not None:
        kernel.check_sizes(operands.batch_sizes, x.shape[0])
    output, h_n = empty_states(x, h0)
    source = x
    if U.shape[1] > FUSED:
        source = output.copy_(F.linear(x, U, operands.b)) if output.numel() else output
    sequence, shards, keep = _call(operands, source, output, h_n)
    kernel._workers.run([library.Task(ctypes.pointer(sequence), None, *rows) for rows in shards], (sequence, keep))
    return output, h_n


def backward(grads: Any, h_n: Tensor, operands: Operands, needs: Any) -> list[Tensor | None]:
    g_output, g_h_n = grads
    x, h0, U, b = operands.x, operands.h0, operands.U, operands.b
    fused = U.shape[1] <= FUSED
    source = x if fused else F.linear(x, U, b).contiguous()
    sequence, shards, keep = _call(operands, source, None, h_n.contiguous())
    g_output = None if g_output is None else g_output.resolve_neg()
    g_h_n = None if g_h_n is None else dense(g_h_n)
    strides = (0, 0, 0) if g_output is None else kernel._strides(g_output)
    dx = (x.new_empty(x.shape) if needs[0] else None) if fused else source  # dz over z
    dh0 = h0.new_empty(h0.shape) if needs[1] else None
    sums = [[h0.new_zeros(h0.shape[-1:]), U.new_zeros(U.shape), h0.new_zeros(h0.shape[-1:])] for _ in shards or [0]]
    tasks = []
    for part, rows in zip(sums, shards, strict=False):
        gradients = library.GradientsStruct(
            output=address(g_output),
            output_stride=strides,
            h_n=address(g_h_n),
            x=address(dx),
            h0=address(dh0),
            **{name: address(t) for name, t in zip(("W", "U", "b"), part, strict=True)},
        )
        tasks.append(library.Task(ctypes.pointer(sequence), ctypes.pointer(gradients), *rows))
    kernel._workers.run(tasks, (sequence, keep, g_output, g_h_n, dx, dh0, sums))
    by_unit, dU, db = (torch.stack(parts).sum(0) for parts in zip(*sums, strict=True))
    planes = 2 * len(operands.angle)
    if not fused:
        dz = source.flatten(0, -2)
        dx = source @ U if needs[0] else None
        dU = dz.mT @ x.flatten(0, -2) if needs[4] else dU
        db = dz.sum(0)
    return [dx, dh0, by_unit[1:planes:2] - by_unit[0:planes:2], None, dU, None if b is None else db]
