"""An explicit scope in which W is made once: ``with scornn.cached():``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn

from scornn.torch_internals import under_transform

_made: ContextVar[dict[Any, tuple[tuple[Tensor, ...], Tensor]] | None] = ContextVar("scornn_cached", default=None)


@contextmanager
def cached() -> Iterator[None]:
    """Inside it each layer makes its W once, and uses it in every forward; at the end it is forgotten.

    As :func:`torch.nn.utils.parametrize.cached`, and for the same uses: evaluation in many batches, and streaming step
    by step, where an inverse for each step would cost more than the step. A change in place of the numbers that make W,
    such as the step of an optimizer, is not seen before the end of the scope. Where gradients are recorded, W and its
    graph are shared by the forwards inside: call backward once for all of them. A scope belongs to the thread that
    opened it; one inside another shares what that one made.

    Example:
        >>> layer, h = scornn.ScoRNN(3, 8).eval(), None
        >>> with torch.no_grad(), scornn.cached():
        ...     for x in torch.randn(100, 1, 2, 3):
        ...         _, h = layer(x, h)
    """
    token = _made.set({} if _made.get() is None else _made.get())
    try:
        yield
    finally:
        _made.reset(token)


def tensors_of(module: nn.Module) -> Iterator[Tensor]:
    """Parameters and buffers, found in less time than by torch's own lists: this runs at every frame of a stream."""
    for part in (module._parameters, module._buffers):
        yield from (tensor for tensor in part.values() if tensor is not None)
    for child in module._modules.values():
        if child is not None:
            yield from tensors_of(child)


def once(module: nn.Module, make: Callable[[], Tensor]) -> Tensor:
    """``make()``, or what it gave before in this scope for the same module, tensors and mode."""
    made = None if torch.compiler.is_compiling() or under_transform() else _made.get()
    if made is None:
        return make()
    tensors = tuple(tensors_of(module))
    key = (module, torch.is_grad_enabled(), torch.is_inference_mode_enabled(), *map(id, tensors))
    if key not in made:  # kept with the tensors, so that their ids stay theirs
        made[key] = tensors, make().contiguous()  # a solve gives columns; the kernel would copy them at every frame
    return made[key][1]
