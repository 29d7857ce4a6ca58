"""``scornn bench --training`` and ``--models`` on the real MNIST files, with little to time."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from scornn.nn import MODELS
from scornn.program.cli import bench, main
from scornn.program.cli.bench import _shape_rows, _table


def test_models(shared_data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    small = {name: replace(MODELS[name], bench=(n,)) for name, n in (("scornn", 8), ("lstm", 4))}
    monkeypatch.setattr("scornn.nn.MODELS", small)
    monkeypatch.setattr(bench, "VARIANTS", {"lstm": ({"forget_bias": 2.0},)})
    assert main(["bench", "--models", "--data", str(shared_data), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    scornn, lstm = report["models"]
    assert (scornn["model"], scornn["n"], scornn["options"]) == ("scornn", 8, {})
    assert (lstm["model"], lstm["plain_rung"], lstm["options"]) == ("lstm", "torch", {"forget_bias": 2.0})
    assert all(0 < row["seconds"] <= row["seconds_per_step"] and row["steps"] >= 1 for row in report["models"])
    # The recurrence over 784 steps of 50 images, read in the same pass, three times over for the gradients.
    assert scornn["flops"] == pytest.approx(3 * 2 * 784 * 50 * 8 * 9, rel=0.01)
    head, _, row = bench.model_rows(report)
    assert row[0] == "lstm forget_bias=2.0"
    assert row[head.index("×")] == f"{lstm['plain'] / lstm['seconds']:.1f}"


def test_tables_fit_a_hundred_columns(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = {"milliseconds": {"native": 1234.5}, "peak_memory": {"native": 10}, "state_bytes": 10, "cayley_share": 0.32}
    ratios = {"share_of_peak": 0.85, "times_faster_than": dict.fromkeys(("naive", "manual", "rnn", "lstm"), 25.9)}
    shape = {"shape": "one-stream", "n": 170, "B": 50, "T": 1000, "m": 129, "contender": "native", **sizes, **ratios}
    _table(_shape_rows({"shapes": [shape]}), markdown=False)
    row = {"model": "eurnn", "n": 512, "options": {"capacity": 2}, "parameters": 1_057_802, "share_of_peak": 0.85}
    row |= {"seconds": 33.3333, "plain": 33.3333}
    _table(bench.model_rows({"models": [row]}), markdown=False)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    assert len(lines) == 10, "a cell or a title is broken"


def test_training(shared_data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    measure = bench.training
    monkeypatch.setattr(bench, "training", lambda data, steps: measure(data, steps=2))
    assert main(["bench", "--training", "--data", str(shared_data)]) == 0
    table = capsys.readouterr().out
    assert "mnist, scoRNN n=170" in table
    assert "copying, scoRNN n=190" in table


def test_unknown_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--models", "--model", "elman"]) == 2
    assert "'elman'; the models are scornn" in capsys.readouterr().err
