"""One model's layer as another model's: the same W, the same outputs."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from scornn.nn.rnn import RNN
from scornn.nn.scornn import ScoRNN
from scornn.ops.activations import REAL


@torch.no_grad()
def convert(layer: nn.Module) -> ScoRNN:
    """A :class:`~scornn.nn.ScoRNN` with the recurrent matrix, input matrix, bias and initial state of ``layer``.

    A and D come from W by :func:`scornn.functional.inverse_scaled_cayley`, which takes every orthogonal matrix. The
    outputs are the same to rounding, and training can go on from there.

    Args:
        layer: any layer whose recurrence is one real orthogonal matrix: expRNN, dtriv, oRNN, a real EURNN, or a plain
            RNN whose W happens to be orthogonal.

    Example:
        >>> layer = scornn.nn.build("ornn", 3, 8, reflections=4)
        >>> x = torch.randn(5, 2, 3)
        >>> torch.allclose(convert(layer)(x)[0], layer(x)[0], atol=1e-5)
        True
    """
    name = type(layer).__name__
    if not isinstance(layer, RNN) or layer.kind == "goru":
        raise TypeError(f"convert: the recurrence of {name} is not one dense matrix, so no ScoRNN gives its outputs")
    if layer.activation not in REAL:
        raise ValueError(f"convert: {name} has the nonlinearity {layer.activation}; ScoRNN has {', '.join(REAL)}")
    layer.require_described(f"convert: no ScoRNN gives the outputs of a {name}")
    where: dict[str, Any] = {"device": layer.like.device, "dtype": layer.like.dtype}
    settings = layer.settings() | {"learn_h0": layer.learn_h0, "backend": layer.backend}
    made = ScoRNN(**settings, nonlinearity=layer.activation, **where)
    for suffix in layer.suffixes():
        made.matrix(suffix).assign(layer.matrix(suffix).W())
        for ours, theirs in zip(made.others(suffix), layer.others(suffix), strict=True):
            if ours is not None:
                ours.copy_(theirs)
    return made.train(layer.training)
