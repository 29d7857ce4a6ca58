"""scornn: recurrent networks whose recurrent matrix stays orthogonal, by the scaled Cayley transform.

>>> import torch, scornn
>>> layer = scornn.ScoRNN(input_size=10, hidden_size=64)
>>> output, h_n = layer(torch.randn(1000, 4, 10))
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

__all__ = [
    "LinearMemory",
    "ScaledCayley",
    "ScoRNN",
    "ScoRNNCell",
    "__version__",
    "backends",
    "cached",
    "convert",
    "deploy",
    "functional",
    "load",
    "matrices",
    "nn",
    "ops",
    "optim",
    "parametrizations",
    "widen",
]

if TYPE_CHECKING:
    from scornn import functional, matrices, nn, ops, optim
    from scornn.matrices import ScaledCayley, cached
    from scornn.nn import LinearMemory, ScoRNN, ScoRNNCell, parametrizations
    from scornn.nn.convert import convert
    from scornn.nn.widen import widen
    from scornn.ops import backends
    from scornn.program import deploy
    from scornn.program.deploy.network import load

# torch is imported by the first use of a name, not by ``import scornn``: ``scornn --help`` has no need of it.
_HOMES = {
    "LinearMemory": "scornn.nn.linear_memory:LinearMemory",
    "ScaledCayley": "scornn.matrices:ScaledCayley",
    "ScoRNN": "scornn.nn.scornn:ScoRNN",
    "ScoRNNCell": "scornn.nn.cell:ScoRNNCell",
    "backends": "scornn.ops:backends",
    "cached": "scornn.matrices:cached",
    "convert": "scornn.nn.convert:convert",
    "deploy": "scornn.program.deploy",
    "functional": "scornn.functional",
    "load": "scornn.program.deploy.network:load",
    "matrices": "scornn.matrices",
    "nn": "scornn.nn",
    "ops": "scornn.ops",
    "optim": "scornn.optim",
    "parametrizations": "scornn.nn.parametrizations",
    "widen": "scornn.nn.widen:widen",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'scornn' has no attribute {name!r}")
    module, _, attribute = _HOMES[name].partition(":")
    home = importlib.import_module(module)
    return getattr(home, attribute) if attribute else home


def __dir__() -> list[str]:
    return __all__
