"""Turns a forward and a backward function into one opaque operator that autograd and torch.compile understand.

Operators are defined with :class:`torch.library.Library` rather than with ``torch.library.custom_op``, whose first call
imports torch's compiler: two seconds before the first number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from scornn.torch_internals import is_batched_gradient, under_dispatch_mode, under_transform

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
    plain: Callable[[Any], Sequence[Tensor]],
    flops: Callable[..., int],
    results: int = 2,
    differentiable: int | None = None,
    kept: Sequence[int] = (0,),
) -> Any:
    """Register ``scornn::{name}_forward`` and ``scornn::{name}_backward``; return one that calls the first.

    Args:
        arguments: a NamedTuple type whose fields are those of the operator; the tensors before its first setting may
            have a gradient.
        forward: from the arguments to the results.
        backward: from the gradients of the results (None: nobody used it), the results that were kept, the arguments,
            and which gradients are wanted, to the gradients of the tensors. What is not wanted may be None.
        empty: the results without their numbers, from the arguments one by one.
        plain: as forward, in PyTorch alone: what differentiates a gradient.
        flops: of forward, from the shapes of its arguments; backward takes twice as many.
        results: how many there are; the first ``differentiable``, by default all, may have a gradient.
        kept: numbers of the results that ``backward`` reads.
    """
    operator = _Operator(arguments, backward, plain, results if differentiable is None else differentiable, kept)
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

    torch.library.register_autograd(call, operator.autograd, setup_context=operator.setup_context, lib=_LIBRARY)
    torch.library.register_autograd(
        operator.call_backward, operator.autograd_twice, setup_context=_keep_inputs, lib=_LIBRARY
    )
    torch.library.register_vmap(operator.call_backward, _one_by_one(operator.call_backward), lib=_LIBRARY)
    register_flop_formula(call.overloadpacket)(lambda *shapes, out_shape=None, **_: flops(*shapes))
    register_flop_formula(operator.call_backward.overloadpacket)(
        lambda *shapes, out_shape=None, **_: 2 * flops(*operator.parted(shapes)[2])
    )
    return _eager(name, operator, call, forward)


def _eager(name: str, operator: _Operator, call: Any, forward: Callable[[Any], Sequence[Tensor]]) -> Any:
    """The operator, and where nothing looks on a plain function of autograd, which spares torch's dispatch."""

    def run(ctx: Any, *given: Any) -> tuple[Tensor, ...]:
        made = tuple(forward(operator.arguments(*given)))
        operator.setup_context(ctx, given, made)
        return made

    members = {"forward": staticmethod(run), "backward": staticmethod(operator.autograd)}
    function: Any = type(name, (torch.autograd.Function,), members)

    def either(*given: Any) -> tuple[Tensor, ...]:
        if _looked_on(given):
            return tuple(call(*given))
        return function.apply(*given) if torch.is_grad_enabled() else tuple(forward(operator.arguments(*given)))

    return either


def _looked_on(given: Sequence[Any]) -> bool:
    """Whether a compiler, an export, a transform or a mode such as a counter of operations needs the operator."""
    if torch.compiler.is_compiling() or under_transform() or under_dispatch_mode():
        return True
    if torch.jit.is_tracing():  # type: ignore[attr-defined,no-untyped-call]
        return True
    tensors = [t for t in given if isinstance(t, Tensor)]
    return not all(type(t) in (Tensor, torch.nn.Parameter) and t.is_cpu and not is_batched_gradient(t) for t in tensors)


def kinds_of(arguments: Any) -> dict[str, str]:
    """The fields of a NamedTuple type, and their types as they are written."""
    return {field: kind.__forward_arg__ for field, kind in arguments.__annotations__.items()}


class _Operator:
    """The backward operator of a recurrence, and what autograd asks of it.

    Gradients of results that nobody used arrive as None rather than as zeros, so that reading only the last state does
    not cost a full-length gradient.
    """

    call_backward: Any

    def __init__(self, arguments: Any, backward: Any, plain: Any, differentiable: int, kept: Sequence[int]) -> None:
        self.arguments, self.backward, self.plain = arguments, backward, plain
        self.differentiable, self.kept = differentiable, kept
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
        ctx.mark_non_differentiable(*output[self.differentiable :])
        _keep_inputs(ctx, inputs, output, *(output[k] for k in self.kept))

    def autograd(self, ctx: Any, *grads: Gradient) -> tuple[Any, ...]:
        kept, called = _kept_inputs(ctx, len(self.kept))
        nothing = [None] * len(called)
        used = grads[: self.differentiable]
        if all(g is None for g in used):
            return tuple(nothing)
        needs = list(ctx.needs_input_grad[: self.inputs])
        direct = not (torch.is_grad_enabled() or _looked_on([*used, *kept]))
        made = (self.run_backward if direct else self.call_backward)(*used, *kept, *called, needs)
        every = zip([made] if isinstance(made, Tensor) else made, needs, strict=True)
        return (*(gradient if need else None for gradient, need in every), *nothing[self.inputs :])

    def autograd_twice(self, ctx: Any, *incoming: Gradient) -> tuple[Any, ...]:
        """The gradient of the backward operator: that of the plain function's gradient, run again."""
        given = _kept_inputs(ctx, 0)[1]
        grads, kept, called, needs = self.parted(given)
        with torch.enable_grad():
            grads = [None if g is None else g.detach().requires_grad_() for g in grads]
            inputs = [None if t is None else t.detach() for t in called[: self.inputs]]
            trained = [t.requires_grad_() for t in inputs if t is not None and t.is_floating_point()]
            results = self.plain(self.arguments(*inputs, *called[self.inputs :]))
            used = [(r, g) for r, g in zip(results, grads, strict=False) if g is not None and r.requires_grad]
            wanted = [k for k, need in enumerate(needs) if need and inputs[k] is not None]
            first = torch.autograd.grad(
                [r for r, _ in used],
                [t for k in wanted if (t := inputs[k]) is not None],
                [g for _, g in used],
                create_graph=True,
                allow_unused=True,
            )
            pairs = [(g, incoming[k]) for g, k in zip(first, wanted, strict=True) if g is not None and g.requires_grad]
            pairs = [(g, coming) for g, coming in pairs if coming is not None]
        sources = [g for g in grads if g is not None] + trained
        second: Iterator[Gradient] = iter([None] * len(sources))
        if pairs:
            outputs, comings = zip(*pairs, strict=True)
            second = iter(torch.autograd.grad(outputs, sources, comings, allow_unused=True))
        to_grads = [None if g is None else next(second) for g in grads]
        to_inputs = [next(second) if t is not None and t.requires_grad else None for t in inputs]
        return (*to_grads, *[None] * len(kept), *to_inputs, *[None] * (len(called) - self.inputs), None)


def _keep_inputs(ctx: Any, inputs: tuple[Any, ...], output: Any, *before: Tensor) -> None:
    ctx.set_materialize_grads(False)
    ctx.rest = [None if isinstance(a, Tensor) else a for a in inputs]
    ctx.save_for_backward(*before, *(a if isinstance(a, Tensor) else None for a in inputs))


def _kept_inputs(ctx: Any, before: int) -> tuple[tuple[Tensor, ...], list[Any]]:
    saved = ctx.saved_tensors
    pairs = zip(saved[before:], ctx.rest, strict=True)
    return saved[:before], [rest if tensor is None else tensor for tensor, rest in pairs]


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
