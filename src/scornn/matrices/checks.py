"""Small things that every model uses: checks of arguments, and the precision in which W is made."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from numbers import Real
from typing import Any

import torch
from torch import Tensor


def is_sharded(value: Any) -> bool:
    """Whether it is a DTensor, as the parameters of a module after ``fully_shard`` are."""
    distributed = sys.modules.get("torch.distributed.tensor")  # an import of it takes a while
    return distributed is not None and isinstance(value, distributed.DTensor)


def precise(v: Tensor) -> Tensor:
    """``v`` in the precision in which W is made: float32 or better."""
    return v.float() if v.dtype in (torch.bfloat16, torch.float16) else v


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise ValueError(f"unknown {name} {value!r}; expected one of {', '.join(map(repr, choices))}")
    return value


def check_integer(name: str, value: Any, low: int, high: int | None = None) -> int:
    """The value, an integer in ``low..high``; without ``high`` at least ``low``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < low or (high is not None and value > high):
        allowed = f"of at least {low}" if high is None else f"in {low}..{high}"
        raise ValueError(f"{name} must be an integer {allowed}, got {value!r}")
    return value


def check_number(
    name: str, value: Any, allowed: str = "a finite number", fits: Callable[[float], bool] = lambda number: True
) -> float:
    """The value, a finite number that fits; what is ``allowed`` is said where it does not."""
    finite = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    if not finite or not fits(value):
        raise ValueError(f"{name} must be {allowed}, got {value!r}")
    return float(value)


def check_rho(rho: Any, n: int) -> int:
    if isinstance(rho, bool) or not isinstance(rho, int):
        raise TypeError(f"rho should be of type int, got: {type(rho).__name__}")
    if not 0 <= rho <= n:
        raise ValueError(f"rho, the number of −1 in D, must lie in 0..{n}, the size of W; got {rho}")
    return rho


def check_sizes(**sizes: int) -> None:
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, int):
            raise TypeError(f"{name} should be of type int, got: {type(size).__name__}")
        if size <= 0:
            raise ValueError(f"{name} must be greater than zero, got {size}")
