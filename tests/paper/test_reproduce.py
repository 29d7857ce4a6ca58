"""`scornn reproduce` at the smoke scale: what it makes, what it does not repeat, and what it says is missing."""

from __future__ import annotations

import json
import re
import wave
from pathlib import Path

import numpy as np
import pytest

from scornn.errors import DivergedError, UsageError
from scornn.program.cli import main
from scornn.program.paper.items import ITEMS
from scornn.program.paper.reproduce import Request, reproduce, settings
from scornn.program.paper.results import Number, collect
from scornn.program.recipes.presets import presets
from scornn.program.train import program
from scornn.program.train.config import Config

ROWS = ("copying-1000-scornn-190", "copying-2000-lstm-68")


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SCORNN_OFFLINE", "1")
    monkeypatch.setenv("SCORNN_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SCORNN_DATA", raising=False)


def only(*names: str) -> list[str]:
    return [word for name in names for word in ("--only", name)]


def metrics(path: Path) -> list[dict[str, object]]:
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]


def numbers(out: Path) -> dict[tuple[str, str, str], Number]:
    """By item, row and measure."""
    found = collect(out)
    return {(n.item, n.preset.name, n.measure): n for item in ITEMS.values() for n in found.numbers(item)}


def test_makes_figures_and_page_and_repeats_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    command = ["reproduce", "fig-copying", "--out", str(out), "--seeds", "2", *only(*ROWS)]
    assert main(command) == 0
    said = capsys.readouterr().out
    assert "[4/4] smoke of copying-2000-lstm-68-s5545 (n 8, T 20): best" in said
    assert {p.name for p in (out / "runs").iterdir()} == {f"{row}-s{seed}" for row in ROWS for seed in (5544, 5545)}
    found = numbers(out)
    scornn = found["fig-copying", "copying-1000-scornn-190", "cross-entropy"]
    values = [
        json.loads((out / "runs" / f"{ROWS[0]}-s{seed}" / "summary.json").read_text())["final"]["test"]["loss"]
        for seed in (5544, 5545)
    ]
    assert scornn.values == tuple(values)
    assert scornn.budget.startswith("smoke: 4 iterations, n 8, T 20")
    assert scornn.verdict == "not comparable"
    assert scornn.parameters == 8 * 7 // 2 + 10 * 8 + 8 + 9 * 8 + 9  # of the network that ran
    other = found["fig-copying", "copying-1000-lstm-68", "cross-entropy"]
    assert (other.values, other.verdict) == ((), "not run")
    page = (out / "page.html").read_text()
    assert "seeds 5544, 5545" in page
    assert "scoRNN n=8 in place of 190, T\u00a0=\u00a020" in page
    assert "Not run: 8 of 10 published figures" in page
    assert "Adding problem" not in page
    assert "Its figures mean nothing" in page
    before = {path: path.stat().st_mtime_ns for path in out.glob("runs/*/summary.json")}
    assert main(command) == 0
    assert {path: path.stat().st_mtime_ns for path in out.glob("runs/*/summary.json")} == before
    assert "already there" in capsys.readouterr().out


def test_goes_on_where_it_stopped(tmp_path: Path) -> None:
    item = ITEMS["fig-copying"]
    for name in ("whole", "cut"):
        request = Request(out=tmp_path / name, only=ROWS[:1], quiet=True)
        if name == "cut":
            config = settings(presets()[ROWS[0]], item, 5544, request)
            path = tmp_path / name / "runs" / str(config.name)
            program.start(config, path, quiet=True, tensorboard=False)
            newest = path / "checkpoints" / "step-4"
            for file in newest.iterdir():
                file.unlink()
            newest.rmdir()  # as if killed before the last checkpoint
            (path / "summary.json").unlink()
        assert reproduce([item], request).signal == 0
    whole, cut = (tmp_path / name / "runs" / f"{ROWS[0]}-s5544" for name in ("whole", "cut"))
    assert metrics(whole) == metrics(cut)
    assert json.loads((cut / "summary.json").read_text())["finished"] is True


def test_a_length_in_iterations(tmp_path: Path) -> None:
    for steps in (2, 3):
        reproduce([ITEMS["fig-copying"]], Request(out=tmp_path, only=ROWS[:1], iterations=steps, quiet=True))
        summary = json.loads((tmp_path / "runs" / f"{ROWS[0]}-s5544" / "summary.json").read_text())
        assert summary["steps"] == steps


