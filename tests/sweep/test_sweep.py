"""A sweep from its command to its page, in this process."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch

from scornn.errors import DivergedError
from scornn.program.cli import main
from scornn.program.sweep import space
from scornn.program.sweep.program import open_sweep
from scornn.program.sweep.storage import without_password
from scornn.program.sweep.worker import Worker
from scornn.program.train.engine import Engine

Sweep = Callable[..., int]
Runs = Callable[[Path], dict[str, dict[str, Any]]]
TINY = ["--length", "5", "--hidden", "4", "--threads", "1", "--iterations", "12", "--set", "task.train_size=40"]
RHO = ("--over", "model.options.rho=0,n/4,n/2")


def trials(directory: str) -> list[Any]:
    return open_sweep(Path(directory)).all()


def test_a_grid_from_start_to_page_and_training(sweep: Sweep, runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    over = (*RHO, "--over", "optimizer.recurrent.lr=1e-3,1e-2")
    assert sweep(*over, "--out", "s") == 0
    said = capsys.readouterr().out
    assert "6 trials by grid, 1 at once" in said
    assert "the task has no validation split" in said
    assert "[6/6] trial 5, rho = n/2, rate of A = 0.01: recall" in said
    assert "0 left" in said

    found = trials("s")
    assert [t.state.name for t in found] == ["COMPLETE"] * 6
    assert len({tuple(t.params.values()) for t in found}) == 6
    summaries = runs(Path("s"))
    assert [t.value for t in found] == [summary["final"]["test"]["recall"] for summary in summaries.values()]

    best = max(found, key=lambda t: (t.value, -t.number))
    config = json.loads(Path("s/best.json").read_text())
    assert config == json.loads(Path(f"s/trials/{best.number:04}/config.json").read_text())
    assert (
        main(["train", "copying", "--config", "s/best.json", "--out", "again", "--quiet", "--tensorboard", "off"]) == 0
    )
    again = json.loads(Path("again/summary.json").read_text())
    assert again["final"]["test"]["recall"] == best.value

    before = {path: path.stat().st_mtime_ns for path in Path("s/trials").rglob("*") if path.is_file()}
    assert sweep(*over, "--out", "s") == 0
    assert "6 of 6 trials are done" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in Path("s/trials").rglob("*") if path.is_file()} == before

    assert main(["sweep", "report", "s", "--out", "sweep.html"]) == 0
    assert main(["sweep", "report", "s", "--out", "sweep.json"]) == 0
    page = Path("sweep.html").read_text()
    for words in ("Best runs", "what mattered", "Over each key", "Over each pair of keys", "Learning curves", "n/4"):
        assert words in page
    assert "rate of A = " in page
    assert ">lr<" not in page
    assert page.count("<svg viewBox") == 7  # history, importance, two slices, a heat map, two panels of curves
    assert "<script" not in page

    kept = Path("sweep.json").read_text()
    assert str(Path.cwd()) not in kept
    Path("s").rename("elsewhere")
    assert main(["sweep", "report", "sweep.json", "--out", "kept.html"]) == 0
    again = Path("kept.html").read_text()
    assert again.count("<svg viewBox") == 7
    assert all(f"{trial.value:.4g}" in again for trial in found)
    Path("sweep.json").write_text("{}")
    assert main(["sweep", "report", "sweep.json"]) == 2
    assert "sweep.json is no record of a sweep" in capsys.readouterr().err


def test_sampled_trials_are_pruned_and_a_later_total_is_reached(sweep: Sweep, runs: Runs) -> None:
    over = ("--over", "model.options.rho=0..n", "--over", "optimizer.recurrent.lr=1e-4..1e-1:log")
    assert sweep(*over, "--trials", "7", "--prune", "halving", "--out", "s", "--quiet") == 0
    first = trials("s")
    assert len(first) == 7
    assert {t.state.name for t in first} == {"COMPLETE", "PRUNED"}
    assert all(t.distributions["optimizer.recurrent.lr"].log for t in first)
    assert all(isinstance(t.params["model.options.rho"], int) for t in first)
    finished = {int(number) for number, summary in runs(Path("s")).items() if summary["finished"]}
    assert finished == {t.number for t in first if t.state.name == "COMPLETE"}
    pruned = next(t for t in first if t.state.name == "PRUNED")
    assert pruned.user_attrs["outcome"] == f"pruned at step {pruned.last_step}"
    own = f"s/trials/{pruned.number:04}"  # a run like any other
    assert main(["resume", own, "--quiet", "--tensorboard", "off"]) == 0
    assert json.loads(Path(own, "summary.json").read_text())["finished"]

    assert main(["sweep", "resume", "s", "--trials", "9", "--quiet"]) == 0
    assert [t.params for t in trials("s")[:7]] == [t.params for t in first]
    assert len(trials("s")) == 9
    assert main(["sweep", "resume", "s", "--trials", "5"]) == 2


def test_a_part_of_a_grid_grows_to_all_of_it(sweep: Sweep, capsys: pytest.CaptureFixture[str]) -> None:
    over = ("--over", "seed=1,2,3,4,5,6", "--out", "s", "--quiet", "--set", "steps=1")
    assert sweep(*over, "--trials", "3") == 0
    first = [t.params["seed"] for t in trials("s")]
    assert main(["sweep", "resume", "s", "--trials", "9", "--quiet"]) == 0
    said = "warning: --trials 9: the lists of --over have 6 combinations, and each is a trial once: there are no more"
    assert said in capsys.readouterr().err
    assert sweep(*over, "--trials", "3") == 0  # takes none back
    seeds = [t.params["seed"] for t in trials("s")]
    assert seeds[:3] == first
    assert sorted(seeds) == [1, 2, 3, 4, 5, 6]


def test_values_do_not_depend_on_who_draws_them(sweep: Sweep) -> None:
    over = ("--over", "optimizer.recurrent.lr=1e-4..1e-1:log", "--sampler", "random", "--quiet", "--iterations", "1")
    assert sweep(*over[:-2], "--trials", "3", "--out", "a") == 0
    assert sweep(*over[:-2], "--trials", "1", "--out", "b") == 0
    assert main(["sweep", "resume", "b", "--trials", "3", "--quiet"]) == 0
    assert [t.params for t in trials("a")] == [t.params for t in trials("b")]


def test_a_diverged_trial_is_a_result_and_one_of_equal_settings_is_not_run(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    step = Engine.step

    def diverge(self: Engine, *arguments: Any) -> Any:
        if self.optimizer_config.recurrent.lr == 1.0:
            raise DivergedError("loss nan")
        return step(self, *arguments)

    monkeypatch.setattr(Engine, "step", diverge)
    assert sweep("--over", "optimizer.recurrent.lr=0.001,1.0", "--out", "s") == 0
    said = capsys.readouterr().out
    assert "trial 1, rate of A = 1: diverged: not finite at step 1: loss nan" in said
    assert [t.state.name for t in trials("s")] == ["COMPLETE", "PRUNED"]
    assert main(["sweep", "report", "s"]) == 0
    assert "1 diverged" in Path("sweep.html").read_text()

    assert sweep("--over", "seed=1..2", "--trials", "4", "--sampler", "random", "--out", "t", "--quiet") == 0
    found = trials("t")
    again = [t for t in found if t.user_attrs["outcome"] != "done"]
    assert len(again) >= 2
    for twin in again:
        first = next(t for t in found if t.params == twin.params)
        assert twin.user_attrs["outcome"] == f"as trial {first.number}, which has the same settings"
        assert (twin.value, twin.user_attrs["test"]) == (first.value, first.user_attrs["test"])
        assert not Path(f"t/trials/{twin.number:04}").exists()


def test_the_validation_split_decides_where_there_is_one(shared_data: Path, runs: Runs) -> None:
    few = ["--set", "task.train_size=60", "--set", "task.test_size=20", "--batch", "10", "--epochs", "1"]
    own = ["--data", str(shared_data), "--hidden", "4", "--threads", "1", "--quiet"]
    average = ["--set", "optimizer.average.decay=0.5", "--weights", "average", "--prune", "median"]
    over = ["--over", "optimizer.rest.lr=1e-3,1e-2"]
    assert main(["sweep", "mnist", *few, *own, *average, *over, "--out", "s"]) == 0
    summaries = runs(Path("s"))
    for trial, summary in zip(trials("s"), summaries.values(), strict=True):
        assert trial.value == summary["average"]["best_by_valid"]["valid"]
        assert set(trial.intermediate_values) == {1, 2, 3, 4, 5}  # six steps in ten looks, the last is the end
    assert main(["sweep", "report", "s"]) == 0
    assert "best valid accuracy of the averaged weights" in Path("sweep.html").read_text()


@pytest.mark.parametrize(
    ("over", "said"),
    [
        ("model.options.rhoo=1,2", "rhoo"),
        ("optimizer.recurrent.lr=1e-3..1e-5", "expected lo < hi"),
        ("optimizer.recurrent.lr=1e-3..1e-3", "expected lo < hi"),
        ("optimizer.recurrent.lr=", "a value is empty"),
        ("optimizer.recurrent.lr=0..1:log", "and lo > 0"),
        ("model.options.rho=0..2n", "model.options.rho = 8"),
        ("model.options.rho=..3", "found nothing at an end"),
        ("task.length=5,5", "given twice"),
        ("x", "expected key=value"),
    ],
)
def test_bad_axes(over: str, said: str, sweep: Sweep, capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep("--over", over, "--out", "s") == 2
    error = capsys.readouterr().err
    assert said in error
    assert over.partition("=")[0] in error
    assert not Path("s").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ((), 2, "--over is missing"),
        ((*RHO, *RHO), 2, "--over gives model.options.rho twice"),
        (("--over", "model.options.rho=0..n", "--sampler", "grid"), 2, "such as model.options.rho=0,4"),
        (("--model", "dtriv", "--over", "seed=1,2", "--weights", "average"), 2, "dtriv with these settings averages"),
        ((*RHO, "--trials", "0"), 2, "--trials 0"),
        (
            (*RHO, "--storage", "postgresql://me:secret@127.0.0.1:1/x"),
            6,
            "cannot reach the storage postgresql://me@127",
        ),
        ((*RHO, "--storage", "nowhere/study.db"), 6, "nowhere/study.db"),
        ((*RHO, "--storage", "oracel://x"), 2, "--storage oracel://x"),
        ((*RHO, "--storage", "mysql://me:secret@h/x"), 2, 'mysql://me@h/x: its driver is not installed: pip install "'),
        ((*RHO, "--storage", "file.json"), 2, "file.json: it holds no study"),
        ((*RHO, "--storage", "foreign.db"), 2, "foreign.db: it holds no study"),
        ((*RHO, "--start-from", "run"), 2, "--start-from"),
        ((*RHO, "--start-weights", "average"), 2, "--start-weights"),
        ((*RHO, "--set", "start=run/step-1/0"), 2, "start = run/step-1/0: the trials of a sweep begin with their seed"),
        (("--over", "start=a,b"), 2, "--over start=a,b: start = a: the trials of a sweep begin with their seed"),
        (("--over", "device=cpu,cuda"), 2, "--over device=cpu,cuda: device = cuda: PyTorch finds no GPU here"),
        (
            ("--over", "task.name=copying,adding"),
            2,
            "adding: adding is judged by the test mse, the less the better, and the sweep by copying's",
        ),
    ],
)
def test_refusals(
    arguments: tuple[str, ...],
    code: int,
    said: str,
    sweep: Sweep,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    Path("file.json").write_text('{"mine": 1}')
    with closing(sqlite3.connect("foreign.db")) as foreign:
        foreign.execute("create table mine (id integer)")
    before = {file: Path(file).read_bytes() for file in ("file.json", "foreign.db")}
    assert sweep(*arguments, "--out", "s") == code
    assert said in capsys.readouterr().err
    assert not Path("s").exists()
    assert {file: Path(file).read_bytes() for file in before} == before


def test_a_sweep_of_which_every_trial_is_refused_has_failed(sweep: Sweep, capsys: pytest.CaptureFixture[str]) -> None:
    """Each value is fine beside the others' default, and no two go together."""
    assert sweep("--over", "model.hidden=2,3", "--over", "model.options.rho=4", "--out", "s", "--quiet") == 2
    said = "scornn: no trial in s could be run; trial 0: refused: model.options.rho = 4"
    assert said in capsys.readouterr().err
    assert not Path("s/best.json").exists()
    assert main(["sweep", "resume", "s", "--quiet"]) == 2
    assert said in capsys.readouterr().err
    assert sweep("--over", "model.hidden=3,4", "--over", "model.options.rho=4", "--out", "t", "--quiet") == 0
    assert not capsys.readouterr().err


