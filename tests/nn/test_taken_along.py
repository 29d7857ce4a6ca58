"""What leaves training: the cells of a layer, and layers with constant weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import scornn
from scornn.nn import MODELS, SequenceModel, build


class TestTakenAlong:
    @pytest.mark.parametrize("backend", ["auto", "naive"])
    def test_cells_of_a_layer(self, backend: str) -> None:
        options: dict[str, Any] = {"bandwidth": 3, "learn_h0": True, "nonlinearity": "tanh", "backend": backend}
        layer: Any = scornn.ScoRNN(3, 6, 2, bidirectional=True, rho=1, dtype=torch.float64, **options)
        for parameter in layer.parameters():
            nn.init.normal_(parameter)
        layer.weight_hh_l1_reverse = -torch.eye(6, dtype=torch.float64)
        x = torch.randn(5, 2, 3, dtype=torch.float64)
        below = scornn.ScoRNN(3, 6, bidirectional=True, rho=1, dtype=torch.float64, **options)
        below.load_state_dict({k: v for k, v in layer.state_dict().items() if "_l0" in k})
        for k, inputs in ((0, x), (1, below(x)[0])):
            for direction in (0, 1):
                cell, h = scornn.ScoRNNCell.from_layer(layer, k, direction), None
                with scornn.cached():
                    for x_t in inputs.flip(0) if direction else inputs:
                        h = cell(x_t, h)
                torch.testing.assert_close(h, layer(x)[1][2 * k + direction])
        assert "rho=6" in repr(cell)

    def test_a_cell_that_is_not_there(self) -> None:
        layer = scornn.ScoRNN(3, 5)
        with pytest.raises(ValueError, match=r"k must be an integer in 0\.\.0"):
            scornn.ScoRNNCell.from_layer(layer, 1)
        with pytest.raises(ValueError, match=r"direction must be an integer in 0\.\.0"):
            scornn.ScoRNNCell.from_layer(layer, direction=1)
        with pytest.raises(TypeError, match=r"got ExpRNN; scornn\.convert"):
            scornn.ScoRNNCell.from_layer(build("exprnn", 3, 5))  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        "name", [name for name in MODELS if hasattr(MODELS[name].layer, "frozen") and name != "goru"]
    )
    def test_frozen_layers_give_the_same(self, name: str) -> None:
        layer: Any = build(name, 3, 6, num_layers=2, bidirectional=True, batch_first=True)
        frozen = layer.frozen()
        assert list(frozen.parameters()) == []
        x = torch.randn(4, 7, 3)
        layer.eval()
        for ours, expected in zip(frozen(x), layer(x), strict=True):
            torch.testing.assert_close(ours, expected)
            assert not ours.requires_grad
        assert torch.equal(frozen.weight_hh_l1, layer.weight_hh_l1)
        assert frozen.readout_size == layer.readout_size
        twin = build(name, 3, 6, num_layers=2, bidirectional=True, batch_first=True).frozen()  # type: ignore[operator]
        twin.load_state_dict(frozen.state_dict())
        assert torch.equal(twin(x)[0], frozen(x)[0])
        assert scornn.optim.recurrent_parameters(frozen) == {}

    def test_a_network_on_a_frozen_layer(self) -> None:
        layer: Any = build("eurnn", 3, 6)
        model, x = SequenceModel(layer, 2), torch.randn(5, 2, 3)
        twin = SequenceModel(layer.frozen(), 2)
        twin.head.load_state_dict(model.head.state_dict())
        torch.testing.assert_close(twin(x), model(x))

    def test_gates_have_no_frozen_form(self) -> None:
        with pytest.raises(TypeError, match="GORU has gates"):
            build("goru", 3, 4).frozen()  # type: ignore[operator]
