"""What a user, a terminal or a scheduler can do to the program, and what it says then."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from scornn.program.cli import main
from scornn.program.train.loop import Trainer
from scornn.program.train.signals import StopRequest

TINY = ["--hidden", "4", "--length", "5", "--threads", "1", "--iterations", "3", "--tensorboard", "off"]
TINY += ["--set", "task.train_size=40", "--set", "task.test_size=20"]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_paths_in_commands_are_quoted(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "copying", *TINY, "--out", "my runs/a"]) == 0
    assert "see: scornn report 'my runs/a'" in capsys.readouterr().out
    assert main(["train", "copying", *TINY, "--out", "my runs/a"]) == 2
    assert "`scornn eval 'my runs/a'`" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM])
def test_a_signal_is_a_wish(
    number: signal.Signals, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    step = Trainer._step

    def stepping(self: Trainer, stop: bool) -> bool:
        signal.raise_signal(number)
        return step(self, stop)

    monkeypatch.setattr(Trainer, "_step", stepping)
    before = signal.signal(number, signal.SIG_DFL)  # a background job may have been told to ignore it
    try:
        assert main(["train", "copying", *TINY, "--out", "run", "--quiet"]) == 128 + number
    finally:
        signal.signal(number, before)
    assert f"{number.name}: saved at step 1; continue with: scornn resume run" in capsys.readouterr().err


def test_nohup_is_respected() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopRequest() as stop:
            signal.raise_signal(signal.SIGHUP)
            assert not stop
    finally:
        signal.signal(signal.SIGHUP, before)


def test_json_of_a_diverged_run_is_json(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["train", "copying", *TINY, "--out", "run", "--quiet"]) == 0
    monkeypatch.setattr("scornn.program.train.engine.Engine.evaluate", lambda self, split: {"loss": float("nan")})
    assert main(["eval", "run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["splits"] == {"test": {"loss": None}}


def test_a_short_run_is_evaluated_ten_times() -> None:
    short = [word if word != "3" else "25" for word in TINY]
    assert main(["train", "copying", *short, "--out", "run", "--quiet"]) == 0
    lines = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    steps = [line["step"] for line in lines if line["split"] == "test" and "weights" not in line]
    assert steps == [*range(2, 25, 2), 25]
    assert main(["train", "copying", *TINY, "--eval-every", "3", "--out", "given", "--quiet"]) == 0
    assert json.loads(Path("given/config.json").read_text())["eval_every"] == 3


CHILD = """
import sys
from scornn.program.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("stdout", ["closed", "full", "latin-1"])
def test_standard_output_never_costs_a_run(stdout: str) -> None:
    command = [sys.executable, "-c", CHILD, "train", "copying", *TINY, "--out", "run"]
    environment = {**os.environ, **({"PYTHONIOENCODING": "latin-1"} if stdout == "latin-1" else {})}
    shell = {"closed": 'exec "$@" >&-', "full": 'exec "$@" >/dev/full', "latin-1": 'exec "$@" >out.txt'}[stdout]
    done = subprocess.run(
        ["sh", "-c", shell, "sh", *command], env=environment, stderr=subprocess.PIPE, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(Path("run/summary.json").read_text())["finished"]


def test_an_interrupt_during_imports_is_quiet() -> None:
    code = "import sys, builtins\nold = builtins.__import__\n"
    code += "def hit(name, *a, **k):\n    if name == 'torch': raise KeyboardInterrupt\n    return old(name, *a, **k)\n"
    code += "builtins.__import__ = hit\nfrom scornn.program.cli import main\nsys.exit(main(['train', 'copying']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "")


def test_a_page_replaces_pages_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "copying", *TINY, "--out", "run", "--quiet"]) == 0
    before = Path("run/metrics.jsonl").read_bytes()
    assert main(["report", "run", "--out", "run/metrics.jsonl"]) == 2
    assert "run/metrics.jsonl is there already and is not called .html" in capsys.readouterr().err
    assert Path("run/metrics.jsonl").read_bytes() == before
