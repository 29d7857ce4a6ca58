"""The rung on the C++ kernel of ``csrc/``: shards, memory and autograd around its C interface.

The batch is cut into shards of rows, one for each thread; a shard goes through all time steps without waiting for
the others. Each shard sums its own gradients of W, U, b and V; the sums are added in the order of the shards, so that
results are the same bits from call to call.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from scornn.ops import library
from scornn.ops.rung import (
    Gradients,
    Head,
    Incoming,
    Needs,
    Operands,
    Rung,
    agree,
    check_batch_sizes,
    empty_states,
    recurrence_operator,
)
from scornn.ops.workers import Workers

GATES = {"lstm": 4, "gru": 3, "goru": 3}
"""Rows of W and U as a multiple of n; b has 4n."""
_SERIAL = 8e6  # floating-point operations under which handing work to another thread costs more than it saves


def unavailable() -> str | None:
    """Why the kernel cannot run here; None where it can."""
    loaded = library.load()
    return loaded if isinstance(loaded, str) else None


# What torch.compiler.assume_constant_result does; calling it would import the compiler, a second at every start.
vars(unavailable)["_dynamo_marked_constant"] = True


def loaded() -> library.Library:
    """The kernel; an error where there is none."""
    found = library.load()
    if isinstance(found, str):
        raise RuntimeError(f"the native kernel cannot run: {found}")
    return found


_workers = Workers()


def _shards(batch: int, flops: float, batch_sizes: Tensor | None) -> list[tuple[int, int]]:
    """Ranges of rows with about the same work."""
    count = min(torch.get_num_threads(), batch) if flops > _SERIAL else min(1, batch)
    if batch_sizes is None or count <= 1:
        bounds = [k * batch // count for k in range(count + 1)] if count else []
    else:
        lengths = torch.searchsorted(-batch_sizes, -torch.arange(batch))
        work = lengths.cumsum(0)
        middle = torch.arange(1, count) * int(work[-1]) // count
        bounds = [0, *(torch.searchsorted(work, middle) + 1).tolist(), batch]
    return [(begin, end) for begin, end in pairwise(bounds) if begin < end]


def dense(tensor: Tensor) -> Tensor:
    return tensor.resolve_neg().contiguous()


def address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def wanted(tensors: Sequence[Tensor | None], needs: Sequence[bool]) -> list[Tensor | None]:
    """The tensors whose gradient is wanted, and None in the place of the others."""
    return [t if need else None for t, need in zip(tensors, needs, strict=True)]


def _strides(tensor: Tensor) -> tuple[int, ...]:
    """(time, row, column); packed rows have no time stride."""
    return tensor.stride() if tensor.dim() == 3 else (0, *tensor.stride())


class Cells(NamedTuple):
    """The second state of an LSTM: before the first step, after the last, and with the gates at every step.

    What is None is not written; without ``every`` and ``gates`` there is no backward pass. GRU and GORU have gates
    alone.
    """

    c0: Tensor | None = None
    c_n: Tensor | None = None
    every: Tensor | None = None
    gates: Tensor | None = None


def _check(operands: Operands, head: Head | None, cells: Cells, mapped: bool) -> None:
    """Raise where the arguments do not belong together: the kernel reads and writes as far as they say.

    Here, since an exported or traced program has the operator alone, without what the layer checks before it.
    """
    x, h0, batch_sizes = operands.x, operands.h0, operands.batch_sizes
    reason, dims = refuses(x), 3 if batch_sizes is None else 2
    if reason is not None:
        raise ValueError(f"the native kernel cannot run: {reason}")
    if x.dim() != dims or 0 in (x.shape[0], x.shape[-1]) or h0.dim() != 2:
        raise ValueError(
            f"expected x with {dims} dimensions, one step and one input at least, and h0 with 2; "
            f"got shapes {tuple(x.shape)} and {tuple(h0.shape)}"
        )
    if batch_sizes is not None:
        check_batch_sizes(batch_sizes, x.shape[0])
    check_shapes(operands, x.shape[1] if batch_sizes is None else int(batch_sizes[0]), cells.c0, mapped)
    if head is not None:
        agree(x, {"V": (head.V, (head.V.shape[0], h0.shape[1])), "c": (head.c, head.V.shape[:1])})


def check_shapes(operands: Operands, batch: int, c0: Tensor | None = None, mapped: bool = False) -> None:
    """Raise where a tensor has not the shape, dtype and device that x, the states and the activation ask for."""
    x, h0, W, U, b, activation, *_ = operands
    n, m = h0.shape[1], x.shape[-1]
    rows = GATES.get(activation, 1) * n
    biases = 4 * n if activation in GATES else n // 2 if activation == "complex_modrelu" else n
    shapes = {"h0": (h0, (batch, n)), "c0": (c0, (batch, n)), "U": (U, (rows, m)), "b": (b, (biases,))}
    if not mapped:
        shapes["W"] = (W, (4, n) if activation == "bank" else (rows, n))
    agree(x, shapes)


class Call:
    """One call of the kernel: its arguments, and the tensors that must live as long as it runs."""

    def __init__(
        self,
        operands: Operands,
        output: Tensor | None,
        h_n: Tensor | None,
        head: Head | None = None,
        y: Tensor | None = None,
        cells: Cells | None = None,
        map: library.MapStruct | None = None,
        keep: object = None,
        flops: float | None = None,
    ) -> None:
        _check(operands, head, cells or Cells(), map is not None)
        x, h0, W, U, b, activation, batch_sizes, reverse = operands
        x, batch_sizes = x.resolve_neg(), None if batch_sizes is None else batch_sizes.contiguous()
        V, c = (None, None) if head is None else head
        given = (h0, W, U, b, output, h_n, V, c, y, *(cells or Cells()))
        arrays = [None if t is None else dense(t) for t in given]
        self.x, self.keep = x, (batch_sizes, arrays, keep)
        (batch, n), m = h0.shape, x.shape[-1]
        self.sequence = library.SequenceStruct(
            x.shape[0] if batch_sizes is None else batch_sizes.shape[0],
            batch,
            n,
            m,
            0 if V is None else V.shape[0],
            0 if x.dtype == torch.float32 else 1,
            library.ACTIVATION[activation],
            reverse,
            loaded().isa,
            address(batch_sizes),
            x.data_ptr(),
            _strides(x),
            *(address(t) for t in arrays),
            None if map is None else ctypes.pointer(map),
        )
        flops = 2.0 * math.prod(x.shape[:-1]) * U.shape[0] * (n + m) if flops is None else flops
        self.shards = _shards(batch, flops, batch_sizes)

    def forward(self) -> None:
        sequence = ctypes.pointer(self.sequence)
        _workers.run(loaded().work, [library.Task(sequence, None, *rows) for rows in self.shards], self)

    def backward(
        self,
        output: Tensor | None,
        incoming: dict[str, Tensor | None],
        states: dict[str, Tensor | None],
        weights: list[Tensor | None],
        factors: Sequence[Tensor | None] = (),
        over_x: bool = False,
    ) -> tuple[list[Tensor | None], list[Tensor | None]]:
        """The gradients of ``states``, such as x and h0, and those of W, U, b, V and a map's ``factors``.

        The latter are sums over the shards. Each is shaped like what is given; None: not wanted.

        ``output`` is the gradient of all states, ``incoming`` are those of the other results. With ``over_x`` that of
        x is written over x.
        """
        output = None if output is None else output.resolve_neg()
        strides = (0, 0, 0) if output is None else _strides(output)
        incoming = {name: None if g is None else dense(g) for name, g in incoming.items()}
        made = {name: None if t is None else t.new_empty(t.shape) for name, t in states.items()}
        if over_x:
            made["x"] = self.x
        others = {name: address(t) for name, t in (incoming | made).items()}
        weights = [*weights, *factors]
        parts = [[None if p is None else p.new_empty(p.shape) for p in weights] for _ in self.shards]
        sequence, tasks = ctypes.pointer(self.sequence), []
        for part, rows in zip(parts, self.shards, strict=True):
            sums = dict(zip(("W", "U", "b", "V"), map(address, part[:4]), strict=True))
            by_factor = (ctypes.c_void_p * 3)(*map(address, part[4:]))
            gradients = library.GradientsStruct(
                output=address(output), output_stride=strides, factor=by_factor, **others, **sums
            )
            tasks.append(library.Task(sequence, ctypes.pointer(gradients), *rows))
        _workers.run(loaded().work, tasks, (self, output, parts, incoming, made))
        if not parts:  # an empty batch
            parts = [[None if p is None else p.new_zeros(p.shape) for p in weights]]
        for part in parts[1:]:
            for total, term in zip(parts[0], part, strict=True):
                if total is not None and term is not None:
                    total += term
        return list(made.values()), parts[0]


def _forward(operands: Operands, head: Head | None = None) -> tuple[Tensor, ...]:
    x, h0 = operands.x, operands.h0
    output, h_n = empty_states(x, h0)
    y = None if head is None else x.new_empty(*x.shape[:-1], head.V.shape[0])
    Call(operands, output, h_n, head, y).forward()
    return (output, h_n) if y is None else (output, h_n, y)


def _backward(
    incoming: Incoming, operands: Operands, output: Tensor, needs: Needs, head: Head | None = None
) -> Gradients:
    V, y = None if head is None else head.V, incoming.y
    x, h0, *weights = wanted((*operands[:5], V), (*needs[:5], needs.V and y is not None))
    (dx, dh0), (dW, dU, db, dV) = Call(operands, output, None, head).backward(
        incoming.output, {"h_n": incoming.h_n, "y": y}, {"x": x, "h0": h0}, weights
    )
    dc = None if y is None or not needs.c else dense(y).flatten(0, -2).sum(0)
    if y is None and head is not None:  # nobody read y
        dV, dc = torch.zeros_like(head.V), torch.zeros_like(head.c)
    return Gradients(dx, dh0, dW, dU, db, dV, dc)


def refuses(x: Tensor) -> str | None:
    """Why the kernel cannot run on tensors such as x; None where it can."""
    if x.device.type in ("cpu", "meta") and x.dtype in (torch.float32, torch.float64):
        return None
    return f"it takes float32 or float64 on the CPU, got {x.dtype} on {x.device}"


recurrence = recurrence_operator("native", _forward, _backward)
reading = recurrence_operator("native_reading", _forward, _backward, "native", reads=True)
RUNG = Rung("native", recurrence, unavailable, refuses, read=reading)
