"""The scaled Cayley transform for the weights of other people's modules, in one call."""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch import nn
from torch.nn.utils import parametrize

from scornn.matrices import ScaledCayley

Module = TypeVar("Module", bound=nn.Module)


def scaled_cayley(module: Module, name: str = "weight", *, rho: int | None = None) -> Module:
    """Keep a square weight of any module orthogonal, through :mod:`torch.nn.utils.parametrize`.

    As ``register_parametrization(module, name, scornn.ScaledCayley(n, rho))``: the weight starts from the paper's
    initialisation with ``rho`` entries −1 in D (default n // 2), and any orthogonal matrix can be assigned to it.

    Example:
        >>> linear = scaled_cayley(torch.nn.Linear(8, 8), "weight", rho=4)
        >>> bool(scornn.functional.orthogonality_error(linear.weight) < 1e-5)
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
    matrix = ScaledCayley(weight.shape[0], rho, device=weight.device, dtype=weight.dtype)
    parametrize.register_parametrization(module, name, matrix)
    parametrized: Any = module
    parametrized.parametrizations[name].register_load_state_dict_pre_hook(_rename)
    return module


def _rename(module: nn.Module, state_dict: dict[str, torch.Tensor], prefix: str, *others: Any) -> None:
    """The free numbers of A were the weight's original, up to version 0.2."""
    if f"{prefix}original" in state_dict:
        state_dict[f"{prefix}0.skew"] = state_dict.pop(f"{prefix}original")
