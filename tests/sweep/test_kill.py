"""Sweeps of several processes, killed: nothing is lost, nothing is left as running, the total is reached."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from optuna.trial import TrialState, create_trial

from scornn.program.cli import main
from scornn.program.sweep import record
from scornn.program.sweep.program import open_sweep
from scornn.program.sweep.worker import Worker
from scornn.program.train.loop import Trainer

OVER = ("--over", "model.options.rho=0,1,2", "--over", "optimizer.recurrent.lr=1e-3,1e-2")
LONGER = ("--set", "steps=90", "--set", "checkpoint_every=10", "--set", "eval_every=45")
TOTAL = 6


def wait_for(true: Callable[[], Any], *processes: Any) -> None:
    end = time.monotonic() + 150
    while not true():
        for process in processes:
            assert process.running(), process.output()
        assert time.monotonic() < end, [process.output() for process in processes]
        time.sleep(0.02)


def begun(*directories: str) -> set[str]:
    """The trials that have come to a checkpoint."""
    steps = (step for directory in directories for step in Path(directory).glob("trials/*/checkpoints/step-*"))
    return {step.parts[-3] for step in steps}


@pytest.fixture(scope="module")
def left_alone(sweep: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same sweep in one go."""
    out = tmp_path_factory.mktemp("sweep") / "straight"
    assert sweep(*OVER, *LONGER, "--out", str(out), "--quiet") == 0
    return out


def check_against(left_alone: Path, directory: str, storage: str | None = None) -> None:
    trials = open_sweep(Path(directory), storage).all()
    states = [trial.state.name for trial in trials]
    assert states == ["COMPLETE"] * TOTAL, [trial.user_attrs for trial in trials]
    assert [trial.value for trial in trials] == [trial.value for trial in open_sweep(left_alone).all()]
    assert Path(directory, "best.json").read_text() == (left_alone / "best.json").read_text()


def test_sigkill_of_the_whole_tree(process: Any, left_alone: Path) -> None:
    job = process(*OVER, *LONGER, "--jobs", "2", "--out", "s")
    wait_for(lambda: len(begun("s")) >= 3, job)
    job.kill()
    states = [trial.state.name for trial in open_sweep(Path("s")).all()]
    assert "RUNNING" in states
    wait_for(lambda: not [trial for trial in record.of(open_sweep(Path("s"))).trials if trial.outcome == "running"])
    assert main(["sweep", "report", "s", "--out", "s.html"]) == 0
    assert f"{states.count('RUNNING')} interrupted" in Path("s.html").read_text()
    done = {number: os.stat(f"s/trials/{number:04}/summary.json") for number, s in enumerate(states) if s == "COMPLETE"}
    assert main(["sweep", "resume", "s", "--jobs", "1", "--quiet"]) == 0
    for number, before in done.items():
        assert os.stat(f"s/trials/{number:04}/summary.json") == before, "a finished trial was run again"
    check_against(left_alone, "s")


def test_the_trial_of_a_killed_job_is_taken_up_and_a_stopped_sweep_says_how_to_go_on(process: Any) -> None:
    job = process(*OVER, "--set", "steps=100000", "--jobs", "2", "--out", "s")
    wait_for(lambda: len(begun("s")) == 2, job)
    (child,) = psutil.Process(job.pid).children()
    assert child.environ()["OMP_NUM_THREADS"] == "1"
    assert {trial.state.name for trial in open_sweep(Path("s")).all()} == {"RUNNING", "WAITING"}
    child.kill()
    os.kill(job.pid, signal.SIGTERM)
    assert job.wait() == 143
    assert "SIGTERM: saved; continue with: scornn sweep resume s" in job.output()
    assert {trial.state.name for trial in open_sweep(Path("s")).all()} == {"WAITING"}


def test_no_trial_is_lost_between_two_steps_of_a_process_that_dies(sweep: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Worker, "run", lambda worker: signal.SIGTERM)
        assert sweep("--over", "seed=1,2,3", "--sampler", "random", "--trials", "3", "--out", "s", "--quiet") == 143
    study = open_sweep(Path("s")).study
    # One process died before it could write down who it was, another before it enqueued the trial again.
    for ticket, state in ((3, TrialState.RUNNING), (4, TrialState.FAIL)):
        lost = {"user_attrs": {"ticket": ticket}, "system_attrs": {"fixed_params": {}}}
        study.add_trial(create_trial(state=state, **lost))
    monkeypatch.setattr("scornn.program.sweep.study.GRACE_SECONDS", 1)
    assert main(["sweep", "resume", "s", "--quiet"]) == 0
    every = open_sweep(Path("s")).all()
    assert [trial.state.name for trial in every] == ["COMPLETE"] * 5


