"""Optimizers and parameter groups: the paper trains A apart from everything else.

RMSprop comes in three flavours, because "RMSprop" was not one algorithm in the programs that the paper compares:
they differ in the decay, in the start of the second moment and in the place of ε, and the first hundreds of steps
with them (the TensorFlow flavour starts its second moment at one, which acts as a warm-up).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple, overload

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from scornn.matrices import Matrix
from scornn.nn import RNN, Cell
from scornn.ops.layout import complex_pairs

__all__ = ["RMSprop", "StiefelStep", "parameter_groups", "recurrent_parameters"]


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


class _ByGroup(Optimizer):
    """An optimizer whose step is an :meth:`update` of each group."""

    def update(self, group: dict[str, Any]) -> None:
        raise NotImplementedError

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As every optimizer's; the state of another one is refused."""
        for group in state_dict["param_groups"]:
            if missing := self.defaults.keys() - group.keys():
                raise ValueError(f"this is the state of another optimizer: a group has no {', '.join(sorted(missing))}")
        super().load_state_dict(state_dict)

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
            self.update(group)
        return loss


def _check_rates(lr: float, decay: float, eps: float) -> None:
    if not 0 <= lr < float("inf"):
        raise ValueError(f"lr must be a finite number of at least 0, got {lr}")
    if not 0 <= decay < 1:
        raise ValueError(f"decay must lie in [0, 1), got {decay}")
    if not 0 <= eps < float("inf"):
        raise ValueError(f"eps must be a finite number of at least 0, got {eps}")


class RMSprop(_ByGroup):
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

    Each of the last four may be a group's own. A complex parameter is stepped as a pair of real ones.

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
        super().__init__(params, {"lr": lr, "flavour": flavour, "decay": decay, "eps": eps})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As every optimizer's; the group's flavour sets what neither it nor the constructor was given."""
        group = {**self.defaults, **param_group}
        if group["flavour"] not in FLAVOURS:
            raise ValueError(f"unknown flavour {group['flavour']!r} of RMSprop; expected one of {', '.join(FLAVOURS)}")
        for name in ("decay", "eps"):
            if group[name] is None:
                group[name] = getattr(FLAVOURS[group["flavour"]], name)
        _check_rates(group["lr"], group["decay"], group["eps"])
        for name in ("alpha", "weight_decay", "momentum", "centered", "maximize"):
            if group.get(name):
                raise ValueError(f"RMSprop of scornn has no {name}, but a group sets it; torch.optim.RMSprop has one")
        super().add_param_group(group)

    def update(self, group: dict[str, Any]) -> None:
        flavour = FLAVOURS[group["flavour"]]
        stepped = [p for p in group["params"] if p.grad is not None]
        if not stepped:
            return
        if any(p.grad.is_sparse for p in stepped):
            raise ValueError("RMSprop of scornn takes no sparse gradients: build the embedding with sparse=False")
        params, grads = [_real(p) for p in stepped], [_real(p.grad) for p in stepped]
        for p, real in zip(stepped, params, strict=True):
            if "square_avg" not in self.state[p]:
                self.state[p]["square_avg"] = torch.full_like(real, flavour.start, memory_format=torch.preserve_format)
        squares = [self.state[p]["square_avg"] for p in stepped]
        torch._foreach_mul_(squares, group["decay"])
        torch._foreach_addcmul_(squares, grads, grads, value=1 - group["decay"])
        if flavour.eps_inside:
            scale = torch._foreach_add(squares, group["eps"])
            torch._foreach_sqrt_(scale)
        else:
            scale = torch._foreach_sqrt(squares)
            torch._foreach_add_(scale, group["eps"])
        least = [torch.finfo(s.dtype).tiny for s in scale]
        if group["eps"] < max(least):  # such an ε is lost, and 0/0, of squares that have shrunk to zero, would be NaN
            torch._foreach_clamp_min_(scale, least)
        torch._foreach_addcdiv_(params, grads, scale, value=-group["lr"])


def _check_pairs(p: Tensor) -> None:
    if p.dim() != 3 or p.shape[0] != p.shape[1] or p.shape[2] != 2:
        raise ValueError(f"expected unitary matrices as (Re, Im) of shape (n, n, 2), got {tuple(p.shape)}")
    if p.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"expected unitary matrices in float32 or float64, got {p.dtype}: no others can be solved for")


def _real(x: Tensor) -> Tensor:
    return torch.view_as_real(x) if x.is_complex() else x


class StiefelStep(_ByGroup):
    r"""The multiplicative step of the full-capacity uRNN: W moves along the unitary matrices by a Cayley transform.

    .. math::
        W \leftarrow (I + \tfrac{λ}{2}B)^{-1}(I - \tfrac{λ}{2}B)W, \qquad B = GW^* - WG^*, \quad
        G = \partial L/\partial \mathrm{Re}\,W + i\,\partial L/\partial \mathrm{Im}\,W

    B is skew-Hermitian, so the factor is unitary, but W is a product of as many factors as there were steps, and
    rounding errors add up: the step works in W's own precision, as the program of Wisdom et al. does.

    Args:
        params: unitary matrices as (Re, Im), ``(n, n, 2)``, such as ``unitary_hh_l0`` of :class:`scornn.nn.FullURNN`.
        lr: λ.
        rms: divide each element of the gradient by the root of its running mean square first, with the decay α and
            the ε that RMSprop of the flavour ``torch`` would use.
        decay: α.
        eps: ε.

    Example:
        >>> W = torch.nn.Parameter(torch.view_as_real(torch.eye(2, dtype=torch.complex64)).clone())
        >>> optimizer = StiefelStep([W], lr=0.5)
        >>> W.grad = torch.randn(2, 2, 2)
        >>> optimizer.step()
        >>> U = torch.view_as_complex(W.detach())
        >>> bool((U.mH @ U - torch.eye(2)).abs().max() < 1e-6)
        True
    """

    def __init__(
        self, params: Iterable[Any], lr: float = 1e-3, rms: bool = False, decay: float = 0.9, eps: float = 1e-8
    ) -> None:
        super().__init__(params, {"lr": lr, "rms": rms, "decay": decay, "eps": eps})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As every optimizer's, of unitary matrices alone."""
        group = {**self.defaults, **param_group}
        _check_rates(group["lr"], group["decay"], group["eps"])
        super().add_param_group(group)
        try:
            for p in self.param_groups[-1]["params"]:
                _check_pairs(p)
        except ValueError:
            self.param_groups.pop()
            raise

    def update(self, group: dict[str, Any]) -> None:
        for p in group["params"]:
            if p.grad is None:
                continue
            g = self._normalised(p, group) if group["rms"] else p.grad
            W, G = complex_pairs(p), complex_pairs(g)
            B = G @ W.mH - W @ G.mH
            I = torch.eye(W.shape[0], dtype=W.dtype, device=W.device)
            p.copy_(torch.view_as_real(torch.linalg.solve(I + group["lr"] / 2 * B, (I - group["lr"] / 2 * B) @ W)))

    def _normalised(self, p: Tensor, group: dict[str, Any]) -> Tensor:
        state = self.state[p]
        if "square_avg" not in state:
            state["square_avg"] = torch.zeros_like(p)
        g = p.grad
        assert g is not None
        state["square_avg"].mul_(group["decay"]).addcmul_(g, g, value=1 - group["decay"])
        return g / (state["square_avg"].sqrt() + group["eps"])


