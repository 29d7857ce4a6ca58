"""GRU as a yardstick: torch's own, with the same initialisation and counting as the LSTM beside it."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from scornn.nn.catalogue import model
from scornn.nn.lstm import reset_gates


@model(
    "gru",
    label="GRU",
    colour=7,
    marker="X",
    summary="gated recurrent unit",
    equation="h' = z ⊙ h + (1 − z) ⊙ n",
    source="Cho et al., 2014",
)
class GRU(nn.GRU):
    r"""torch.nn.GRU with Glorot-uniform kernels and a bias that makes it remember.

    .. math::
        h_t = z \odot h_{t-1} + (1 - z) \odot n

    ``forget_bias`` is added in the update gate z: above 0 the state is kept at the start, below 0 overwritten. torch
    keeps two bias vectors; the second, ``bias_hh``, stays zero and is not trained, so that the number of trained
    parameters of a layer is :math:`3(mn + n^2 + n)`.

    Example:
        >>> output, h_n = GRU(3, 5, forget_bias=2)(torch.randn(7, 2, 3))
        >>> output.shape
        torch.Size([7, 2, 5])
    """

    def __init__(self, *args: Any, forget_bias: float = 1.0, **kwargs: Any) -> None:
        self.forget_bias = forget_bias
        super().__init__(*args, **kwargs)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        reset_gates(self, self.forget_bias)  # torch's gates: reset, update, new; the update gate comes second

    def recurrent_parameter_names(self) -> list[str]:
        return []

    def orthogonality_error(self) -> None:
        """None: nothing is constrained."""
