"""Turns a forward and a backward function into one opaque operator that autograd and torch.compile understand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

Recurrence = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor | None, str, Tensor | None, bool], tuple[Tensor, Tensor]]


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


def register(name: str, forward: Recurrence, backward: Callable[..., Gradients]) -> Recurrence:
    """Register ``scornn::{name}_forward`` and ``scornn::{name}_backward``, and return the differentiable operator.

    Gradients that are not there (nobody used ``output``, or nobody used ``h_n``) arrive as None rather than as
    zeros, so that reading only the last state does not cost a full-length gradient.
    """

    def forward_op(
        x: Tensor,
        h0: Tensor,
        W: Tensor,
        U: Tensor,
        b: Tensor | None,
        activation: str,
        batch_sizes: Tensor | None,
        reverse: bool,
    ) -> tuple[Tensor, Tensor]:
        return forward(x, h0, W, U, b, activation, batch_sizes, reverse)

    def backward_op(
        grad_output: Tensor | None,
        grad_h_n: Tensor | None,
        x: Tensor,
        h0: Tensor,
        W: Tensor,
        U: Tensor,
        b: Tensor | None,
        output: Tensor,
        activation: str,
        batch_sizes: Tensor | None,
        reverse: bool,
        needs: list[bool],
    ) -> list[Tensor]:
        gradients = backward(
            grad_output, grad_h_n, x, h0, W, U, b, output, activation, batch_sizes, reverse, Needs(*needs)
        )
        return [x.new_empty(0) if gradient is None else gradient for gradient in gradients]

    forward_custom = torch.library.custom_op(f"scornn::{name}_forward", forward_op, mutates_args=())
    backward_custom = torch.library.custom_op(f"scornn::{name}_backward", backward_op, mutates_args=())

    @forward_custom.register_fake
    def _(
        x: Tensor,
        h0: Tensor,
        W: Tensor,
        U: Tensor,
        b: Tensor | None,
        activation: str,
        batch_sizes: Tensor | None,
        reverse: bool,
    ) -> tuple[Tensor, Tensor]:
        return x.new_empty(*x.shape[:-1], h0.shape[-1]), h0.new_empty(h0.shape)

    @backward_custom.register_fake
    def _(
        grad_output: Tensor | None,
        grad_h_n: Tensor | None,
        x: Tensor,
        h0: Tensor,
        W: Tensor,
        U: Tensor,
        b: Tensor | None,
        output: Tensor,
        activation: str,
        batch_sizes: Tensor | None,
        reverse: bool,
        needs: list[bool],
    ) -> list[Tensor]:
        return [
            t.new_empty(t.shape) if need and t is not None else x.new_empty(0)
            for need, t in zip(needs, (x, h0, W, U, b), strict=True)
        ]

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        x, h0, W, U, b, ctx.activation, batch_sizes, ctx.reverse = inputs
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, h0, W, U, b, output[0], batch_sizes)

    def autograd(ctx: Any, grad_output: Tensor | None, grad_h_n: Tensor | None) -> tuple[Tensor | None, ...]:
        if grad_output is None and grad_h_n is None:
            return (None,) * 8
        x, h0, W, U, b, states, batch_sizes = ctx.saved_tensors
        needs = list(ctx.needs_input_grad[:5])
        gradients = backward_custom(
            grad_output, grad_h_n, x, h0, W, U, b, states, ctx.activation, batch_sizes, ctx.reverse, needs
        )
        return (*(g if need else None for g, need in zip(gradients, needs, strict=True)), None, None, None)

    def no_second_derivative(ctx: Any, *grads: Any) -> None:
        raise RuntimeError(
            f'The "{name}" backend of scornn has no second derivative. '
            'Build the layer with backend="naive" to differentiate a gradient.'
        )

    forward_custom.register_autograd(autograd, setup_context=setup_context)
    backward_custom.register_autograd(no_second_derivative, setup_context=lambda ctx, inputs, output: None)
    return forward_custom
