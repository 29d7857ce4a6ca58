"""The rung on the C++ kernel of ``csrc/``: shards, memory and autograd around its C interface.

The batch is cut into shards of rows, one for each thread; a shard goes through all time steps without waiting for
the others. Each shard sums its own gradients of W, U, b and V; the sums are added in the order of the shards, so that
results are the same bits from call to call.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from scornn.ops import library
from scornn.ops.custom import register
from scornn.ops.rung import (
    CELLS,
    Gradients,
    Head,
    Incoming,
    Needs,
    Operands,
    Rung,
    check,
    empty_states,
    plainly,
    recurrence_flops,
    recurrence_operator,
)
from scornn.ops.workers import Workers
from scornn.torch_internals import constant_to_compiler

_SERIAL = 8e6  # floating-point operations under which handing work to another thread costs more than it saves


@constant_to_compiler
def unavailable() -> str | None:
    """Why the kernel cannot run here; None where it can."""
    loaded = library.load()
    return loaded if isinstance(loaded, str) else None


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
    """The second state of an LSTM after the last step, and with the gates at every step.

    What is None is not written; without ``every`` and ``gates`` there is no backward pass. GRU and GORU have gates
    alone.
    """

    c_n: Tensor | None = None
    every: Tensor | None = None
    gates: Tensor | None = None


def require(operands: Operands, head: Head | None = None) -> None:
    """Raise where the kernel does not run such operands, or they do not belong together."""
    check(operands, head)
    if (reason := refuses(operands)) is not None:
        raise ValueError(f"the native kernel cannot run: {reason}")


class Call:
    """One call of the kernel: its arguments, and the tensors that must live as long as it runs.

    It takes operands as the kernel reads them: those that a caller gave it has to :func:`require` before.
    """

    def __init__(
        self,
        operands: Operands,
        output: Tensor | None,
        h_n: Tensor | None,
        head: Head | None = None,
        y: Tensor | None = None,
        cells: Cells | None = None,
        *,
        map: library.MapStruct | None = None,
        keep: object = None,
        flops: float | None = None,
    ) -> None:
        x, h0, W, U, b, cell, batch_sizes, reverse, c0, _ = operands
        x, batch_sizes = x.resolve_neg(), None if batch_sizes is None else batch_sizes.contiguous()
        V, c = (None, None) if head is None else head
        given: Any = (h0, None if map else W, U, b, output, h_n, V, c, y, c0, *(cells or Cells()))
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
            CELLS[cell].number,
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
    require(operands, head)
    x, h0 = operands.x, operands.h0
    output, h_n = empty_states(x, h0)
    y = None if head is None else x.new_empty(*x.shape[:-1], head.V.shape[0])
    Call(operands, output, h_n, head, y).forward()
    return (output, h_n) if y is None else (output, h_n, y)


def _backward(
    incoming: Incoming, operands: Operands, output: Tensor, needs: Needs, head: Head | None = None
) -> Gradients:
    require(operands, head)
    V, y = None if head is None else head.V, incoming.y
    given: Any = (*operands[:5], V)
    x, h0, *weights = wanted(given, (*needs[:5], needs.V and y is not None))
    (dx, dh0), (dW, dU, db, dV) = Call(operands, output, None, head).backward(
        incoming.output, {"h_n": incoming.h_n, "y": y}, {"x": x, "h0": h0}, weights
    )
    dc = None if y is None or not needs.c else dense(y).flatten(0, -2).sum(0)
    if y is None and head is not None:  # nobody read y
        dV, dc = torch.zeros_like(head.V), torch.zeros_like(head.c)
    return Gradients(dx, dh0, dW, dU, db, dV, dc)


class Reading(NamedTuple):
    """The arguments of the operator that reads a linear head in the same pass."""

    x: Tensor
    h0: Tensor
    W: Tensor
    U: Tensor
    b: Tensor | None
    V: Tensor
    c: Tensor
    activation: str
    batch_sizes: Tensor | None
    reverse: bool

    def parted(self) -> tuple[Operands, Head]:
        return Operands(*self[:5], *self[7:]), Head(*self[5:7])


def _reading_backward(grads: Any, kept: Any, arguments: Reading, needs: Sequence[bool]) -> Gradients:
    operands, head = arguments.parted()
    return _backward(Incoming(*grads), operands, kept[0], Needs(*needs), head)


def _plainly(operands: Operands, head: Head) -> tuple[Tensor, ...]:
    output, h_n = plainly(operands)
    return output, h_n, torch.nn.functional.linear(output, *head)


_reading = register(
    "native_reading",
    Reading,
    lambda arguments: _forward(*arguments.parted()),
    _reading_backward,
    results=3,
    empty=lambda x, h0, W, U, b, V, *rest: (*empty_states(x, h0), x.new_empty(*x.shape[:-1], V.shape[0])),
    plain=lambda arguments: _plainly(*arguments.parted()),
    flops=lambda x, h0, W, U, b, V, *rest: recurrence_flops(x, h0, W, U) + 2 * math.prod(x[:-1]) * math.prod(V),
)


def refuses(operands: Operands) -> str | None:
    """Why the kernel cannot run such operands; None where it can."""
    x, cell = operands.x, operands.cell
    if CELLS[cell].number is None:
        return f"it has no {cell}"
    if x.device.type in ("cpu", "meta") and x.dtype in (torch.float32, torch.float64):
        return None
    return f"it takes float32 or float64 on the CPU, got {x.dtype} on {x.device}"


def rung(run: Callable[[Operands], tuple[Tensor, ...]], read: Any = None) -> Rung:
    return Rung("native", run, unavailable, refuses, read=read)


def _read(operands: Operands, head: Head) -> tuple[Tensor, ...]:
    results: tuple[Tensor, ...] = _reading(*operands[:5], *head, *operands[5:8])
    return results


recurrence = recurrence_operator("native", _forward, _backward)
RUNG = rung(recurrence, _read)
