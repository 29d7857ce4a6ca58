"""Blocks on the command line: read last, as a mean or at every step, stopped and resumed, exported, refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import scornn
from scornn.optim import named_parameters
from scornn.program.cli import main
from scornn.program.tasks import make
from scornn.program.train import config as configs
from scornn.program.train.distributed import World
from scornn.program.train.engine import Engine

TINY = ["--model", "memory-blocks", "--hidden", "6", "--length", "8", "--threads", "1", "--quiet"]
TINY += ["--tensorboard", "off", "--set", "task.train_size=40", "--set", "task.test_size=20"]
TINY += ["--set", "model.options.num_layers=2"]
NORM = ["model.readout.width=5", "model.readout.depth=2", "model.readout.norm=true", "model.readout.dropout=0.2"]


def train(task: str, out: Path, *options: str, steps: int = 4) -> int:
    sets = [argument for option in options for argument in ("--set", option)]
    return main(["train", task, *TINY, "--iterations", str(steps), *sets, "--out", str(out)])


@pytest.mark.parametrize(
    ("task", "options"),
    [
        ("copying", ["model.options.width=4"]),
        ("adding", [*NORM, "model.input_dropout=0.1", "model.options.gate_dropout=0.1"]),
        ("adding", ["model.read=mean", "model.options.stride=4"]),
    ],
    ids=["every step", "last", "mean"],
)
def test_trains_resumes_and_is_exported(task: str, options: list[str], tmp_path: Path) -> None:
    straight, stopped, file = tmp_path / "straight", tmp_path / "stopped", tmp_path / "weights.safetensors"
    assert train(task, straight, *options) == 0
    assert train(task, stopped, *options, steps=2) == 0
    assert main(["resume", str(stopped), "--iterations", "4", "--quiet", "--tensorboard", "off"]) == 0
    networks = [scornn.load(path) for path in (straight, stopped)]
    for ours, expected in zip(networks[1].state_dict().values(), networks[0].state_dict().values(), strict=True):
        assert torch.equal(ours, expected)
    assert main(["export", str(straight), "--to", "safetensors", "--out", str(file)]) == 0
    x = torch.randn(8, 3, networks[0].task.input_size)
    assert torch.equal(scornn.load(file)(x), networks[0](x))


@pytest.mark.parametrize(
    "option", ["model.read=mean", "model.readout={ width = 4, norm = true }", "model.options.stride=2"]
)
def test_a_target_at_every_step_is_read_by_itself(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train("copying", tmp_path / "run", option) == 2
    assert "has a target at every step" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_stride_is_a_divisor_of_the_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train("adding", tmp_path / "run", "model.options.stride=7") == 2
    assert "model.options.stride = 7: expected a divisor of the 8 steps of train of adding" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("batch", "alone"), [(1, "a batch"), (39, "the last batch")])
def test_one_sample_cannot_be_batch_normalised(
    batch: int, alone: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("model.readout={ width = 4, norm = true }", f"task.batch={batch}")
    assert train("adding", tmp_path / "run", *options) == 2
    assert f"model.readout.norm = true: {alone} of training has 1 sample" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_weight_decay_is_on_everything_but_the_angles() -> None:
    """With a gradient of nothing AdamW shrinks what decays, and moves nothing else."""
    table: dict[str, Any] = {
        "task": {"name": "adding", "length": 6, "train_size": 4, "test_size": 4},
        "model": {"name": "memory-blocks", "hidden": 6, "options": {"num_layers": 2}},
        "optimizer": {
            "rest": {"kind": "adamw", "lr": 0.5, "weight_decay": 0.1},
            "recurrent": {"kind": "adam", "lr": 0.5},
        },
        "steps": 1,
        "threads": 1,
    }
    config = configs.build(table)
    engine = Engine(config, make(config.task, 1), World(device="cpu"))
    before = {name: p.detach().clone() for name, p in named_parameters(engine.model).items()}
    for parameter in engine.model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    for optimizer in engine.optimizers.values():
        optimizer.step()
    angles = [name for name in before if "angle_hh" in name]
    assert len(angles) == 2
    for name, parameter in named_parameters(engine.model).items():
        torch.testing.assert_close(parameter.detach(), before[name] * (1 if name in angles else 0.95))
