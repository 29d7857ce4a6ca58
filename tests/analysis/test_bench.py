"""The benchmark: what it counts, what it refuses, and that its figures agree with each other."""

from __future__ import annotations

import json

import pytest
import torch

from scornn.program.analysis import bench
from scornn.program.cli import main

TINY = (
    bench.Shape("tiny", 6, 3, 5, 2, "all"),
    bench.Shape("tiny-last", 6, 3, 5, 2, "last"),
    bench.Shape("tiny-inference", 6, 3, 5, 2, "inference"),
)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = TINY[0], bench.Shape("", 6, 3, 50, 2, "all")
    monkeypatch.setattr(bench, "SHAPES", TINY)
    monkeypatch.setattr(bench, "GROWTH", {"T × 10": (small, large)})
    monkeypatch.setattr(bench, "LONG", large)


def test_operations_of_a_training_step() -> None:
    assert TINY[0].flops == 6 * 5 * 3 * 6 * 8
    assert TINY[2].flops == 2 * 5 * 3 * 6 * 8


@pytest.mark.parametrize(("n", "m"), [(170, 1), (190, 10), (512, 1), (224, 129)])
def test_lstm_has_the_same_number_of_parameters(n: int, m: int) -> None:
    wanted = m * n + n * (n - 1) // 2 + n

    def error(k: int) -> int:
        return abs(4 * (m * k + k * k + k) - wanted)

    k = bench.lstm_size(n, m)
    assert error(k) <= min(error(k - 1), error(k + 1))


@pytest.mark.usefixtures("tiny")
def test_report_agrees_with_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [shape["shape"] for shape in report["shapes"]] == ["tiny", "tiny-last", "tiny-inference"]
    for shape, given in zip(report["shapes"], TINY, strict=True):
        ours = shape["contender"]
        milliseconds = shape["milliseconds"]
        assert set(milliseconds) >= {"manual", "naive", "rnn", "lstm"}
        for peer, ratio in shape["times_faster_than"].items():
            assert ratio == pytest.approx(milliseconds[peer] / milliseconds[ours])
        assert shape["gflops"][ours] == pytest.approx(given.flops / milliseconds[ours] / 1e6)
        if report["peak_gflops"] is not None:
            assert shape["share_of_peak"] == pytest.approx(shape["gflops"][ours] / report["peak_gflops"])
    assert report["growth"][0]["cost"] > 0
    assert report["long"]["seconds"] > 0
    assert report["threads"] == torch.get_num_threads()


@pytest.mark.usefixtures("tiny")
def test_markdown_is_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--markdown", "--quick", "--shape", "tiny"]) == 0
    head, *rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert len(rows) == 2
    assert {row.count("|") for row in rows} == {head.count("|")}
    assert rows[1].startswith("| tiny | 6, 3, 5, 2 |")


def test_refuses_an_unknown_shape(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--shape", "cifar"]) == 2
    assert "unknown shape 'cifar'; the shapes are mnist-170" in capsys.readouterr().err


def test_memory_of_a_step_is_what_it_holds_at_once() -> None:
    grown = bench.peak_memory(lambda: torch.ones(10_000_000))
    if grown is None:
        pytest.skip("the system does not tell")
    assert 0.9 < grown / 40e6 < 1.2
