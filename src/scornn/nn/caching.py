"""An explicit scope in which W is made once: ``with scornn.cached():``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn

from scornn.torch_internals import in_backward, in_hooks, under_dispatch_mode, under_transform


class _Scope:
    """What was made inside one scope; nothing is found in it or added to it once the scope has ended."""

    def __init__(self) -> None:
        self.open = True
        self.made: dict[Any, tuple[list[tuple[Tensor, Tensor, bool]], Tensor]] = {}


_scope: ContextVar[_Scope | None] = ContextVar("scornn_cached", default=None)


@contextmanager
def cached() -> Iterator[None]:
    """Inside it each layer makes its W once, and uses it in every forward; at the end it is forgotten.

    As :func:`torch.nn.utils.parametrize.cached`. For evaluation in many batches and for streaming step by step, where
    an inverse for each step would cost more than the step. A scope belongs to the thread or task that opened it; one
    inside another shares what that one made.

    A W is made anew where a number of the layer has changed, a parameter or buffer was replaced, frozen or thawed, and
    apart for each of: gradients recorded, not recorded, inference mode. It is not kept under ``torch.func``'s
    transforms, in ``torch.compile``, under fake tensors or in gradient checkpointing. Where gradients are recorded, W
    and its graph are shared by the forwards inside: call backward once for all of them, or with
    ``retain_graph=True``.

    Example:
        >>> layer, h = scornn.ScoRNN(3, 8).eval(), None
        >>> with torch.no_grad(), scornn.cached():
        ...     for x in torch.randn(100, 1, 2, 3):
        ...         _, h = layer(x, h)
    """
    if _scope.get() is not None:
        yield
        return
    scope = _Scope()
    token = _scope.set(scope)
    try:
        yield
    finally:
        scope.open = False
        scope.made.clear()
        _scope.reset(token)


def once(module: nn.Module, suffix: str, make: Callable[[str], Tensor]) -> Tensor:
    """``make(suffix)``, or what it gave before in this scope from the same numbers."""
    if torch.compiler.is_compiling():
        return make(suffix)
    scope = _scope.get()
    if scope is None or not scope.open or under_transform() or under_dispatch_mode():
        return make(suffix)
    if torch.is_grad_enabled() and (in_hooks() or in_backward()):  # each call of a checkpoint saves all of its tensors
        return make(suffix)
    key = (module, suffix, torch.is_grad_enabled(), torch.is_inference_mode_enabled())
    tensors = [*module.parameters(), *module.buffers()]
    kept = scope.made.get(key)
    if kept is not None and _same(kept[0], tensors):
        return kept[1]
    made = make(suffix).contiguous()  # a solve gives columns; the kernel would copy them at every frame
    scope.made[key] = [(t, t.detach().clone(), t.requires_grad) for t in tensors], made
    return made


def _same(before: list[tuple[Tensor, Tensor, bool]], now: list[Tensor]) -> bool:
    """Whether the tensors are those of before, with the same numbers; not every change by torch counts in a version."""
    return len(before) == len(now) and all(
        t is known
        and t.requires_grad == trained
        and (t.dtype, t.device) == (copy.dtype, copy.device)
        and (t.is_meta or torch.equal(t, copy))
        for t, (known, copy, trained) in zip(now, before, strict=True)
    )
