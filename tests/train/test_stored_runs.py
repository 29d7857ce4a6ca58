"""A run that version 0.2.0 made, kept as it was written: it loads, is evaluated, and goes on."""

import json
import shutil
from pathlib import Path

import pytest
import torch

import scornn
from scornn.program.train import program

STORED = Path(__file__).parent / "run-0.2.0"
CHECKPOINT = STORED / "checkpoints" / "step-4"


@pytest.mark.parametrize("path", [STORED, CHECKPOINT], ids=["run", "checkpoint"])
@pytest.mark.parametrize("weights", ["raw", "average"])
def test_it_loads(path: Path, weights: str) -> None:
    network = scornn.load(path, weights=weights)
    assert (network.task.name, network.stored.step, network.stored.config["seed"]) == ("copying", 4, 7)
    assert network(torch.randn(5, 2, 10)).shape == (5, 2, 9)


def test_it_is_evaluated_as_its_summary_says() -> None:
    said = json.loads((STORED / "summary.json").read_text())
    for weights, figures in (("raw", said), ("average", said["average"])):
        found = program.evaluate(STORED, weights=weights)  # type: ignore[arg-type]
        assert (found["step"], found["parameters"]) == (4, said["parameters"])
        assert found["splits"]["test"] == pytest.approx(figures["final"]["test"], rel=1e-5)


def test_it_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    shutil.copytree(STORED, run)
    before = (run / "metrics.jsonl").read_text()
    summary = program.resume(run, steps=6, quiet=True, tensorboard=False).summary
    said = capsys.readouterr().err
    assert said.startswith("warning: may not resume bit for bit: code ")  # of another version, and nothing is worse
    assert (summary["steps"], summary["finished"]) == (6, True)
    assert (run / "metrics.jsonl").read_text().startswith(before)
    assert summary["final"]["test"]["loss"] == pytest.approx(2.1914141845703123, rel=1e-5)  # as by version 0.2.0
    assert summary["average"]["final"]["test"]["loss"] == pytest.approx(2.1916740417480467, rel=1e-5)
    assert summary["config_hash"] == json.loads((STORED / "summary.json").read_text())["config_hash"]
