"""Turns a forward and a backward function into one opaque operator that autograd and torch.compile understand.

Operators are defined with :class:`torch.library.Library` rather than with ``torch.library.custom_op``, whose first call
imports torch's compiler: two seconds before the first number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils.flop_counter import register_flop_formula

Forward = Callable[..., tuple[Tensor, ...]]
"""From the arguments to the results."""

Backward = Callable[[Sequence[Tensor | None], Sequence[Tensor], Sequence[Any], Sequence[bool]], Sequence[Tensor | None]]
"""From the gradients of the results (None: nobody used it), the results that were kept, the arguments, and which
gradients are wanted, to the gradients of the first arguments. What is not wanted may be None."""

_LIBRARY = torch.library.Library("scornn", "FRAGMENT")

NOT_UNDER_TRANSFORM = "it has no rule for torch.func's transforms and forward-mode differentiation"


def under_transform() -> bool:
    """Whether torch.func (grad, vmap, jvp) or forward-mode differentiation is at work.

    An opaque operator takes no part in them: it would fail, or quietly lose the tangent.
    """
    transforms: bool = torch._C._are_functorch_transforms_active()
    return transforms or forward_ad._current_level >= 0


def in_backward() -> bool:
    """Whether a backward is running, as where gradient checkpointing calls a forward again."""
    return torch._C._current_graph_task_id() != -1


def in_hooks() -> bool:
    """Whether hooks take what autograd saves: those of gradient checkpointing, in the first forward and when it is
    called again. With ``use_reentrant=True`` it has none, and the first forward records no gradient."""
    return torch._C._autograd._top_saved_tensors_default_hooks(True) is not None


def register(
    name: str,
    arguments: str,
    forward: Forward,
    empty_results: Forward,
    backward: Backward,
    *,
    inputs: int,
    results: int,
    differentiable: int,
    kept: Sequence[int],
    second_derivative: str,
    flops: Callable[..., int] | None = None,
) -> Any:
    """Register ``scornn::{name}_forward`` and ``scornn::{name}_backward``; return the first, which is differentiable.

    Gradients of results that nobody used arrive as None rather than as zeros, so that reading only the last state does
    not cost a full-length gradient. The backward operator also runs under vmap (``is_grads_batched``), one after the
    other. FlopCounterMode counts both.

    Args:
        arguments: as in a schema of torch.library; tensors that may have a gradient come first.
        empty_results: as ``forward``, without the numbers.
        inputs: how many arguments may have a gradient.
        results: how many there are; the first ``differentiable`` may have a gradient.
        kept: numbers of the results that ``backward`` reads.
        second_derivative: the error of differentiating a gradient.
        flops: of forward, from the shapes of its arguments; backward takes twice as many.
    """
    returns = ", ".join(["Tensor"] * results)
    given = ", ".join([f"Tensor? g{k}" for k in range(differentiable)] + [f"Tensor kept{k}" for k in range(len(kept))])
    gradient_types = ", ".join(["Tensor"] * inputs)
    first_kept, first_argument = differentiable, differentiable + len(kept)

    def gradients_as_declared(made: list[Tensor]) -> Any:
        return made[0] if inputs == 1 else tuple(made)

    def backward_op(*everything: Any) -> Any:
        called, needs = everything[first_argument:-1], everything[-1]
        gradients = backward(everything[:first_kept], everything[first_kept:first_argument], called, needs)
        like = everything[first_kept]
        return gradients_as_declared(
            # What empty_gradients promises a compiler, also where an argument lies otherwise: contiguous.
            [
                like.new_empty(0) if g is None or not need else g.contiguous()
                for g, need in zip(gradients, needs, strict=True)
            ]
        )

    def empty_gradients(*everything: Any) -> Any:
        like, called = everything[first_kept], everything[first_argument : first_argument + inputs]
        return gradients_as_declared(
            [
                t.new_empty(t.shape) if need else like.new_empty(0)
                for t, need in zip(called, everything[-1], strict=True)
            ]
        )

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*output[differentiable:])
        tensors = [a if isinstance(a, Tensor) else None for a in inputs]
        ctx.rest = [None if isinstance(a, Tensor) else a for a in inputs]
        ctx.save_for_backward(*(output[k] for k in kept), *tensors)

    def autograd(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        saved, count = ctx.saved_tensors, len(kept)
        called = [rest if tensor is None else tensor for tensor, rest in zip(saved[count:], ctx.rest, strict=True)]
        nothing = [None] * len(called)
        if all(g is None for g in grads[:differentiable]):
            return tuple(nothing)
        needs = list(ctx.needs_input_grad[:inputs])
        made = backward_operator(*grads[:differentiable], *saved[:count], *called, needs)
        every = zip([made] if isinstance(made, Tensor) else made, needs, strict=True)
        return (*(gradient if need else None for gradient, need in every), *nothing[inputs:])

    def refuse(ctx: Any, *grads: Any) -> None:
        raise RuntimeError(second_derivative)

    forward_operator = _define(f"{name}_forward", f"({arguments}) -> ({returns})", forward, empty_results)
    backward_operator = _define(
        f"{name}_backward", f"({given}, {arguments}, bool[] needs) -> ({gradient_types})", backward_op, empty_gradients
    )
    torch.library.register_autograd(forward_operator, autograd, setup_context=setup_context, lib=_LIBRARY)
    torch.library.register_autograd(
        backward_operator, refuse, setup_context=lambda ctx, inputs, output: None, lib=_LIBRARY
    )
    torch.library.register_vmap(backward_operator, _one_by_one(backward_operator), lib=_LIBRARY)
    if flops is not None:
        register_flop_formula(forward_operator.overloadpacket)(lambda *shapes, out_shape=None, **_: flops(*shapes))
        register_flop_formula(backward_operator.overloadpacket)(
            lambda *shapes, out_shape=None, **_: 2 * flops(*shapes[first_argument:-1])
        )
    return forward_operator


def _define(name: str, schema: str, kernel: Callable[..., Any], fake: Callable[..., Any]) -> Any:
    _LIBRARY.define(name + schema, tags=torch.Tag.pt2_compliant_tag)
    _LIBRARY.impl(name, kernel, "CompositeExplicitAutograd")
    torch.library.register_fake(f"scornn::{name}", fake, lib=_LIBRARY)
    return getattr(torch.ops.scornn, name).default


def _one_by_one(operator: Any) -> Callable[..., Any]:
    """A rule for vmap: the slices one after the other."""

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