def test_a_setting_beyond_the_paper_runs_when_it_is_named(tmp_path: Path) -> None:
    row = "adding-200-scornn-170-start"
    reproduce([ITEMS["fig-adding"]], Request(out=tmp_path, only=(row,), quiet=True))
    (run,) = (tmp_path / "runs").iterdir()
    assert run.name == f"{row}-s5544"
    options = json.loads((run / "config.json").read_text())["model"]["options"]
    assert (options["input_scale"], options["bias_start"]) == (0.1, -0.03)
    assert "average" in json.loads((run / "summary.json").read_text())


def test_other_scale_or_settings_in_the_same_directory_are_refused(tmp_path: Path) -> None:
    request = Request(out=tmp_path, only=ROWS[:1], quiet=True)
    reproduce([ITEMS["fig-copying"]], request)
    with pytest.raises(UsageError, match="scale 'smoke', not 'paper'"):
        reproduce([ITEMS["fig-copying"]], Request(out=tmp_path, scale="paper", only=ROWS[:1], quiet=True))
    config = tmp_path / "runs" / f"{ROWS[0]}-s5544" / "config.json"
    table = json.loads(config.read_text())
    table["optimizer"]["rest"]["lr"] = 0.5
    config.write_text(json.dumps(table))
    with pytest.raises(UsageError, match="other settings"):
        reproduce([ITEMS["fig-copying"]], request)


def test_what_is_missing_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert main(["reproduce", "table-timing", "--out", str(out), *only("mnist-rnn-116", "mnist-rnn-360")]) == 3
    captured = capsys.readouterr()
    assert "2 rows of table-timing have no result: MNIST is missing" in captured.err
    assert captured.out.count("MNIST is missing") == 1
    assert set(json.loads((out / "missing.json").read_text())) == {"mnist-rnn-116", "mnist-rnn-360"}
    assert "MNIST is missing" in (out / "page.html").read_text()
    assert main(["reproduce", "table-timit", "--out", str(out), *only("timit-lstm-84")]) == 3
    assert "--corpus iban" in capsys.readouterr().err


