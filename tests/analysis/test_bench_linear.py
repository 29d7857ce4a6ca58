"""The bench of the linear memory, at a size of milliseconds."""

from __future__ import annotations

import json

import pytest

from scornn.program.analysis import bench_linear
from scornn.program.cli import main


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in {"N": 6, "B": 2, "T": 20}.items():
        monkeypatch.setattr(bench_linear, name, size)


def test_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--linear", "--quick", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [(row["what"], row["train"]) for row in report["linear"]] == [
        (what, train) for what in ("last state", "every state") for train in (False, True)
    ]
    for row in report["linear"]:
        ms = row["milliseconds"]
        assert row["times_faster"] == pytest.approx(ms["loop"] / ms["memory"])
    assert report["state_bytes"] == 4 * 20 * 2 * 6


def test_as_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--linear", "--quick", "--markdown"]) == 0
    text = capsys.readouterr().out
    assert "| last state, forward and backward |" in text
    assert "| cost of T × 10, every state |" in text
