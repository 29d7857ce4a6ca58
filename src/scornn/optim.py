"""Optimizers and parameter groups: the paper trains A apart from everything else.

RMSprop comes in three flavours, because "RMSprop" was not one algorithm in the programs that the paper compares:
they differ in the decay, in the start of the second moment and in the place of ε, and the first hundreds of steps
with them (FACTS: the TensorFlow flavour starts its second moment at one, which acts as a warm-up).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, overload

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import ParametrizationList
from torch.optim import Optimizer

from scornn.nn.parametrizations import ScaledCayley

__all__ = ["RMSprop", "parameter_groups", "recurrent_parameters"]


class _Flavour(NamedTuple):
    decay: float
    start: float  # of the second moment
    eps: float
    eps_inside: bool  # sqrt(s + ε) rather than sqrt(s) + ε


FLAVOURS = {
    "tf1": _Flavour(decay=0.9, start=1.0, eps=1e-10, eps_inside=True),
    "theano": _Flavour(decay=0.9, start=1e-3, eps=0.0, eps_inside=True),
    "torch": _Flavour(decay=0.99, start=0.0, eps=1e-8, eps_inside=False),
}


class RMSprop(Optimizer):
    r"""RMSprop in the flavours of TensorFlow 1, of the Theano programs, and of torch.

    .. math::
        s \leftarrow \alpha s + (1 - \alpha) g^2, \qquad
        \theta \leftarrow \theta - \eta\, g / \sqrt{s + \epsilon}
        \quad\text{(tf1, theano)} \qquad
        \theta \leftarrow \theta - \eta\, g / (\sqrt{s} + \epsilon) \quad\text{(torch)}

    ========  =======  ==========  ==================
    flavour   α        s starts    ε
    ========  =======  ==========  ==================
    tf1       0.9      at 1        1e-10, inside
    theano    0.9      at 1e-3     none
    torch     0.99     at 0        1e-8, outside
    ========  =======  ==========  ==================

    Args:
        params: parameters or groups.
        lr: learning rate η.
        flavour: ``tf1``, ``theano`` or ``torch``; sets what is not given.
        decay: α.
        eps: ε.

    Example:
        >>> p = torch.nn.Parameter(torch.zeros(1))
        >>> optimizer = RMSprop([p], lr=0.1, flavour="tf1")
        >>> p.grad = torch.ones(1)
        >>> optimizer.step()
        >>> p.item()  # s = 0.9 · 1 + 0.1 · 1² = 1
        -0.10000000149011612
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        flavour: str = "tf1",
        decay: float | None = None,
        eps: float | None = None,
    ) -> None:
        if flavour not in FLAVOURS:
            raise ValueError(f"unknown flavour {flavour!r} of RMSprop; expected one of {', '.join(FLAVOURS)}")
        chosen = FLAVOURS[flavour]
        decay, eps = chosen.decay if decay is None else decay, chosen.eps if eps is None else eps
        if not 0 <= lr < float("inf"):
            raise ValueError(f"lr must be a finite number of at least 0, got {lr}")
        if not 0 <= decay < 1:
            raise ValueError(f"decay must lie in [0, 1), got {decay}")
        if not 0 <= eps < float("inf"):
            raise ValueError(f"eps must be a finite number of at least 0, got {eps}")
        super().__init__(params, {"lr": lr, "flavour": flavour, "decay": decay, "eps": eps})

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...
    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            flavour = FLAVOURS[group["flavour"]]
            params = [p for p in group["params"] if p.grad is not None]
            if not params:
                continue
            grads: list[Tensor] = [p.grad for p in params]
            for p in params:
                if "square_avg" not in self.state[p]:
                    self.state[p]["square_avg"] = torch.full_like(p, flavour.start, memory_format=torch.preserve_format)
            squares = [self.state[p]["square_avg"] for p in params]
            torch._foreach_mul_(squares, group["decay"])
            torch._foreach_addcmul_(squares, grads, grads, value=1 - group["decay"])
            if flavour.eps_inside:
                scale = torch._foreach_add(squares, group["eps"])
                torch._foreach_sqrt_(scale)
            else:
                scale = torch._foreach_sqrt(squares)
                torch._foreach_add_(scale, group["eps"])
            torch._foreach_addcdiv_(params, grads, scale, value=-group["lr"])
        return loss


def recurrent_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that make recurrent matrices, by name: the free numbers of A, and their like in other models."""
    found: dict[str, nn.Parameter] = {}
    for prefix, module in model.named_modules():
        if isinstance(module, ParametrizationList) and any(isinstance(p, ScaledCayley) for p in module):
            names = ["original"]
        else:
            names = getattr(module, "recurrent_parameter_names", list)()
        for name in names:
            found[f"{prefix}.{name}" if prefix else name] = module.get_parameter(name)
    return found


def parameter_groups(model: nn.Module, lr: float, recurrent_lr: float) -> list[dict[str, Any]]:
    """Two groups for an optimizer: the recurrent parameters with their own learning rate, and all the rest.

    Every trained parameter is in exactly one of them. An empty group is left out.

    Example:
        >>> from scornn.nn import ScoRNN
        >>> [group["name"] for group in parameter_groups(ScoRNN(3, 5), lr=1e-3, recurrent_lr=1e-4)]
        ['rest', 'recurrent']
    """
    recurrent = recurrent_parameters(model)
    ids = {id(p) for p in recurrent.values()}
    rest = [p for p in model.parameters() if p.requires_grad and id(p) not in ids]
    groups = [
        {"params": rest, "lr": lr, "name": "rest"},
        {
            "params": [p for p in recurrent.values() if p.requires_grad],
            "lr": recurrent_lr,
            "name": "recurrent",
        },
    ]
    return [group for group in groups if group["params"]]
