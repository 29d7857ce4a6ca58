"""From a run to a product: load a trained network, freeze it, export it.

Importing this package imports nothing else, so that :mod:`scornn.deploy.fresh` can check a file without it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__all__ = ["Frozen", "Network", "export", "load"]

if TYPE_CHECKING:
    from scornn.deploy.frozen import Frozen
    from scornn.deploy.network import Network, load
    from scornn.deploy.write import export

_HOMES = {"Frozen": "frozen", "Network": "network", "export": "write", "load": "network"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'scornn.deploy' has no attribute {name!r}")
    return getattr(importlib.import_module(f"scornn.deploy.{_HOMES[name]}"), name)