def test_a_sweep_of_which_every_trial_diverges_has_diverged(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def diverge(self: Engine, *arguments: Any) -> Any:
        raise DivergedError("loss nan")

    monkeypatch.setattr(Engine, "step", diverge)
    # Of n = 3, a rho of 4 is refused: that another trial failed changes nothing.
    over = ("--over", "model.hidden=3,4", "--over", "model.options.rho=4")
    for arguments, diverged in ((RHO, "3 of 3 diverged; trial 0"), (over, "1 of 2 diverged; trial 1")):
        said = f"scornn: no trial in {diverged[0]} ran to its end: {diverged}: diverged: not finite at step 1: loss nan"
        assert sweep(*arguments, "--out", diverged[0], "--quiet") == 5
        assert said in capsys.readouterr().err
        assert not Path(diverged[0], "best.json").exists()
        assert main(["sweep", "resume", diverged[0], "--quiet"]) == 5
        assert said in capsys.readouterr().err


def test_averaged_weights_are_judged_where_a_trial_has_some(sweep: Sweep, capsys: pytest.CaptureFixture[str]) -> None:
    average = ("--model", "dtriv", "--weights", "average", "--quiet")
    assert sweep(*average, "--over", "model.name=dtriv,lstm", "--out", "s") == 0, capsys.readouterr().err
    assert [t.state.name for t in trials("s")] == ["FAIL", "COMPLETE"]


def test_a_sweep_on_a_device_that_is_gone_is_not_resumed(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with monkeypatch.context() as patch:
        patch.setattr(Worker, "run", lambda worker: signal.SIGTERM)
        assert sweep("--over", "seed=1,2", "--device", "cuda", "--out", "s", "--quiet") == 143
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    before = Path("s/sweep.db").read_bytes()
    assert main(["sweep", "resume", "s", "--quiet"]) == 2
    assert "device = cuda: PyTorch finds no GPU here" in capsys.readouterr().err
    assert Path("s/sweep.db").read_bytes() == before


@pytest.mark.parametrize("over", ["stop_when.loss=9,8", "steps=12,30", "seed=1,2"])
def test_until_is_what_it_is_in_training(over: str, sweep: Sweep, runs: Runs) -> None:
    until = () if over.startswith("stop_when") else ("--until", "loss=9")
    assert sweep(*until, "--over", over, "--out", "s", "--quiet") == 0
    assert main(["train", "copying", *TINY, "--until", "loss=9", "--out", "r", "--quiet", "--tensorboard", "off"]) == 0
    steps = json.loads(Path("r/summary.json").read_text())["steps"]
    assert [summary["steps"] for summary in runs(Path("s")).values()] == [steps, steps] == [1, 1]


def test_a_study_of_another_config_is_refused(sweep: Sweep, capsys: pytest.CaptureFixture[str]) -> None:
    shared = ("--storage", "shared.db", "--study", "one", "--quiet")
    assert sweep("--over", "model.options.rho=1,2", *shared, "--out", "a") == 0
    assert sweep("--over", "model.options.rho=1,2", *shared, "--out", "b", "--lr", "0.5") == 2
    assert "of another config: optimizer.rest.lr 0.5 instead of 0.001" in capsys.readouterr().err
    assert not Path("b").exists()
    assert sweep("--over", "model.options.rho=1,2", *shared, "--out", "a", "--lr", "0.5") == 2
    assert "a holds a sweep of another config" in capsys.readouterr().err
    Path("c").mkdir()
    Path("c/mine").touch()
    assert sweep("--over", "model.options.rho=1,2", "--out", "c") == 2
    assert main(["sweep", "resume", "c"]) == 2
    assert main(["sweep", "report", "nowhere"]) == 2


@pytest.mark.parametrize("arguments", [["--help"], ["sweep", "--help"], ["sweep", "resume", "--help"]])
def test_help_imports_neither_torch_nor_optuna(arguments: list[str]) -> None:
    code = f"import sys, scornn.program.cli as c; c.main({arguments}); print({{'torch', 'optuna'}} & set(sys.modules))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.endswith("set()\n")
    assert "sweep" in said


def test_optuna_missing(sweep: Sweep, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert sweep(*RHO) == 2
    assert "a sweep needs optuna: pip install optuna" in capsys.readouterr().err


def test_integers_and_numbers() -> None:
    settings = {"model": {"name": "scornn", "hidden": 20}, "optimizer": {"rest": {"lr": 0.1}}}
    rate, size, rho, *unset = space.parse(
        [
            *("optimizer.rest.lr=1..2", "task.batch=1..8:log", "model.options.rho=n/10..7n/10"),
            *("optimizer.clip_norm=1..10", "model.input_dropout=0..1", "model.options.dropout=0..1"),
        ],
        settings,
    )
    assert not rate.whole
    assert not any(axis.whole for axis in unset)
    assert size.whole
    assert (rho.low, rho.high) == (2, 14)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:pa/ss@host/sweeps", "postgresql://me@host/sweeps"),
        ("postgresql://me@corp:p:s@host/sweeps", "postgresql://me@corp@host/sweeps"),
        ("sqlite:////a:b@c/study.db", "sqlite:////a:b@c/study.db"),
    ],
)
def test_no_password_is_shown(url: str, shown: str) -> None:
    assert without_password(url) == shown
