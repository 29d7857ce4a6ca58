"""What a recurrence is made of, the rungs that can run it, and the one check of what a caller gives."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from scornn.functional import full_precision
from scornn.ops.custom import NOT_UNDER_TRANSFORM, register
from scornn.torch_internals import under_transform

Shapes = dict[str, tuple[Tensor | None, tuple[int, ...]]]
"""Tensors, and the shapes that they should have."""


class Factored(Protocol):
    """A W that is no matrix: :class:`scornn.ops.bank.Bank` or :class:`scornn.ops.product.Product`."""

    @property
    def cell(self) -> str:
        """Where its rungs stand in :data:`CELLS`."""

    def shapes(self, n: int, x: Tensor) -> Shapes: ...


class Operands(NamedTuple):
    """What a recurrence takes, whatever its cell; :func:`scornn.ops.recurrence` explains the first of them.

    Attributes:
        W: the recurrent matrix, with gates one above the other; or a :class:`Factored`.
        cell: an activation, or another name in :data:`CELLS`.
        c0: the second state of an LSTM before the first step, ``(B, n)``.
        R: projects an LSTM's h, ``(r, n)``.
    """

    x: Tensor
    h0: Tensor
    W: Any
    U: Tensor
    b: Tensor | None
    cell: str
    batch_sizes: Tensor | None = None
    reverse: bool = False
    c0: Tensor | None = None
    R: Tensor | None = None


class Head(NamedTuple):
    """A linear head y = V h + c on every state."""

    V: Tensor
    c: Tensor


class Incoming(NamedTuple):
    """The gradients of the results; None for a result that nobody used."""

    output: Tensor | None
    h_n: Tensor | None
    y: Tensor | None = None


class Needs(NamedTuple):
    """Which gradients are wanted."""

    x: bool
    h0: bool
    W: bool
    U: bool
    b: bool
    V: bool = False
    c: bool = False


class Gradients(NamedTuple):
    """The gradients; None for what was not wanted."""

    x: Tensor | None
    h0: Tensor | None
    W: Tensor | None
    U: Tensor | None
    b: Tensor | None
    V: Tensor | None = None
    c: Tensor | None = None


def _nothing(*_: Any) -> str | None:
    return None


class Rung(NamedTuple):
    """One way to run a recurrence.

    Attributes:
        name: what ``backend`` calls it.
        run: from the operands to the states, the last ones, and of an LSTM the last c; differentiable.
        unavailable: why it cannot run in this process, or None.
        refuses: why it cannot run such operands, or None.
        opaque: whether it has its own backward, and so no rule for torch.func's transforms.
        read: as ``run``, with a linear head read in the same pass, whose y is the third result. None where it has none.
    """

    name: str
    run: Callable[[Operands], tuple[Tensor, ...]]
    unavailable: Callable[[], str | None] = _nothing
    refuses: Callable[[Operands], str | None] = _nothing
    opaque: bool = True
    read: Callable[[Operands, Head], tuple[Tensor, ...]] | None = None

    def why_not(self, operands: Operands) -> str | None:
        """Why it cannot run them, here and now; None where it can."""
        if self.opaque and under_transform():
            return f'{NOT_UNDER_TRANSFORM}; take backend="naive"'
        return self.refuses(operands) or self.unavailable()


class Cell(NamedTuple):
    """What runs at every step.

    Attributes:
        rungs: the ways to run it, fastest first.
        number: its number in ``enum scornn_cell`` of the kernel; None where it has none.
        gates: rows of W and U to a unit.
        biases: numbers of b to a unit.
    """

    rungs: tuple[Rung, ...]
    number: int | None = None
    gates: int = 1
    biases: float = 1


CELLS: dict[str, Cell] = {}
"""By name; every module of a cell enters its own."""


def cell_of(operands: Operands) -> Cell:
    name = operands.cell if isinstance(operands.W, Tensor) else operands.W.cell
    if name not in CELLS or operands.cell not in CELLS:
        raise ValueError(f"unknown activation {operands.cell!r}; expected one of {', '.join(CELLS)}")
    return CELLS[name]


def like(x: Tensor, cell: str = "modrelu") -> Operands:
    """Operands to ask a rung about where there is only a tensor of their dtype and device."""
    return Operands(x, x, x, x, None, cell)


def run(operands: Operands, backend: str = "auto") -> tuple[Tensor, ...]:
    """The states, the last of each sequence, and of an LSTM the last c, by the rung that ``backend`` names."""
    check(operands)
    with full_precision(operands.x):
        return choose(operands, backend).run(operands)


PLAINER = ("manual", "torch", "naive")
"""In place of one of these that a cell lacks runs the next that it has; every cell has the last."""


def choose(operands: Operands, backend: str) -> Rung:
    """The rung that ``backend`` names, or for ``auto`` the first that runs such operands."""
    rungs = cell_of(operands).rungs
    names = ("auto", *(rung.name for rung in rungs))
    if backend in PLAINER:
        backend = next(name for name in PLAINER[PLAINER.index(backend) :] if name in names)
    if backend not in names:
        raise ValueError(f"unknown backend {backend!r}; expected one of {', '.join(names)}")
    for rung in rungs:
        if backend not in ("auto", rung.name):
            continue
        reason = rung.why_not(operands)
        if reason is None:
            return rung
        if backend != "auto":
            raise RuntimeError(f'backend="{backend}" cannot run: {reason}')
        if rung.refuses(operands) is None and rung.unavailable() is not None:
            _warn_once(rung.name, reason)
    raise RuntimeError(f"no backend runs {operands.x.dtype} on {operands.x.device}")


@cache
def _warn_once(name: str, reason: str) -> None:
    warnings.warn(f"the {name} kernel cannot run ({reason}); using PyTorch, which is slower", stacklevel=6)


def check(operands: Operands, head: Head | None = None) -> None:
    """Raise where the arguments do not belong together.

    Called by the public functions, and once more where the kernel runs: it reads and writes as far as they say, and an
    exported or traced program has the operator alone.
    """
    x, h0, W, U, b, name, batch_sizes, _, c0, R = operands
    cell, dims = cell_of(operands), 3 if batch_sizes is None else 2
    if U.dim() != 2 or 0 in U.shape or U.shape[0] % cell.gates:
        raise ValueError(f"expected U of shape ({cell.gates}n, m), got {tuple(U.shape)}".replace("(1n", "(n"))
    n, m, biases = U.shape[0] // cell.gates, U.shape[1], CELLS[name].biases
    states = n if R is None else R.shape[0]
    if x.dim() != dims or x.shape[-1] != m:
        raise ValueError(f"expected x with {dims} dimensions, the last of size {m}; got shape {tuple(x.shape)}")
    if n * biases % 1:
        raise ValueError(f"expected n even, got U of shape {tuple(U.shape)}")
    if x.shape[0] == 0:
        raise RuntimeError("Expected sequence length to be larger than 0")
    if batch_sizes is not None and not torch.compiler.is_compiling():  # a compiler has no numbers
        check_batch_sizes(batch_sizes, x.shape[0])
    batch = x.shape[1] if batch_sizes is None else int(batch_sizes[0])
    made: Shapes = {"W": (W, (cell.gates * n, states))} if isinstance(W, Tensor) else W.shapes(n, x)
    shapes = {"h0": (h0, (batch, states)), "c0": (c0, (batch, n)), **made}
    shapes |= {"U": (U, (cell.gates * n, m)), "b": (b, (int(n * biases),)), "R": (R, (states, n))}
    if head is not None:
        shapes |= {"V": (head.V, (head.V.shape[0], n)), "c": (head.c, head.V.shape[:1])}
    agree(x, shapes)


def agree(x: Tensor, expected: Mapping[str, tuple[Tensor | None, tuple[int, ...]]]) -> None:
    """Raise where a tensor has another shape than expected, or another dtype or device than x."""
    given = {name: (tensor, shape) for name, (tensor, shape) in expected.items() if tensor is not None}
    for name, (tensor, shape) in given.items():
        if tuple(tensor.shape) != shape:
            raise ValueError(f"expected {name} of shape {shape}, got {tuple(tensor.shape)}")
    for name, (tensor, _) in given.items():
        if tensor.dtype != x.dtype or tensor.device != x.device:
            raise ValueError(
                f"x is {x.dtype} on {x.device}, but {name} is {tensor.dtype} on {tensor.device}; they must agree"
            )


def check_batch_sizes(batch_sizes: Tensor, rows: int) -> None:
    """Raise where these are not the batch sizes of so many packed rows."""
    if (
        batch_sizes.device.type != "cpu"
        or batch_sizes.dtype != torch.int64
        or not batch_sizes.numel()
        or int(batch_sizes.sum()) != rows
        or bool((batch_sizes[1:] > batch_sizes[:-1]).any())
        or int(batch_sizes[-1]) < 1
    ):
        raise ValueError(
            "expected batch_sizes of a PackedSequence: positive int64 numbers on the CPU that never grow and add up "
            f"to the {rows} rows of x; got {batch_sizes}"
        )


def empty_states(x: Tensor, h0: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
    """The states and the last ones, not yet filled."""
    return x.new_empty(*x.shape[:-1], h0.shape[-1]), h0.new_empty(h0.shape)


class Arguments(NamedTuple):
    """Of an operator with a dense W."""

    x: Tensor
    h0: Tensor
    W: Tensor
    U: Tensor
    b: Tensor | None
    activation: str
    batch_sizes: Tensor | None
    reverse: bool


Forward = Callable[[Operands], tuple[Tensor, ...]]
Backward = Callable[[Incoming, Operands, Tensor, Needs], Gradients]
"""From the incoming gradients, the operands, the states that forward gave, and what is wanted."""


def recurrence_operator(
    name: str, forward: Forward, backward: Backward, backend: str | None = None
) -> Callable[[Operands], tuple[Tensor, ...]]:
    """Register a recurrence whose backward reads the states alone, as ``scornn::{name}_forward``."""

    def backward_op(grads: Any, kept: Any, arguments: Arguments, needs: Sequence[bool]) -> Sequence[Tensor | None]:
        return backward(Incoming(*grads), Operands(*arguments), kept[0], Needs(*needs))[:5]

    operator = register(
        name,
        Arguments,
        lambda arguments: forward(Operands(*arguments)),
        backward_op,
        empty=empty_states,
        plain=lambda arguments: plainly(Operands(*arguments)),
        flops=recurrence_flops,
    )
    return lambda operands: operator(*operands[:8])


def recurrence_flops(x: Any, h0: Any, W: Any, U: Any, *others: Any) -> int:
    """Of the products with W and U, from shapes: a multiplication and an addition for each number and each row."""
    return int(2 * math.prod(x[:-1]) * (math.prod(W) + math.prod(U)))


def plainly(operands: Operands) -> tuple[Tensor, ...]:
    """Run a recurrence on the plainest rung of its cell."""
    cell = operands.cell if isinstance(operands.W, Tensor) else operands.W.cell
    return CELLS[cell].rungs[-1].run(operands)
