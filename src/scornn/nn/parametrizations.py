"""The scaled Cayley transform as a parametrization, for the weights of other people's modules."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from scornn import functional
from scornn.nn import init
from scornn.nn.checks import check_rho

Module = TypeVar("Module", bound=nn.Module)


class ScaledCayley(nn.Module):
    """``forward(v)`` is W = (I + A)⁻¹(I − A)D with A = skew(v); ``right_inverse(W)`` finds v, and sets D."""

    sign: Tensor

    def __init__(self, n: int, rho: int, like: Tensor) -> None:
        super().__init__()
        sign = like.new_ones(n)
        sign[n - rho :] = -1
        self.register_buffer("sign", sign)

    def forward(self, v: Tensor) -> Tensor:
        return functional.scaled_cayley(functional.skew(v, self.sign.numel()), self.sign)

    @torch.no_grad()
    def right_inverse(self, W: Tensor) -> Tensor:
        n = self.sign.numel()
        if tuple(W.shape) != (n, n):
            raise ValueError(f"expected an orthogonal matrix of shape {(n, n)}, got {tuple(W.shape)}")
        if W.is_meta:
            return W.new_empty(n * (n - 1) // 2)
        A, D = functional.inverse_scaled_cayley(W.detach().cpu())
        self.sign.copy_(D)
        row, column = functional.skew_indices(n, device=A.device)
        return A[row, column].to(self.sign)


def scaled_cayley(module: Module, name: str = "weight", *, rho: int | None = None) -> Module:
    """Keep a square weight of any module orthogonal, through :mod:`torch.nn.utils.parametrize`.

    The weight starts from the paper's initialisation with ``rho`` entries −1 in D (default n // 2). Afterwards any
    orthogonal matrix can be assigned to it.

    Not for ``torch.nn.RNN``, ``LSTM`` or ``GRU``: they keep their own copy of the weights and would train nothing.

    Example:
        >>> linear = scaled_cayley(torch.nn.Linear(8, 8), "weight", rho=4)
        >>> bool(functional.orthogonality_error(linear.weight) < 1e-5)
        True
    """
    if isinstance(module, nn.RNNBase):
        raise TypeError(
            f"{type(module).__name__} keeps its own copy of its weights, so a parametrized one would never be trained; "
            "use scornn.ScoRNN"
        )
    weight = getattr(module, name, None)
    if not isinstance(weight, nn.Parameter):
        raise ValueError(f"{type(module).__name__} has no parameter {name!r}")
    if weight.dim() != 2 or weight.shape[0] != weight.shape[1]:
        raise ValueError(f"expected a square weight, but {name!r} has shape {tuple(weight.shape)}")
    n = weight.shape[0]
    rho = n // 2 if rho is None else check_rho(rho, n)
    parametrization = ScaledCayley(n, rho, weight.detach())
    v = init.cayley_rotations_(weight.new_empty(n * (n - 1) // 2), n)
    with torch.no_grad():
        weight.copy_(parametrization(v))
    parametrize.register_parametrization(module, name, parametrization)
    return module
