"""The real files: MNIST in part and TIMIT's sample, trained, stopped, resumed and evaluated."""

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scornn.program.cli import main
from scornn.program.train.loop import Trainer

Bits = Callable[[Path], dict[str, Any]]
QUIET = ["--quiet", "--tensorboard", "off", "--threads", "1"]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCORNN_CACHE", str(tmp_path / "cache"))


def stopped_and_straight(argv: list[str], at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert main([*argv, "--out", "straight"]) == 0
    step = Trainer._step

    def stepping(self: Trainer, stop: bool) -> bool:
        if self.ledger.step + 1 == at:
            signal.raise_signal(signal.SIGTERM)
        return step(self, stop)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_step", stepping)
        assert main([*argv, "--out", "run"]) == 143
    assert main(["resume", "run", "--quiet", "--tensorboard", "off"]) == 0


@pytest.mark.parametrize("task", ["mnist", "pmnist"])
def test_mnist(task: str, shared_data: Path, bits: Bits, monkeypatch: pytest.MonkeyPatch) -> None:
    argv = ["train", task, *QUIET, "--data", str(shared_data), "--hidden", "6", "--epochs", "3", "--batch", "20"]
    argv += ["--set", "task.train_size=60", "--set", "task.test_size=100", "--lr", "0.01"]
    stopped_and_straight(argv, 5, monkeypatch)
    assert bits(Path("run")) == bits(Path("straight"))
    summary = json.loads(Path("run/summary.json").read_text())
    lines = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    lines = [line for line in lines if "weights" not in line]
    tests = {line["epoch"]: line["accuracy"] for line in lines if line["split"] == "test"}
    valids = {line["epoch"]: line["accuracy"] for line in lines if line["split"] == "valid"}
    assert list(tests) == list(valids) == [1, 2, 3]
    assert (summary["task"], summary["best"]["value"]) == (task, max(tests.values()))
    chosen = summary["best_by_valid"]
    assert chosen["valid"] == max(valids.values())
    assert chosen["value"] == tests[chosen["epoch"]]


def test_speech(
    shared_data: Path, bits: Bits, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["train", "speech", *QUIET, "--data", str(shared_data / "timit_sample"), "--set", "task.allow_partial=true"]
    argv += ["--hidden", "5", "--iterations", "3", "--batch", "4"]
    stopped_and_straight(argv, 2, monkeypatch)
    assert bits(Path("run")) == bits(Path("straight"))
    capsys.readouterr()
    assert main(["eval", "run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["splits"].keys() == {"valid", "test"}
    assert main(["eval", "run", "--json", "--audio", "run/audio"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["audio"] == json.loads(Path("run/audio/scores.json").read_text())
    assert result["audio"]["mean"]["mse"] > 0
