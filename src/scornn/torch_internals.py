"""Every name of torch that is private, or only a prototype, and that the layers need: here, and nowhere else in them.

Another release of torch may rename any of them. What each is for, and what there is in public that does not do:
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.autograd import forward_ad

Function = TypeVar("Function", bound=Callable[..., Any])


def under_functorch() -> bool:
    """Whether torch.func (grad, vmap, jvp) is at work. No public function says so."""
    active: bool = torch._C._are_functorch_transforms_active()
    return active


def under_transform() -> bool:
    """Whether torch.func or forward-mode differentiation is at work: an opaque operator takes no part in them, would
    fail, or quietly lose the tangent. ``forward_ad.dual_level`` opens a level and shows none."""
    return under_functorch() or forward_ad._current_level >= 0


def in_backward() -> bool:
    """Whether a backward is running, as where gradient checkpointing calls a forward again."""
    return torch._C._current_graph_task_id() != -1


def in_hooks() -> bool:
    """True while saved-tensor hooks are active, as inside gradient checkpointing (``use_reentrant=False``): in the
    first forward and when it is called again. With ``use_reentrant=True`` it has none, and the first forward records no
    gradient."""
    return torch._C._autograd._top_saved_tensors_default_hooks(True) is not None


def under_dispatch_mode() -> bool:
    """Whether a mode such as FakeTensorMode sees every operation. The public context managers do not say."""
    return torch._C._len_torch_dispatch_stack() > 0


def has_values(x: Tensor) -> bool:
    """Whether there are numbers to look at: not in a meta or fake tensor, or inside a functorch transform."""
    from torch._subclasses.fake_tensor import FakeTensor  # a third of a second, at the first question

    return not (x.is_meta or isinstance(x, FakeTensor) or torch._C._functorch.is_functorch_wrapped_tensor(x))


def is_batched_gradient(x: Tensor) -> bool:
    """Whether ``is_grads_batched`` made the tensor: torch.func's own vmap is another one, and its type does not say."""
    batched: bool = torch._C._functorch.is_legacy_batchedtensor(x)
    return batched


def assert_later(condition: Tensor, message: str) -> None:
    """Raise where the condition is false, when it is known: torch.compile takes it into its graph, as it does with no
    public assertion on a tensor."""
    torch._assert_async(condition, message)


def constant_to_compiler(function: Function) -> Function:
    """What torch.compiler.assume_constant_result does, which would import the compiler: a second at every start."""
    vars(function)["_dynamo_marked_constant"] = True
    return function


def openmp_parallel() -> Any:
    """GOMP_parallel of the OpenMP runtime that torch is linked with, or None: torch hands out none of its threads."""
    return getattr(ctypes.CDLL(torch._C.__file__), "GOMP_parallel", None)


def scan(combine: Callable[..., Any], first: Tensor, inputs: Tensor, reverse: bool) -> tuple[Tensor, Tensor]:
    """A loop as one operator, which torch.export takes with a free number of steps: a prototype in torch."""
    from torch._higher_order_ops.scan import scan as prototype

    carried, every = prototype(combine, first, inputs, reverse=reverse)
    return carried, every


def gates_loop(name: str) -> Any:
    """torch's own loop of an LSTM or GRU, ``torch.lstm`` or ``torch.gru``, which have no documentation of their own."""
    return getattr(torch._VF, name)
