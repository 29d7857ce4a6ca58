"""`scornn bench --deployed`: every way of every model and shape, with ONNX Runtime where it is installed."""

from __future__ import annotations

import importlib.util
import json

import pytest

from scornn.program.cli import main
from scornn.program.deploy import bench


def test_times_every_way(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(bench, "MODELS", {"scornn": 5, "lstm": 4})
    monkeypatch.setattr(bench, "SHAPES", {"tiny": (3, 2)})
    assert main(["bench", "--deployed", "--rounds", "1", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)["deployed"]
    ways = {"network", "frozen"} | ({"onnx"} if importlib.util.find_spec("onnxruntime") else set())
    assert [(row["model"], set(row["milliseconds"])) for row in report] == [("scornn", ways), ("lstm", ways)]
    assert all(time > 0 for row in report for time in row["milliseconds"].values())
    assert main(["bench", "--deployed", "--rounds", "1", "--markdown"]) == 0
    assert "| lstm, n = 4 | 3, 2 |" in capsys.readouterr().out
