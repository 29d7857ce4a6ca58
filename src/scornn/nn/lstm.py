"""LSTM as the paper compares with: torch's own, with TensorFlow's initialisation and a forget-gate bias."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class LSTM(nn.LSTM):
    r"""torch.nn.LSTM started as TensorFlow 1's BasicLSTMCell.

    Glorot-uniform kernel over input and state together, zero biases, and ``forget_bias`` in the forget gate
    (the paper tunes it over −4..4; 1 unless said otherwise). torch keeps two bias vectors where the paper counts one:
    the second, ``bias_hh``, stays zero and is not trained, so that the number of trained parameters is the paper's
    :math:`4(mn + n^2 + n)`.

    Example:
        >>> output, (h_n, c_n) = LSTM(3, 5, forget_bias=-4)(torch.randn(7, 2, 3))
        >>> output.shape
        torch.Size([7, 2, 5])
    """

    def __init__(self, *args: Any, forget_bias: float = 1.0, **kwargs: Any) -> None:
        self.forget_bias = forget_bias
        super().__init__(*args, **kwargs)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        reset_gates(self, self.forget_bias)  # torch's gates: input, forget, cell, output

    def recurrent_parameter_names(self) -> list[str]:
        return []

    def orthogonality_error(self) -> None:
        """None: nothing is constrained."""


@torch.no_grad()
def reset_gates(layer: nn.RNNBase, forget_bias: float) -> None:
    """Glorot-uniform over input and state together; ``forget_bias`` in the second gate; one bias vector frozen at 0."""
    n = layer.hidden_size
    for name, parameter in layer.named_parameters():
        if name.startswith("weight_ih"):
            hidden = getattr(layer, f"weight_hh{name.removeprefix('weight_ih')}")
            limit = (6 / (parameter.shape[1] + n + parameter.shape[0])) ** 0.5
            parameter.uniform_(-limit, limit)
            hidden.uniform_(-limit, limit)
        elif name.startswith("bias"):
            parameter.zero_()
            if name.startswith("bias_ih"):
                parameter[n : 2 * n] = forget_bias
            else:
                parameter.requires_grad_(False)
