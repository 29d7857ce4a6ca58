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

Gradient = Tensor | list[Tensor] | None
Forward = Callable[..., tuple[Tensor, ...]]
"""From the arguments to the results."""

Backward = Callable[[Sequence[Tensor | None], Sequence[Tensor], Sequence[Any], Sequence[bool]], Sequence[Gradient]]
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
    first_kept, first_argument = differentiable, differentiable + len(kept)

    lists = "Tensor[]" in arguments
    gradient_types = "Tensor[]" if lists else "(" + ", ".join(["Tensor"] * inputs) + ")"

    def gradients_as_declared(flat: list[Tensor]) -> Any:
        return flat if lists else flat[0] if inputs == 1 else tuple(flat)

    def backward_op(*everything: Any) -> Any:
        called, needs = everything[first_argument:-1], everything[-1]
        gradients = backward(everything[:first_kept], everything[first_kept:first_argument], called, needs)
        like = everything[first_kept]
        flat = zip(_flat(called[:inputs], needs), _flat(gradients, needs), strict=True)
        return gradients_as_declared([like.new_empty(0) if g is None or not want else g for (_, want), (g, _) in flat])

    def empty_gradients(*everything: Any) -> Any:
        like = everything[first_kept]
        flat = _flat(everything[first_argument : first_argument + inputs], everything[-1])
        return gradients_as_declared([t.new_empty(t.shape) if want else like.new_empty(0) for t, want in flat])

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*output[differentiable:])
        tensors, ctx.rest = _part(inputs)
        ctx.save_for_backward(*(output[k] for k in kept), *tensors)

    def autograd(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        saved = ctx.saved_tensors
        called = _join(saved[len(kept) :], ctx.rest)
        nothing = [None if not isinstance(a, list) else [None] * len(a) for a in called]
        if all(g is None for g in grads[:differentiable]):
            return tuple(nothing)
        needs = [any(n) if isinstance(n, (list, tuple)) else n for n in ctx.needs_input_grad[:inputs]]
        if lists and any(g is not None and torch._C._functorch.is_legacy_batchedtensor(g) for g in grads):
            raise RuntimeError(f'{name} has no batched gradients here; build the layer with backend="naive"')
        made = backward_operator(*grads[:differentiable], *saved[: len(kept)], *called, needs)
        flat = iter([made] if isinstance(made, Tensor) else made)
        found = [[next(flat) for _ in a] if isinstance(a, list) else next(flat) for a in called[:inputs]]
        wanted = [
            [g if t.is_floating_point() else None for g, t in zip(gradient, a, strict=True)]
            if isinstance(a, list) and need
            else (gradient if need else absent)
            for gradient, a, need, absent in zip(found, called, needs, nothing, strict=False)
        ]
        return (*wanted, *nothing[inputs:])

    def refuse(ctx: Any, *grads: Any) -> None:
        raise RuntimeError(second_derivative)

    forward_operator = _define(f"{name}_forward", f"({arguments}) -> ({returns})", forward, empty_results)
    backward_operator = _define(
        f"{name}_backward", f"({given}, {arguments}, bool[] needs) -> {gradient_types}", backward_op, empty_gradients
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


def _flat(values: Sequence[Any], needs: Sequence[bool]) -> list[tuple[Any, bool]]:
    """Each value, and each one of a list, with whether its gradient is wanted: never where there is none to have."""
    flat = [
        (one, need)
        for value, need in zip(values, needs, strict=True)
        for one in (value if isinstance(value, list) else [value])
    ]
    return [(one, need and one is not None and one.is_floating_point()) for one, need in flat]


def _part(arguments: tuple[Any, ...]) -> tuple[list[Tensor], list[Any]]:
    """The tensors among the arguments, and what is left with their number in their place."""
    tensors: list[Tensor] = []
    rest: list[Any] = []
    for argument in arguments:
        if isinstance(argument, Tensor):
            rest.append(_Tensors(0))
            tensors.append(argument)
        elif isinstance(argument, (list, tuple)):
            rest.append(_Tensors(len(argument)))
            tensors.extend(argument)
        else:
            rest.append(argument)
    return tensors, rest


def _join(tensors: Sequence[Tensor], rest: list[Any]) -> list[Any]:
    """The arguments that :func:`_part` took apart."""
    left = iter(tensors)
    return [
        value
        if not isinstance(value, _Tensors)
        else [next(left) for _ in range(value.count)]
        if value.count
        else next(left)
        for value in rest
    ]


class _Tensors:
    """The place of a list of tensors; a count of 0 is the place of one tensor."""

    def __init__(self, count: int) -> None:
        self.count = count


def _one_by_one(operator: Any) -> Callable[..., Any]:
    """A rule for vmap: the slices one after the other."""

    def rule(info: Any, in_dims: tuple[Any, ...], *arguments: Any) -> tuple[Any, Any]:
        def slice_of(k: int, argument: Any, dim: Any) -> Any:
            if isinstance(argument, list):
                return (
                    [slice_of(k, a, d) for a, d in zip(argument, dim, strict=True)]
                    if isinstance(dim, (list, tuple))
                    else argument
                )
            return argument if dim is None else argument.select(dim, k)

        every = [
            operator(*(slice_of(k, a, d) for a, d in zip(arguments, in_dims, strict=True)))
            for k in range(info.batch_size)
        ]
        if isinstance(every[0], Tensor):
            return torch.stack(every), 0
        kind = type(every[0])  # a list or a tuple, as the schema says
        return kind(torch.stack(parts) for parts in zip(*every, strict=True)), kind([0] * len(every[0]))

    return rule
