"""``scornn bench --training`` and ``--models`` on the real MNIST files, with little to time."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from scornn.cli import _bench_program, main
from scornn.nn import MODELS


def test_models(shared_data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    small = {name: replace(MODELS[name], bench=(n,)) for name, n in (("scornn", 8), ("lstm", 4))}
    monkeypatch.setattr("scornn.nn.MODELS", small)
    assert main(["bench", "--models", "--data", str(shared_data), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["models"]
    found = [(row["model"], row["n"], row["backend"]) for row in rows]
    assert found == [("scornn", 8, "auto"), ("lstm", 4, "auto"), ("lstm", 4, "naive")]
    assert all(row["seconds_per_step"] > 0 and row["steps"] >= 1 for row in rows)


def test_training(shared_data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    measure = _bench_program.training
    monkeypatch.setattr(_bench_program, "training", lambda data, steps: measure(data, steps=2))
    assert main(["bench", "--training", "--data", str(shared_data)]) == 0
    table = capsys.readouterr().out
    assert "mnist, scoRNN n=170" in table
    assert "copying, scoRNN n=190" in table


def test_unknown_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--models", "--model", "elman"]) == 2
    assert "'elman'; the models are scornn" in capsys.readouterr().err
