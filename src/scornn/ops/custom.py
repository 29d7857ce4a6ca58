"""Turns a forward and a backward function into one opaque operator that autograd and torch.compile understand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad

Recurrence = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor | None, str, Tensor | None, bool], tuple[Tensor, Tensor]]
"""The sequence operator: the fields of :class:`Operands` to the states and the last state of each sequence."""


class Operands(NamedTuple):
    """What the sequence operator takes, in its order; :func:`scornn.ops.recurrence` explains them."""

    x: Tensor
    h0: Tensor
    W: Tensor
    U: Tensor
    b: Tensor | None
    activation: str
    batch_sizes: Tensor | None
    reverse: bool


WEIGHTS = "Tensor x, Tensor h0, Tensor W, Tensor U, Tensor? b"
SETTINGS = "str activation, Tensor? batch_sizes, bool reverse"
"""The operands as a schema of torch.library."""


class Incoming(NamedTuple):
    """The gradients of the results; None for a result that nobody used."""

    output: Tensor | None
    h_n: Tensor | None


class Needs(NamedTuple):
    """Which gradients are wanted."""

    x: bool
    h0: bool
    W: bool
    U: bool
    b: bool


class Gradients(NamedTuple):
    """The gradients; None for what was not wanted."""

    x: Tensor | None
    h0: Tensor | None
    W: Tensor | None
    U: Tensor | None
    b: Tensor | None


NOT_UNDER_TRANSFORM = "it has no rule for torch.func's transforms and forward-mode differentiation"


def under_transform() -> bool:
    """Whether torch.func (grad, vmap, jvp) or forward-mode differentiation is at work.

    An opaque operator takes no part in them: it would fail, or quietly lose the tangent.
    """
    transforms: bool = torch._C._are_functorch_transforms_active()
    return transforms or forward_ad._current_level >= 0


def takes_plain_loop(backend: str) -> bool:
    """Whether the loop in plain PyTorch has to run: asked for, or because nothing else can."""
    if backend == "naive" or not under_transform():
        return backend == "naive"
    if backend != "auto":
        raise RuntimeError(f'backend="{backend}" cannot run: {NOT_UNDER_TRANSFORM}; take backend="naive"')
    return True


Forward = Callable[[Operands], tuple[Tensor, Tensor]]
Backward = Callable[[Incoming, Operands, Tensor, Needs], Gradients]
"""From the incoming gradients, the operands and the states that forward gave."""


def register(name: str, forward: Forward, backward: Backward) -> Recurrence:
    """Register ``scornn::{name}_forward`` and ``scornn::{name}_backward``, and return the differentiable operator.

    Gradients that are not there (nobody used ``output``, or nobody used ``h_n``) arrive as None rather than as
    zeros, so that reading only the last state does not cost a full-length gradient.
    """

    def forward_op(*operands: Any) -> tuple[Tensor, Tensor]:
        return forward(Operands(*operands))

    def backward_op(*arguments: Any) -> list[Tensor]:
        g_output, g_h_n, output, *operands, needs = arguments
        gradients = backward(Incoming(g_output, g_h_n), Operands(*operands), output, Needs(*needs))
        return [output.new_empty(0) if gradient is None else gradient for gradient in gradients]

    forward_custom = torch.library.custom_op(
        f"scornn::{name}_forward",
        forward_op,
        mutates_args=(),
        schema=f"({WEIGHTS}, {SETTINGS}) -> (Tensor, Tensor)",
    )
    backward_custom = torch.library.custom_op(
        f"scornn::{name}_backward",
        backward_op,
        mutates_args=(),
        schema=f"(Tensor? g_output, Tensor? g_h_n, Tensor output, {WEIGHTS}, {SETTINGS}, bool[] needs) -> Tensor[]",
    )

    @forward_custom.register_fake
    def _(*operands: Any) -> tuple[Tensor, Tensor]:
        x, h0 = operands[:2]
        return x.new_empty(*x.shape[:-1], h0.shape[-1]), h0.new_empty(h0.shape)

    @backward_custom.register_fake
    def _(*arguments: Any) -> list[Tensor]:
        return empty_gradients(arguments[3:8], arguments[-1])

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        *tensors, ctx.activation, batch_sizes, ctx.reverse = inputs
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(output[0], *tensors, batch_sizes)

    def autograd(ctx: Any, g_output: Tensor | None, g_h_n: Tensor | None) -> tuple[Tensor | None, ...]:
        if g_output is None and g_h_n is None:
            return (None,) * 8
        output, *tensors, batch_sizes = ctx.saved_tensors
        needs = list(ctx.needs_input_grad[:5])
        settings = (ctx.activation, batch_sizes, ctx.reverse)
        gradients = backward_custom(g_output, g_h_n, output, *tensors, *settings, needs)
        return (*(g if need else None for g, need in zip(gradients, needs, strict=True)), None, None, None)

    forward_custom.register_autograd(autograd, setup_context=setup_context)
    refuse_second_derivative(backward_custom, name)
    return forward_custom


def empty_gradients(tensors: tuple[Tensor | None, ...], needs: list[bool]) -> list[Tensor]:
    """What a backward operator returns, without its numbers: an empty tensor for what is not wanted."""
    like = tensors[0]
    assert like is not None
    return [
        t.new_empty(t.shape) if need and t is not None else like.new_empty(0)
        for t, need in zip(tensors, needs, strict=True)
    ]


def refuse_second_derivative(operator: Any, name: str) -> None:
    """Make differentiating a backward operator an error that says what to do."""

    def no_second_derivative(ctx: Any, *grads: Any) -> None:
        raise RuntimeError(
            f'The "{name}" backend of scornn has no second derivative. '
            'Build the layer with backend="naive" to differentiate a gradient.'
        )

    operator.register_autograd(no_second_derivative, setup_context=lambda ctx, inputs, output: None)
