"""Tiny trained runs, each made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from scornn.program.cli import main

TINY = ["--length", "10", "--threads", "1", "--iterations", "4", "--eval-every", "2", "--tensorboard", "off", "--quiet"]
TINY += ["--set", "task.train_size=40", "--set", "task.test_size=20"]


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A scoRNN of two layers in two directions on the copying problem, with averaged weights."""
    out = tmp_path_factory.mktemp("runs") / "copying"
    options = ["model.options.num_layers=2", "model.options.bidirectional=true", "optimizer.average.decay=0.5"]
    sets = [argument for option in options for argument in ("--set", option)]
    assert main(["train", "copying", "--hidden", "6", *TINY, *sets, "--out", str(out)]) == 0
    return out


@pytest.fixture(scope="session")
def lstm_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An LSTM on the adding problem, which is read at the last step."""
    out = tmp_path_factory.mktemp("runs") / "adding"
    assert main(["train", "adding", "--model", "lstm", "--hidden", "5", *TINY, "--out", str(out)]) == 0
    return out


@pytest.fixture(scope="session")
def linear_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A linear memory on the copying problem."""
    out = tmp_path_factory.mktemp("runs") / "linear"
    assert main(["train", "copying", "--model", "linear-memory", "--hidden", "6", *TINY, "--out", str(out)]) == 0
    return out
