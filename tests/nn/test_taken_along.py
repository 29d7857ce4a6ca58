"""What leaves training: the cells of a layer, and layers with constant weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

import scornn
from scornn.nn import MODELS, Cell, SequenceModel, build
from scornn.nn.convert import convert

GATED = ("lstm", "gru", "goru")
ANGLES = ("linear-memory", "memory-blocks")


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
        with pytest.raises(TypeError, match=r"got ExpRNN; scornn\.nn\.Cell"):
            scornn.ScoRNNCell.from_layer(build("exprnn", 3, 5))  # type: ignore[arg-type]

    @pytest.mark.parametrize("name", [name for name in MODELS if name != "memory-blocks"])
    def test_frozen_layers_give_the_same(self, name: str) -> None:
        layer: Any = build(name, 3, 8, num_layers=2, bidirectional=True, batch_first=True)
        frozen = layer.frozen()
        assert list(frozen.parameters()) == []
        x = torch.randn(4, 7, 3)
        layer.eval()
        ours, expected = flat(frozen(x)), flat(layer(x))
        for one, other in zip(ours, expected, strict=True):
            torch.testing.assert_close(one, other)
            assert not one.requires_grad
        packed = pack_padded_sequence(x, [7, 5, 5, 2], batch_first=True)
        torch.testing.assert_close(frozen(packed)[0].data, layer(packed)[0].data)
        if name != "goru":  # its gates stand above W
            assert torch.equal(frozen.weight_hh_l1, layer.weight_hh_l1)
        assert frozen.readout_size == layer.readout_size
        twin = build(name, 3, 8, num_layers=2, bidirectional=True, batch_first=True).frozen()
        twin.load_state_dict(frozen.state_dict())
        assert torch.equal(twin(x)[0], frozen(x)[0])
        assert scornn.optim.recurrent_parameters(frozen) == {}

    def test_a_network_on_a_frozen_layer(self) -> None:
        layer: Any = build("eurnn", 3, 6)
        model, x = SequenceModel(layer, 2), torch.randn(5, 2, 3)
        twin = SequenceModel(layer.frozen(), 2)
        twin.head.load_state_dict(model.head.state_dict())
        torch.testing.assert_close(twin(x), model(x))

    def test_a_layer_with_a_forward_of_its_own_has_no_frozen_form(self) -> None:
        class Doubled(scornn.ScoRNN):
            def forward(self, input: Any, hx: Any = None, **more: Any) -> Any:
                return super().forward(2 * input, hx, **more)

        with pytest.raises(TypeError, match="a Doubled cannot be frozen: it has a forward or a run of its own"):
            Doubled(3, 5).frozen()

    def test_a_projected_lstm_has_no_frozen_form(self) -> None:
        with pytest.raises(TypeError, match="an LSTM with proj_size has no frozen form"):
            build("lstm", 3, 4, proj_size=2).frozen()

    def test_a_layer_with_a_run_of_its_own_is_run_by_it(self) -> None:
        """The kernel's ways past ``run`` are those of the class that says what its recurrence is."""
        for name in ("scornn", "linear-memory", "lstm", "full-urnn"):
            base: Any = type(build(name, 1, 6))

            class Half(base):
                def run(self, *given: Any, **more: Any) -> Any:
                    output, h_n = super().run(*given, **more)
                    return output / 2, h_n

            torch.manual_seed(0)
            options = {"nonlinearity": "identity"} if name == "scornn" else {}
            layer, x = Half(1, 128, **options), torch.randn(256, 64, 1)
            torch.manual_seed(0)
            plain = base(1, 128, **options)
            heads = [SequenceModel(one, 1) for one in (layer, plain)]
            heads[1].load_state_dict(heads[0].state_dict())
            with torch.no_grad():
                y, expected = (model(x) for model in heads)
                torch.testing.assert_close(y - heads[0].head.bias, (expected - heads[0].head.bias) / 2)
                assert torch.equal(layer(x, need_output=False)[1][0], layer(x)[1][0])
            with pytest.raises(TypeError, match="a Half cannot be frozen: it has a forward or a run of its own"):
                layer.frozen()

    def test_what_copies_weights_refuses_a_layer_that_computes_more_with_them(self) -> None:
        class Doubled(scornn.ScoRNN):
            def run(self, *given: Any, **more: Any) -> Any:
                output, h_n = super().run(*given, **more)
                return 2 * output, 2 * h_n

        class Transposed(scornn.ScaledCayley):
            def forward(self) -> torch.Tensor:
                return super().forward().mT

        linear: Any = Doubled(3, 6, nonlinearity="identity")
        own: Any = "it has a forward or a run of its own"
        copies: dict[str, Any] = {
            "no cell has the steps of a Doubled": Cell.from_layer,
            "a ScoRNNCell has not the steps of a Doubled": scornn.ScoRNNCell.from_layer,
            "convert: no ScoRNN gives the outputs of a Doubled": convert,
            "from_scornn: no LinearMemory has the states of a Doubled": scornn.LinearMemory.from_scornn,
            "a Doubled cannot be widened": lambda layer: scornn.widen(layer, 8),
        }
        for message, copy in copies.items():
            with pytest.raises(TypeError, match=f"{message}: {own}"):
                copy(linear)
        layer, x = scornn.ScoRNN(3, 6, rho=2), torch.randn(5, 2, 3)
        layer.hh_l0 = Transposed(6, rho=2)
        torch.testing.assert_close(convert(layer)(x)[0], layer(x)[0])
        torch.testing.assert_close(layer.frozen()(x)[0], layer(x)[0])
        torch.testing.assert_close(scornn.ScoRNNCell.from_layer(layer)(x[0]), layer(x)[0][0])
        with pytest.raises(TypeError, match="it makes its W in a way of its own"):
            scornn.widen(layer, 8)

    @pytest.mark.parametrize("name", [name for name in MODELS if name not in (*GATED, *ANGLES)])
    @torch.no_grad()
    def test_the_cell_of_every_dense_model(self, name: str) -> None:
        layer: Any = build(name, 3, 6, num_layers=2, bidirectional=True, dtype=torch.float64)
        x = torch.randn(5, 2, 3, dtype=torch.float64)
        both = [(end, layer.initial_state(f"_l0{end}", 2, x)) for end in ("", "_reverse")]
        below = torch.cat([layer.run(f"_l0{end}", x, h0, None, end == "_reverse")[0] for end, h0 in both], -1)
        for k, inputs in ((0, x), (1, below)):
            for direction in (0, 1):
                cell, h = Cell.from_layer(layer, k, direction), None
                assert list(cell.parameters()) == []
                assert cell.weight_hh is cell.weight_hh  # made once
                for x_t in inputs.flip(0) if direction else inputs:
                    h = cell(x_t, h)
                torch.testing.assert_close(h, layer(x)[1][2 * k + direction])
        torch.testing.assert_close(cell(x_t[0], h[0]), cell(x_t, h)[0])

    def test_a_linear_memory_streams_as_its_frozen_form(self) -> None:
        with pytest.raises(TypeError, match=r"would round the angles of a linear memory; layer.frozen\(\) streams"):
            Cell.from_layer(build("linear-memory", 3, 4))  # type: ignore[arg-type]

    @pytest.mark.parametrize("name", GATED)
    def test_a_unit_with_gates_has_no_such_cell(self, name: str) -> None:
        layer: Any = build(name, 3, 4)
        for given in (layer, layer.frozen()):
            with pytest.raises(TypeError, match="from_layer takes a layer of one dense matrix"):
                Cell.from_layer(given)


def flat(results: Any) -> list[torch.Tensor]:
    """The output, and the tensors of the state."""
    output, state = results
    return [output, *(state if isinstance(state, tuple) else (state,))]
