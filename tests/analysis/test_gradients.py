"""‖∂L/∂h_t‖ against finite differences for every model, and against what is known of an orthogonal W."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from scornn.nn import ScoRNN, SequenceModel, build
from scornn.nn.catalogue import MODELS
from scornn.program import analysis
from scornn.program.analysis import gradients
from scornn.program.tasks import AddingConfig, Batch
from scornn.program.train import config as configs
from scornn.program.train import program


def carry_on(model: SequenceModel, x: Tensor, state: Any, outputs: list[Tensor]) -> Tensor:
    """The outputs of a model from a state on, after those already made."""
    for row in x.unbind(0):
        _, state = model.layer(row.unsqueeze(0), state)
        outputs = [*outputs, head(model, state)]
    return torch.stack(outputs) if model.read == "all" else outputs[-1]


def head(model: SequenceModel, state: Any) -> Tensor:
    h = (state[0] if isinstance(state, tuple) else state)[-1]
    return model.head(model.layer.readout(h) if hasattr(model.layer, "readout") else h)


@pytest.mark.parametrize("read", ["all", "last"])
@pytest.mark.parametrize("name", [name for name in MODELS if MODELS[name].layer.output_is_state])
def test_equals_finite_differences(name: str, read: Any) -> None:
    torch.manual_seed(3)
    T, t, n, eps = 5, 2, 4, 1e-5
    model = SequenceModel(build(name, 2, n, dtype=torch.float64), 3, read=read)
    targets = torch.rand(T, 1, 3, dtype=torch.float64) if read == "all" else torch.rand(1, 3, dtype=torch.float64)
    batch = Batch(torch.rand(T, 1, 2, dtype=torch.float64), targets)
    found = analysis.gradient_norms(model, batch)
    with torch.no_grad():
        state, before = None, []
        for row in batch.inputs[: t + 1].unbind(0):
            _, state = model.layer(row.unsqueeze(0), state)
            before.append(head(model, state))
        h = state[0] if isinstance(state, tuple) else state

        def loss(moved: Tensor) -> float:
            at = (moved, *state[1:]) if isinstance(state, tuple) else moved
            y = carry_on(model, batch.inputs[t + 1 :], at, [*before[:-1], head(model, at)])
            return float((y - batch.targets).square().mean())

        slopes = []
        for k in range(h.numel()):
            d = torch.zeros_like(h).view(-1)
            d[k] = eps
            slopes.append((loss(h + d.view_as(h)) - loss(h - d.view_as(h))) / (2 * eps))
    assert found[t].item() == pytest.approx(torch.tensor(slopes).norm().item(), rel=1e-5, abs=1e-9)
    assert found.shape == (T,)


def test_an_orthogonal_linear_network_keeps_the_norm() -> None:
    model = SequenceModel(ScoRNN(2, 12, nonlinearity="identity", dtype=torch.float64), 1, read="last")
    norms = analysis.gradient_norms(model, Batch(torch.rand(40, 3, 2).double(), torch.rand(3).double()))
    assert norms.max() / norms.min() == pytest.approx(1, abs=1e-12)


def test_padding_has_no_part_in_it() -> None:
    model = SequenceModel(ScoRNN(2, 8), 1, read="last")
    x, lengths = torch.rand(9, 2, 2), torch.tensor([9, 4])

    def loss(outputs: Tensor, batch: Batch) -> Tensor:
        return (outputs.squeeze(-1) - batch.targets).square().mean()

    targets = torch.rand(2)
    norms = analysis.gradient_norms(model, Batch(x, targets, lengths), loss)
    whole = analysis.gradient_norms(model, Batch(x[:, :1], targets[:1]))
    torch.testing.assert_close(norms[4:], whole[4:] / 2)  # the mean of two samples, of which one has ended
    with pytest.raises(ValueError, match="needs a loss of its own"):
        analysis.gradient_norms(model, Batch(x, targets, lengths))


def test_outputs_in_the_padding_are_zero_for_a_loss_that_looks_at_them() -> None:
    """As in the network's own forward."""
    model = SequenceModel(ScoRNN(2, 8), 1, read="all")
    torch.nn.init.ones_(model.head.bias)
    x, lengths, seen = torch.rand(9, 2, 2), torch.tensor([9, 4]), []

    def loss(outputs: Tensor, batch: Batch) -> Tensor:
        seen.append(outputs.detach())
        return outputs.square().mean()

    analysis.gradient_norms(model, Batch(x, torch.zeros(9, 2), lengths), loss)
    torch.testing.assert_close(seen[0], model(x, lengths).detach())
    assert not seen[0][4:, 1].any()


def test_the_head_is_evaluated_too_and_every_module_keeps_its_mode() -> None:
    model = SequenceModel(ScoRNN(2, 8), 1, read="last")
    model.head = torch.nn.Sequential(torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.5), model.head)
    model.head[0].eval()
    batch = Batch(torch.rand(9, 4, 2), torch.rand(4))
    statistics = [value.clone() for value in model.head.buffers()]
    first, second = (analysis.gradient_norms(model, batch) for _ in range(2))
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    assert [module.training for module in model.head] == [False, True, True]
    model.train()
    analysis.gradient_norms(model, batch)
    assert model.head[0].training
    assert all(torch.equal(a, b) for a, b in zip(model.head.buffers(), statistics, strict=True))


def test_of_a_run_at_its_start_and_end(tmp_path: Path) -> None:
    rule = configs.StepRule(kind="adam", lr=1e-2)
    config = configs.Config(
        task=AddingConfig(length=12, train_size=40, test_size=4, batch=4),
        model=configs.ModelConfig(name="lstm", hidden=6),
        optimizer=configs.OptimizerConfig(rest=rule, recurrent=rule),
        steps=3,
        threads=1,
    )
    program.start(config, tmp_path / "run", quiet=True, tensorboard=False)
    result = gradients.of_run(tmp_path / "run")
    start, end = result["moments"]
    assert (start["step"], end["step"]) == (0, 3)
    assert len(start["norms"]) == len(end["norms"]) == 12
    assert start["norms"] != end["norms"]
    assert (tmp_path / "run" / gradients.FILE).is_file()
    other = tmp_path / "other"
    program.start(config, other, start_from=tmp_path / "run", quiet=True, tensorboard=False)
    start, end = gradients.of_run(other)["moments"]
    task, engine, _ = program.load(tmp_path / "run")
    expected = gradients.gradient_norms(engine.model, task.batch("train", 0, 0), gradients.task_loss(task))
    assert start["norms"] == pytest.approx(expected.tolist(), rel=1e-5)
    shutil.rmtree(other / "checkpoints" / "step-0")
    assert gradients.of_run(other)["moments"] == [end]


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (ScoRNN(3, 8, bidirectional=True), "one direction"),
        (build("memory-blocks", 3, 4), "a MemoryBlocks gives other outputs"),
    ],
)
def test_what_has_no_such_norms_is_refused(model: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        analysis.gradient_norms(SequenceModel(model, 5), Batch(torch.rand(6, 2, 3), torch.randint(5, (6, 2))))
