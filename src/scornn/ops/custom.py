"""Turns a forward and a backward function into one opaque operator that autograd and torch.compile understand.

Operators are defined with :class:`torch.library.Library` rather than with ``torch.library.custom_op``, whose first call
imports torch's compiler: two seconds before the first number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

Gradient = Tensor | None
_LIBRARY = torch.library.Library("scornn", "FRAGMENT")
_TYPES = {"Tensor": "Tensor", "Tensor | None": "Tensor?", "str": "str", "bool": "bool", "int": "int"}

NOT_UNDER_TRANSFORM = "it has no rule for torch.func's transforms and forward-mode differentiation"


def register(
    name: str,
    arguments: Any,
    forward: Callable[[Any], Sequence[Tensor]],
    backward: Callable[[Any, Any, Any, Sequence[bool]], Sequence[Gradient]],
    *,
    empty: Callable[..., Sequence[Tensor]],
    no_second_derivative: str,
    flops: Callable[..., int],
    results: int = 2,
    differentiable: int | None = None,
    kept: Sequence[int] = (0,),
) -> Any:
    """Register ``scornn::{name}_forward`` and ``scornn::{name}_backward``; return the first, which is differentiable.

    Args:
        arguments: a NamedTuple type whose fields are those of the operator; the tensors before its first setting may
            have a gradient.
        forward: from the arguments to the results.
        backward: from the gradients of the results (None: nobody used it), the results that were kept, the arguments,
            and which gradients are wanted, to the gradients of the tensors. What is not wanted may be None.
        empty: the results without their numbers, from the arguments one by one.
        no_second_derivative: the error of differentiating a gradient.
        flops: of forward, from the shapes of its arguments; backward takes twice as many.
        results: how many there are; the first ``differentiable``, by default all, may have a gradient.
        kept: numbers of the results that ``backward`` reads.
    """
    operator = _Operator(arguments, backward, results if differentiable is None else differentiable, kept)
    schema = ", ".join(f"{_TYPES[kind]} {field}" for field, kind in kinds_of(arguments).items())
    incoming = [f"Tensor? g{k}" for k in range(operator.differentiable)] + [f"Tensor kept{k}" for k in range(len(kept))]
    made, gradients = (", ".join(["Tensor"] * count) for count in (results, operator.inputs))
    call = _define(
        f"{name}_forward", f"({schema}) -> ({made})", lambda *given: tuple(forward(arguments(*given))), empty
    )
    operator.call_backward = _define(
        f"{name}_backward",
        f"({', '.join(incoming)}, {schema}, bool[] needs) -> ({gradients})",
        operator.run_backward,
        operator.empty_gradients,
    )

    def refuse(ctx: Any, *grads: Any) -> None:
        raise RuntimeError(no_second_derivative)

    torch.library.register_autograd(call, operator.autograd, setup_context=operator.setup_context, lib=_LIBRARY)
    torch.library.register_autograd(
        operator.call_backward, refuse, setup_context=lambda ctx, inputs, output: None, lib=_LIBRARY
    )
    torch.library.register_vmap(operator.call_backward, _one_by_one(operator.call_backward), lib=_LIBRARY)
    register_flop_formula(call.overloadpacket)(lambda *shapes, out_shape=None, **_: flops(*shapes))
    register_flop_formula(operator.call_backward.overloadpacket)(
        lambda *shapes, out_shape=None, **_: 2 * flops(*operator.parted(shapes)[2])
    )
    return call


def kinds_of(arguments: Any) -> dict[str, str]:
    """The fields of a NamedTuple type, and their types as they are written."""
    return {field: kind.__forward_arg__ for field, kind in arguments.__annotations__.items()}


class _Operator:
    """The backward operator of a recurrence, and what autograd asks of it.

    Gradients of results that nobody used arrive as None rather than as zeros, so that reading only the last state does
    not cost a full-length gradient.
    """

    call_backward: Any

    def __init__(self, arguments: Any, backward: Any, differentiable: int, kept: Sequence[int]) -> None:
        self.arguments, self.backward, self.differentiable, self.kept = arguments, backward, differentiable, kept
        kinds = list(kinds_of(arguments).values())
        self.inputs = next((k for k, kind in enumerate(kinds) if "Tensor" not in kind), len(kinds))

    def parted(self, given: Sequence[Any]) -> tuple[Any, Any, Any, Any]:
        """What the backward operator is given: the incoming gradients, what was kept, the arguments and the needs."""
        first, second = self.differentiable, self.differentiable + len(self.kept)
        return given[:first], given[first:second], given[second:-1], given[-1]

    def as_declared(self, gradients: list[Tensor]) -> Any:
        return gradients[0] if self.inputs == 1 else tuple(gradients)

    def run_backward(self, *given: Any) -> Any:
        grads, kept, called, needs = self.parted(given)
        made = self.backward(grads, kept, self.arguments(*called), needs)
        # What empty_gradients promises a compiler, also where an argument lies otherwise: contiguous.
        return self.as_declared(
            [
                kept[0].new_empty(0) if g is None or not need else g.contiguous()
                for g, need in zip(made, needs, strict=True)
            ]
        )

    def empty_gradients(self, *given: Any) -> Any:
        _, kept, called, needs = self.parted(given)
        return self.as_declared(
            [
                t.new_empty(t.shape) if need else kept[0].new_empty(0)
                for t, need in zip(called[: self.inputs], needs, strict=True)
            ]
        )

    def setup_context(self, ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*output[self.differentiable :])
        ctx.rest = [None if isinstance(a, Tensor) else a for a in inputs]
        tensors = [a if isinstance(a, Tensor) else None for a in inputs]
        ctx.save_for_backward(*(output[k] for k in self.kept), *tensors)

    def autograd(self, ctx: Any, *grads: Gradient) -> tuple[Any, ...]:
        saved, count = ctx.saved_tensors, len(self.kept)
        called = [rest if tensor is None else tensor for tensor, rest in zip(saved[count:], ctx.rest, strict=True)]
        nothing = [None] * len(called)
        used = grads[: self.differentiable]
        if all(g is None for g in used):
            return tuple(nothing)
        needs = list(ctx.needs_input_grad[: self.inputs])
        made = self.call_backward(*used, *saved[:count], *called, needs)
        every = zip([made] if isinstance(made, Tensor) else made, needs, strict=True)
        return (*(gradient if need else None for gradient, need in every), *nothing[self.inputs :])


def _define(name: str, schema: str, kernel: Callable[..., Any], fake: Callable[..., Any]) -> Any:
    _LIBRARY.define(name + schema, tags=torch.Tag.pt2_compliant_tag)
    _LIBRARY.impl(name, kernel, "CompositeExplicitAutograd")
    torch.library.register_fake(f"scornn::{name}", fake, lib=_LIBRARY)
    return getattr(torch.ops.scornn, name).default


def _one_by_one(operator: Any) -> Callable[..., Any]:
    """A rule for vmap, as ``is_grads_batched`` asks for: the slices one after the other."""

    def slice_of(k: int, argument: Any, dim: Any) -> Any:
        return argument.select(dim, k) if isinstance(argument, Tensor) and dim is not None else argument

    def rule(info: Any, in_dims: tuple[Any, ...], *arguments: Any) -> tuple[Any, Any]:
        every = [
            operator(*(slice_of(k, a, d) for a, d in zip(arguments, in_dims, strict=True)))
            for k in range(info.batch_size)
        ]
        if isinstance(every[0], Tensor):
            return torch.stack(every), 0
        return tuple(torch.stack(parts) for parts in zip(*every, strict=True)), (0,) * len(every[0])

    return rule
