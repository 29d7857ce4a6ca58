"""``scornn bench`` with little to time: its four tables, what it counts, and the programs of ``benchmarks/``."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import pytest
import torch

from scornn.nn import MODELS
from scornn.program.cli import _bench, _streams, bench, main

TINY = _bench.Shape("tiny", 6, 3, 5, 2, "all")
BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_bench, "TURN", 1e-4)
    monkeypatch.setattr(_bench, "SHAPES", (TINY, TINY._replace(use="last"), TINY._replace(use="inference")))
    monkeypatch.setattr(_bench, "PIXELS", (5, 3))
    monkeypatch.setattr(_bench, "DEPLOYED", ((("scornn", 5), (3, 2)), (("lstm", 4), (1, 1))))


def rows(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, float]]:
    assert main(["bench", "--json", "--rounds", "1", *arguments]) == 0
    return json.loads(capsys.readouterr().out)["rows"]


def test_the_recurrence_beside_its_peers(capsys: pytest.CaptureFixture[str]) -> None:
    assert (TINY.flops, TINY._replace(use="inference").flops) == (6 * 5 * 3 * 6 * 8, 2 * 5 * 3 * 6 * 8)
    (row,) = rows(capsys, "--shape", "tiny")
    assert row["n, B, T, m"] == "6, 3, 5, 2"
    assert all(row[title] > 0 for title in ("ms", "× naive", "× RNN", "× LSTM") if title in row)
    assert row["of peak"] is None or 0 < row["of peak"] <= 1


def test_every_model_without_a_data_set(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("scornn", "lstm"):
        monkeypatch.setitem(vars(MODELS[name]), "bench", (8,))
    monkeypatch.setattr(_bench, "VARIANTS", {"lstm": ({"forget_bias": 2.0},)})
    (scornn,), (lstm,) = rows(capsys, "--models", "--model", "scornn"), rows(capsys, "--models", "--model", "lstm")
    assert (scornn["model"], scornn["n"], scornn["×"]) == ("scornn", 8, None)
    assert (lstm["model"], lstm["×"]) == ("lstm forget_bias=2.0", lstm["PyTorch ms"] / lstm["ms"])


def test_deployed_as_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--deployed", "--rounds", "1"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert len(lines) == 4
    assert len({line.count("|") for line in lines}) == len({len(line) for line in lines}) == 1
    assert lines[3].startswith("| lstm, n = 4   | 1, 1 |")


def test_streams_beside_their_peers(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name, value in (("SIZES", (5,)), ("WORST_OF", 20), ("FRAMES", 64)):
        monkeypatch.setattr(_streams, name, value)
    found = rows(capsys, "--stream")
    assert [(row["model"], row["frames"]) for row in found[:3]] == [("scornn", 1), ("scornn", 64), ("lstm", 1)]
    assert all(row["Python ns"] > 0 for row in found)
    assert all(row["worst ns"] >= row["median ns"] for row in found if row["frames"] == 1)
    assert {row["model"] for row in found if row["torch ns"] is None} == {"linear-memory"}


@pytest.mark.parametrize("option", ["shape", "model"])
def test_unknown_names_are_refused_with_a_list(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", f"--{option}", "cifar"]) == 2
    assert f"unknown {option} 'cifar'; the {option}s are " in capsys.readouterr().err


def test_the_programs_beside_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    recurrence, linear = (runpy.run_path(str(BENCHMARKS / f"{name}.py")) for name in ("recurrence", "linear"))
    grown = recurrence["peak_memory"](lambda: torch.ones(10_000_000))
    assert grown is None or 0.9 < grown / 40e6 < 1.2
    for program, small in (
        (recurrence, {"GROWTH": {"T × 10": (TINY, TINY._replace(T=50))}, "LONG": TINY, "ROUNDS": 1}),
        (linear, {"N": 6, "B": 2, "T": 20, "ROUNDS": 1}),
    ):
        program["main"].__globals__.update(small)
        program["main"]()
    said = capsys.readouterr().out
    assert "| last state, forward and backward " in said
    assert "| cost of T × 10 " in said
    monkeypatch.setattr(sys, "argv", ["training.py"])
    training = runpy.run_path(str(BENCHMARKS / "training.py"))
    row = training["measure"]("copying", None, steps=2, length=5, train_size=40, test_size=20)
    assert row["recurrence ms"] > 0
    assert bench.table([row]).count("\n") == 2
