"""What the program says: where settings are from, refusals that name the option, the end of a run, help."""

from __future__ import annotations

from pathlib import Path

import pytest

from scornn.program.cli import main
from scornn.program.recipes.presets import resolve

SMALL = ["--length", "5", "--hidden", "4", "--threads", "1", "--tensorboard", "off"]
SMALL += ["--set", "task.train_size=40", "--set", "task.test_size=20"]


def test_origin_names_the_preset_and_what_differs() -> None:
    copying = {"name": "copying"}
    assert resolve({"task": copying})[1] == (
        "scoRNN n=190 on the copying problem, T=1000 (preset copying-1000-scornn-190)"
    )
    changed = {"task": {**copying, "length": 900}, "model": {"hidden": 190}, "steps": 7, "data": "/x", "name": "mine"}
    assert resolve(changed)[1] == (
        "preset copying-1000-scornn-190 (scoRNN n=190 on the copying problem, T=1000) with task.length = 900, steps = 7"
    )


def test_start_and_end_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", "copying", *SMALL, "--iterations", "2", "--out", "run"]) == 0
    first = capsys.readouterr().out
    assert "parameters, 2 steps, in run\n" in first
    assert "done: test recall " in first
    assert main(["resume", "run", "--tensorboard", "off"]) == 0
    again = capsys.readouterr().out
    assert "parameters, at step 2, in run\n" in again
    assert "going on" not in again
    assert "nothing is left to do; --iterations or --epochs give the run a later end\n" in again
    assert main(["resume", "run", "--tensorboard", "off", "--iterations", "3"]) == 0
    assert "nothing is left" not in capsys.readouterr().out


@pytest.mark.parametrize("columns", [60, 200])
def test_help_keeps_words_whole(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert main(["eval", "--help"]) == 0
    description, _, usage = capsys.readouterr().out.partition("usage:")
    assert usage
    assert max(len(line) for line in description.splitlines() if not line.startswith(" ")) <= min(columns, 100)
    assert "\n    scornn eval runs/mnist-scornn-170-s5544 --best --average\n    scornn eval" in description
