"""One model's layer as another model's: the same W, the same outputs."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from scornn.nn.base import DenseRecurrentLayer
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
    if not isinstance(layer, DenseRecurrentLayer) or layer.kind == "goru":
        raise TypeError(f"convert: the recurrence of {name} is not one dense matrix, so no ScoRNN gives its outputs")
    if layer.activation not in REAL:
        raise ValueError(f"convert: {name} has the nonlinearity {layer.activation}; ScoRNN has {', '.join(REAL)}")
    layer.require_described(f"convert: no ScoRNN gives the outputs of a {name}")
    weight = layer.like
    more: dict[str, Any] = {
        "device": weight.device,
        "dtype": weight.dtype,
        "learn_h0": layer.learn_h0,
        "backend": layer.backend,
    }
    made = ScoRNN(**layer.settings(), nonlinearity=layer.activation, **more)
    for suffix in layer.suffixes():
        made.set_recurrent_matrix(suffix, getattr(layer, f"weight_hh{suffix}"))
        made.tensor(f"weight_ih{suffix}").copy_(layer.input_matrix(suffix))
        if (b := layer.bias_vector(suffix)) is not None:
            made.tensor(f"bias{suffix}").copy_(b)
        if layer.learn_h0:
            made.tensor(f"h0{suffix}").copy_(layer.tensor(f"h0{suffix}"))
    return made.train(layer.training)
