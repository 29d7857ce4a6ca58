"""A dense layer with constant weights: what export and streaming run."""

from __future__ import annotations

import torch
from torch import Tensor

from scornn.nn.base import DenseRecurrentLayer
from scornn.nn.checks import full_precision


class FrozenLayer(DenseRecurrentLayer):
    """The forward of a dense layer as it is now, with U, W, b and h_0 as buffers: ``layer.frozen()``.

    Nothing is made in its forward and nothing is trained. Its W is ``weight_hh_l{k}``, of the real form for complex
    models.

    Example:
        >>> layer, x = scornn.ScoRNN(3, 8), torch.randn(5, 2, 3)
        >>> torch.equal(FrozenLayer(layer)(x)[0], layer(x)[0])
        True
    """

    @torch.no_grad()
    def __init__(self, layer: DenseRecurrentLayer) -> None:
        super().__init__(**{**layer.settings(), "dropout": layer.dropout if layer.num_layers > 1 else 0.0})
        self.activation, self.backend, self.learn_h0 = layer.activation, layer.backend, layer.learn_h0
        self.units_per_state, self.readout_stride = layer.units_per_state, layer.readout_stride
        for suffix in layer.suffixes():
            with full_precision(layer.like):
                constants = {"weight_ih": layer.input_matrix(suffix), "weight_hh": layer.recurrent_matrix(suffix)}
            if (b := layer.bias_vector(suffix)) is not None:
                constants["bias"] = b
            if self.learn_h0:
                constants["h0"] = layer.tensor(f"h0{suffix}")
            for name, value in constants.items():
                self.register_buffer(f"{name}{suffix}", value.detach().clone())
        self.train(layer.training)

    def recurrent_shapes(self) -> dict[str, tuple[int, ...]]:
        return {"weight_hh": (self.state_size, self.state_size)}

    def recurrent_matrix(self, suffix: str) -> Tensor:
        return self.tensor(f"weight_hh{suffix}")

    def recurrent_bias_names(self) -> list[str]:
        return []