def test_a_trial_that_was_taken_away_from_a_living_process_ends_once(
    sweep: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its heartbeat did not come through; it trains on, and what it has is there for who goes on."""
    step, taken = Trainer._step, []

    def stepping(self: Trainer, stop: bool) -> bool:
        if not taken:
            study = open_sweep(Path("s")).study
            taken.append(study.tell(0, state=TrialState.FAIL))
        return step(self, stop)

    monkeypatch.setattr(Trainer, "_step", stepping)
    assert sweep("--over", "seed=1,2", "--out", "s", "--quiet") == 0
    assert [trial.state.name for trial in open_sweep(Path("s")).all()] == ["COMPLETE"] * 2


def join_and_kill_one(process: Any, left_alone: Path, storage: str) -> None:
    """Two processes with directories of their own join a study; the one that dies leaves its trial to the other."""
    shared = (*OVER, *LONGER, "--storage", storage, "--study", "shared")
    first = process(*shared, "--out", "a")
    wait_for(lambda: begun("a"), first)
    second = process(*shared, "--out", "b")
    wait_for(lambda: begun("a") and begun("b"), second)
    victim, other, left = (first, second, "b") if first.running() else (second, first, "a")
    victim.kill()
    assert other.wait() == 0, other.output()
    assert first.running() is second.running() is False
    check_against(left_alone, left, storage)


def start_together(process: Any, storage: str) -> None:
    """On a database without tables; each trial is run once."""
    shared = ("--over", "seed=1,2,3,4", "--storage", storage, "--study", "together")
    jobs = [process(*shared, "--out", name) for name in "cdef"]
    assert [job.wait() for job in jobs] == [0] * 4, [job.output() for job in jobs]
    assert [trial.state.name for trial in open_sweep(Path("c"), storage).all()] == ["COMPLETE"] * 4
    assert sorted(path.parent.name for path in Path().glob("[cdef]/trials/*/config.json")) == [
        f"000{number}" for number in range(4)
    ]


def test_processes_on_one_file(process: Any, left_alone: Path, tmp_path: Path) -> None:
    start_together(process, str(tmp_path / "together.db"))
    join_and_kill_one(process, left_alone, str(tmp_path / "shared.db"))


@pytest.fixture
def postgresql() -> Iterator[str]:
    """A server of its own on a socket in a folder of its own; PostgreSQL refuses to run as root."""
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    found = [*sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True), *map(Path, os.get_exec_path())]
    programs = next((folder for folder in found if (folder / "initdb").exists() and (folder / "pg_ctl").exists()), None)
    if programs is None:
        pytest.skip("no PostgreSQL server: no initdb in /usr/lib/postgresql/*/bin or on PATH; apt install postgresql")
    as_user: list[str] = []
    folder = Path(tempfile.mkdtemp(prefix="scornn-", dir="/tmp"))  # a socket's path may have 107 characters
    if os.geteuid() == 0:
        if shutil.which("runuser") is None or subprocess.run(["id", "postgres"], capture_output=True).returncode:
            pytest.skip("no PostgreSQL server: it does not run as root, and there is no user postgres to run it as")
        as_user = ["runuser", "-u", "postgres", "--"]
        shutil.chown(folder, "postgres")

    def run(*command: str) -> None:
        done = subprocess.run([*as_user, *command], capture_output=True, text=True, cwd="/", check=False)
        if done.returncode:
            pytest.skip(f"no PostgreSQL server: {command[0]} said {done.stderr.strip() or done.stdout.strip()}")

    try:
        run(f"{programs}/initdb", "-D", f"{folder}/data", "-A", "trust", "-U", "scornn", "--no-sync")
        options = f"-k {folder} -c listen_addresses='' -c fsync=off"
        run(f"{programs}/pg_ctl", "-D", f"{folder}/data", "-w", "-l", f"{folder}/log", "-o", options, "start")
        try:
            yield f"postgresql://scornn@/postgres?host={folder}"
        finally:
            run(f"{programs}/pg_ctl", "-D", f"{folder}/data", "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_processes_on_postgresql(process: Any, left_alone: Path, postgresql: str) -> None:
    start_together(process, postgresql)
    join_and_kill_one(process, left_alone, postgresql)