def recurrent_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that make recurrent matrices, by name: the free numbers of A, and their like in other models."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"model is a module, such as torch.nn.ModuleList([layer, head]); got {type(model).__name__}")
    made = {id(p) for module in model.modules() if isinstance(module, Matrix) for p in module.parameters()}
    return {name: p for name, p in named_parameters(model).items() if id(p) in made}


def named_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters of a model by their names in its ``state_dict``, which checkpoints name optimizer state by."""
    return {name: p for name, p in model.state_dict(keep_vars=True).items() if isinstance(p, nn.Parameter)}


def parameter_groups(
    model: nn.Module, lr: float, recurrent_lr: float, bias: Literal["recurrent", "rest"] | float = "rest"
) -> list[dict[str, Any]]:
    """Groups for an optimizer: ``recurrent`` parameters with their own learning rate, and all the ``rest``.

    Every trained parameter is in exactly one of them. An empty group is left out.

    Args:
        model: any module with recurrent layers in it; of several, ``torch.nn.ModuleList([layer, head])``.
        lr: of the input and output weights.
        recurrent_lr: of A, and of its like in other models.
        bias: the group of the bias b inside the recurrence. The authors' program puts it into the ``rest``. As a
            ``recurrent`` parameter, or in a group ``bias`` with a rate of its own, a number, it takes smaller steps,
            which the copying problem needs: over a thousand steps of the recurrence a change of b acts a thousand
            times (``docs/learning-rates.md``).

    Example:
        >>> from scornn.nn import ScoRNN
        >>> [group["name"] for group in parameter_groups(ScoRNN(3, 5), lr=1e-3, recurrent_lr=1e-4)]
        ['rest', 'recurrent']
    """
    own_rate = isinstance(bias, float) and 0 < bias < float("inf")
    if bias not in ("recurrent", "rest") and not own_rate:
        raise ValueError(f'bias must be "recurrent", "rest" or a positive rate, got {bias!r}')
    recurrent = list(recurrent_parameters(model).values())
    inside = [] if bias == "rest" else [module for module in model.modules() if isinstance(module, (RNN, Cell))]
    biases = [p for module in inside for p in module.recurrent_biases()]
    if bias == "recurrent":
        recurrent, biases = recurrent + biases, []
    ids = {id(p) for p in recurrent + biases}
    groups: list[dict[str, Any]] = [
        {"params": [p for p in model.parameters() if id(p) not in ids], "lr": lr, "name": "rest"},
        {"params": recurrent, "lr": recurrent_lr, "name": "recurrent"},
        {"params": biases, "lr": bias, "name": "bias"},
    ]
    for group in groups:  # layers may share a parameter
        group["params"] = [p for p in dict.fromkeys(group["params"]) if p.requires_grad]
    return [group for group in groups if group["params"]]
