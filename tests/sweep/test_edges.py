"""What can be done to a sweep, and what it says then. A refusal and a report change nothing."""

from __future__ import annotations

import shutil
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from scornn.program.cli import main
from scornn.program.sweep import record
from scornn.program.sweep.program import open_sweep
from scornn.program.train.loop import Trainer

TINY = ["--length", "5", "--hidden", "4", "--threads", "1", "--iterations", "2", "--quiet"]
TINY += ["--set", "task.train_size=40", "--set", "task.test_size=20"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("made") / "s"
    assert main(["sweep", "copying", *TINY, "--over", "seed=1,2", "--out", str(path)]) == 0
    return path


@pytest.fixture
def copy(made: Path) -> Path:
    shutil.copytree(made, "s")
    return Path("s")


def contents(path: Path) -> dict[str, bytes]:
    return {str(f): f.read_bytes() for f in sorted(path.rglob("*")) if f.is_file() and not f.name.endswith("lock")}


def _overwrite(path: Path) -> None:
    path.write_bytes(b"x" * 100)


DAMAGE: dict[str, tuple[Callable[[Path], None], int, str]] = {
    "no plan": (lambda s: (s / "sweep.json").unlink(), 2, "s is not a sweep: it has no sweep.json"),
    "no database": (lambda s: _overwrite(s / "sweep.db"), 2, "sweep.db: it holds no study"),
}


@pytest.mark.parametrize("command", ["resume", "report"])
@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_named_and_nothing_changes(
    name: str, command: str, copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil, code, said = DAMAGE[name]
    spoil(copy)
    before = contents(copy)
    assert main(["sweep", command, "s"]) == code
    assert said in capsys.readouterr().err
    assert contents(copy) == before
    assert not Path("sweep.html").exists()


def test_a_report_writes_its_page_alone(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = contents(copy)
    assert main(["sweep", "report", "s"]) == 0
    assert contents(copy) == before
    (copy / "sweep.db").unlink()
    before = contents(copy)
    assert main(["sweep", "report", "s", "--out", "other.html"]) == 6
    assert "s/sweep.db: no such file" in capsys.readouterr().err
    assert contents(copy) == before
    assert not Path("other.html").exists()
    assert main(["sweep", "resume", "s", "--quiet"]) == 0  # from the run directories
    assert main(["sweep", "report", "s", "--out", "other.html"]) == 0


@pytest.mark.parametrize("file", ["best.json", "trials/0001/config.json"])
def test_a_whole_config_is_varied_like_any_settings(file: str, copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also without the threads that it names, for a sweep divides them among its jobs."""
    over = ["--over", "optimizer.rest.lr=1e-3,1e-2", "--over", "steps=1,2"]
    for _ in range(2):
        assert main(["sweep", "--config", str(copy / file), *over, "--out", "t", "--quiet"]) == 0, (
            capsys.readouterr().err
        )
    assert main(["sweep", "resume", "t", "--quiet"]) == 0
    assert main(["sweep", "report", "t", "--out", "t.json"]) == 0
    assert main(["sweep", "report", "t.json", "--out", "t.html"]) == 0
    assert [trial.steps for trial in record.read(Path("t.json")).trials] == [1, 2, 1, 2]
    assert main(["sweep", "--config", "t/best.json", "--over", "seed=1,2", "--out", "u", "--quiet"]) == 0


def test_a_refused_run_beside_a_sweep_leaves_the_record_as_it_was(
    copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", "record", str(copy), "nowhere", "--out", "results"]) == 3
    assert "nowhere: expected a run directory" in capsys.readouterr().err
    assert not Path("results").exists()
    assert main(["reproduce", "record", str(copy), "--out", "results"]) == 0
    assert capsys.readouterr().out == "results/sweeps/s.json\n"
    assert "[s](sweeps/s.json)" in Path("results/README.md").read_text()


def test_a_stop_is_told_on_standard_error_with_a_command_that_can_be_pasted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    step = Trainer._step

    def stepping(self: Trainer, stop: bool) -> bool:
        signal.raise_signal(signal.SIGTERM)
        return step(self, stop)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_step", stepping)
        assert main(["sweep", "copying", *TINY, "--over", "seed=1,2", "--out", "my sweeps/a"]) == 143
    assert "SIGTERM: saved; continue with: scornn sweep resume 'my sweeps/a'" in capsys.readouterr().err
    (begun,) = record.of(open_sweep(Path("my sweeps/a"))).trials
    assert (begun.number, begun.state, begun.outcome, begun.values) == (0, "running", "interrupted", {"seed": 1})
    assert main(["sweep", "resume", "my sweeps/a"]) == 0
    said = capsys.readouterr().out
    assert "see: scornn sweep report 'my sweeps/a' --out sweep.html" in said
    assert "use: scornn train --config 'my sweeps/a/best.json'" in said


def test_a_storage_that_goes_away_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    step = Trainer._step

    def stepping(self: Trainer, stop: bool) -> bool:
        with closing(sqlite3.connect("s/sweep.db")) as database:
            database.execute("drop table if exists trial_user_attributes")
        return step(self, stop)

    monkeypatch.setattr(Trainer, "_step", stepping)
    assert main(["sweep", "copying", *TINY, "--over", "seed=1,2", "--out", "s"]) == 6
    assert "scornn: lost the storage sweep.db: " in capsys.readouterr().err