@pytest.mark.parametrize("item", ["fig-copying", "all"])
def test_a_run_that_diverges_is_no_missing_file(
    item: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def diverges(*_: object, **__: object) -> None:
        raise DivergedError("not finite at step 3")

    monkeypatch.setattr(program, "start", diverges)
    assert main(["reproduce", item, "--out", str(tmp_path), *only(ROWS[0])]) == 5
    assert f"{ROWS[0]}-s5544 diverged: not finite at step 3" in capsys.readouterr().err
    assert "diverged: not finite at step 3" in (tmp_path / "page.html").read_text()


def test_what_begins_as_a_diverged_run_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared_data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begun = []

    def diverges(config: Config, *_: object, **__: object) -> None:
        begun.append(config.name)
        raise DivergedError("not finite at step 3")

    monkeypatch.setattr(program, "start", diverges)
    command = ["reproduce", "table-mnist", "--out", str(tmp_path), "--data", str(shared_data / "mnist")]
    assert main([*command, *only("mnist-scornn-512-grown", "mnist-scornn-170")]) == 5
    assert begun == ["mnist-scornn-360-strong-s5544", "mnist-scornn-170-s5544"]
    assert "mnist-scornn-360-strong-s5544, as which it begins, diverged" in capsys.readouterr().out
    assert "mnist-scornn-512-grown" in json.loads((tmp_path / "missing.json").read_text())


def test_a_reason_stays_until_its_run_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reasons = dict.fromkeys(ROWS, "no data here")
    (tmp_path / "missing.json").write_text(json.dumps(reasons))
    stopped = program.Result(tmp_path, 15, {"steps": 1})
    monkeypatch.setattr(program, "start", lambda *_, **__: stopped)
    assert reproduce([ITEMS["fig-copying"]], Request(out=tmp_path, only=ROWS, quiet=True)).signal == 15
    assert json.loads((tmp_path / "missing.json").read_text()) == reasons


def test_speech_on_a_folder_is_labelled(tmp_path: Path) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    rng = np.random.default_rng(0)
    for speaker in ("ann", "bob", "cem"):
        (data / speaker).mkdir(parents=True)
        for number in range(2):
            with wave.open(str(data / speaker / f"{number}.wav"), "wb") as file:
                file.setparams((1, 2, 8000, 0, "NONE", ""))
                file.writeframes(rng.integers(-5000, 5000, 4000 + 400 * number).astype("<i2").tobytes())
    command = ["reproduce", "table-timit", "--corpus", "folder", "--data", str(data), "--out", str(out)]
    assert main([*command, *only("timit-scornn-224")]) == 0
    found = {measure: n for (_, row, measure), n in numbers(out).items() if row == "timit-scornn-224"}
    assert "corpus folder" in found["eval MSE (padded)"].budget
    assert found["eval MSE (padded)"].values < found["eval MSE (not padded)"].values
    assert found["SegSNR"].values


@pytest.mark.slow
def test_everything_that_needs_no_data(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main(["reproduce", "all", "--out", str(out), "--quiet"]) == 0
    found = numbers(out).values()
    assert all(n.values for n in found if n.item in ("fig-copying", "fig-adding", "fig-gradients"))
    verdicts = {n.verdict for n in found if n.item in ("table-mnist", "table-timing")}
    assert verdicts == {"not run", ""}  # "": a measure of which nothing was published


@pytest.mark.slow
def test_mnist_rows_with_the_real_images(tmp_path: Path, shared_data: Path) -> None:
    out = tmp_path / "out"
    rows = ("mnist-scornn-512", "mnist-full-urnn-512", "pmnist-eurnn-512", "mnist-ornn-256")
    command = ["reproduce", "all", "--out", str(out), "--quiet", "--data", str(shared_data), *only(*rows)]
    assert main(command) == 0
    found = numbers(out)
    for row in rows:
        assert 0 <= found["table-mnist", row, "accuracy"].values[0] <= 1
    for row in rows[:2]:
        assert 0 < found["fig-orthogonality", row, "last"].values[0] < 1e-5
        assert found["table-timing", row, "minutes per epoch"].values[0] > 0
        assert "scaled to 1,100" in found["table-timing", row, "minutes per epoch"].budget


def test_a_setting_that_begins_as_another_ended_runs_that_one_first(
    tmp_path: Path, shared_data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["reproduce", "table-mnist", "--out", str(tmp_path), *only("mnist-scornn-512-grown")]
    command += ["--data", str(shared_data / "mnist")]
    assert main(command) == 0
    second = tmp_path / "runs" / "mnist-scornn-512-grown-s5544"
    table = json.loads((second / "config.json").read_text())
    assert re.fullmatch(r"mnist-scornn-360-strong-s5544/step-4-averaged/[0-9a-f]{16}", table["start"])
    before = metrics(second)
    assert main(command) == 0
    capsys.readouterr()
    assert main([*command, "--iterations", "6"]) == 2  # the first goes on, so that the second began as another
    said = capsys.readouterr().err.replace("\n", " ")
    assert f"{second} began with {table['start']}, which is mnist-scornn-360-strong-s5544/step-6" in said
    assert metrics(second) == before


def test_runs_the_seeds_that_are_named(tmp_path: Path) -> None:
    seeds = ("--seed", "5546", "--seed", "7", "--seed", "5546")
    assert main(["reproduce", "fig-copying", "--out", str(tmp_path), *seeds, *only(ROWS[0])]) == 0
    assert {run.name for run in (tmp_path / "runs").iterdir()} == {f"{ROWS[0]}-s5546", f"{ROWS[0]}-s7"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["fig-copyng"], "did you mean fig-copying"),
        (["fig-copying", "--only", "mnist-scornn-170"], "no such preset in fig-copying"),
        (["fig-copying", "--seeds", "0"], "--seeds 0"),
        (["fig-copying", "--seed", "5545", "--seeds", "2"], "--seeds 2 and --seed 5545: give one of them"),
        (["fig-copying", "--seed", "-1"], "seed = -1: expected"),
        (["fig-copying", "--iterations", "0"], "--iterations 0"),
        (["fig-copying", "some-run"], "only `scornn reproduce record` takes runs"),
    ],
)
def test_refusals(arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", *arguments, "--out", str(tmp_path / "out")]) == 2
    assert said in capsys.readouterr().err
