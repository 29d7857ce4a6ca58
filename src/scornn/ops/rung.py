"""What a rung of an operator is, how ``auto`` chooses one, and how a recurrence with its own backward is registered."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from scornn.ops.custom import NOT_UNDER_TRANSFORM, register, under_transform


class Operands(NamedTuple):
    """What the sequence operator takes, in its order; :func:`scornn.ops.recurrence` explains them."""

    x: Tensor
    h0: Tensor
    W: Tensor
    U: Tensor
    b: Tensor | None
    activation: str
    batch_sizes: Tensor | None = None
    reverse: bool = False


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


Run = Callable[..., tuple[Tensor, ...]]
"""A differentiable operator."""


def _nothing(*_: Tensor) -> str | None:
    return None


class Rung(NamedTuple):
    """One way to run an operator.

    Attributes:
        name: what ``backend`` calls it.
        run: the differentiable operator.
        unavailable: why it cannot run in this process, or None.
        refuses: why it cannot run on tensors such as x, or None.
        opaque: whether it has its own backward, and so no rule for torch.func's transforms.
        read: the operator that also reads a linear head in the same pass: (x, h0, W, U, b, V, c, activation,
            batch_sizes, reverse) to the states, the last ones and y. None where it has none.
    """

    name: str
    run: Run
    unavailable: Callable[[], str | None] = _nothing
    refuses: Callable[[Tensor], str | None] = _nothing
    opaque: bool = True
    read: Run | None = None

    def why_not(self, x: Tensor) -> str | None:
        """Why it cannot run on x, here and now; None where it can."""
        if self.opaque and under_transform():
            return f'{NOT_UNDER_TRANSFORM}; take backend="naive"'
        return self.refuses(x) or self.unavailable()


def choose(rungs: Sequence[Rung], backend: str, x: Tensor) -> Rung:
    """The rung that ``backend`` names, or for ``auto`` the first that runs on tensors such as x."""
    names = ("auto", *(rung.name for rung in rungs))
    if backend not in names:
        raise ValueError(f"unknown backend {backend!r}; expected one of {', '.join(names)}")
    for rung in rungs:
        if backend not in ("auto", rung.name):
            continue
        reason = rung.why_not(x)
        if reason is None:
            return rung
        if backend != "auto":
            raise RuntimeError(f'backend="{backend}" cannot run: {reason}')
        if rung.refuses(x) is None and rung.unavailable() is not None:
            _warn_once(rung.name, reason)
    raise RuntimeError(f"no backend runs {x.dtype} on {x.device}")


@cache
def _warn_once(name: str, reason: str) -> None:
    warnings.warn(f"the {name} kernel cannot run ({reason}); using PyTorch, which is slower", stacklevel=5)


Forward = Callable[..., tuple[Tensor, ...]]
"""From the operands, with a head from both: the states and the last ones, with a head also y."""

Backward = Callable[..., Gradients]
"""From the incoming gradients, the operands, the states that forward gave, and what is wanted; with a head also it."""

_TENSORS = "Tensor x, Tensor h0, Tensor W, Tensor U, Tensor? b"
_SETTINGS = "str activation, Tensor? batch_sizes, bool reverse"


def empty_states(x: Tensor, h0: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
    """The states and the last ones, not yet filled."""
    return x.new_empty(*x.shape[:-1], h0.shape[-1]), h0.new_empty(h0.shape)


def recurrence_operator(
    name: str, forward: Forward, backward: Backward, backend: str | None = None, *, reads: bool = False
) -> Run:
    """Register a recurrence whose backward reads the states alone, as ``scornn::{name}_forward``.

    With ``reads`` it takes V and c of a head after b, and gives y as a third result.
    """
    inputs = 7 if reads else 5

    def parted(arguments: Any) -> tuple[Any, ...]:
        operands = Operands(*arguments[:5], *arguments[inputs:])
        return (operands, Head(*arguments[5:7])) if reads else (operands,)

    def backward_op(grads: Any, kept: Any, arguments: Any, needs: Any) -> list[Tensor | None]:
        operands, *head = parted(arguments)
        return list(backward(Incoming(*grads), operands, kept[0], Needs(*needs), *head))[:inputs]

    def empty_results(*arguments: Any) -> tuple[Tensor, ...]:
        x, V = arguments[0], arguments[5]
        y = (x.new_empty(*x.shape[:-1], V.shape[0]),) if reads else ()
        return *empty_states(*arguments), *y

    def flops(*shapes: Any) -> int:
        return recurrence_flops(*shapes) + (2 * math.prod(shapes[0][:-1]) * math.prod(shapes[5]) if reads else 0)

    return register(
        name,
        f"{_TENSORS}, {'Tensor V, Tensor c, ' * reads}{_SETTINGS}",
        lambda *arguments: forward(*parted(arguments)),
        empty_results,
        backward_op,
        inputs=inputs,
        results=2 + reads,
        differentiable=2 + reads,
        kept=(0,),
        second_derivative=no_second_derivative(backend or name),
        flops=flops,
    )


def recurrence_flops(x: Any, h0: Any, W: Any, U: Any, *others: Any) -> int:
    """Of the products with W and U, from shapes: a multiplication and an addition for each number and each row."""
    return int(2 * math.prod(x[:-1]) * (math.prod(W) + math.prod(U)))


def no_second_derivative(backend: str) -> str:
    return (
        f'The "{backend}" backend of scornn has no second derivative. '
        'Build the layer with backend="naive" to differentiate a gradient.'
    )
