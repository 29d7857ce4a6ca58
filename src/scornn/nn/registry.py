"""Every model under the name by which the command line and the presets know it."""

from __future__ import annotations

import difflib
from typing import Any

from torch import nn

from scornn.nn.lstm import LSTM
from scornn.nn.scornn import ScoRNN

MODELS: dict[str, type[nn.Module]] = {"scornn": ScoRNN, "lstm": LSTM}


def build(name: str, input_size: int, hidden_size: int, **options: Any) -> nn.Module:
    """A layer of the named model.

    Example:
        >>> build("scornn", 1, 16, rho=8)
        ScoRNN(1, 16, rho=8)
    """
    if name not in MODELS:
        close = difflib.get_close_matches(name, MODELS, n=1)
        raise ValueError(
            f"unknown model {name!r}; "
            + (f"did you mean {close[0]!r}? " if close else "")
            + f"The models are: {', '.join(MODELS)}"
        )
    return MODELS[name](input_size, hidden_size, **options)
