"""Sweeps of milliseconds, and `scornn sweep` in processes of their own."""

import json
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from scornn.program.cli import main

TINY = [
    *("--length", "5", "--hidden", "4", "--threads", "1", "--iterations", "12"),
    *("--set", "task.train_size=40", "--set", "task.test_size=20", "--checkpoint-every", "2"),
]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def sweep() -> Callable[..., int]:
    """`scornn sweep copying` of a tiny problem, in this process."""

    def run(*arguments: str) -> int:
        return main(["sweep", "copying", *TINY, *arguments])

    return run


_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["torch", "optuna", "scornn.program.cli.sweep", "scornn.program.sweep.program"])
"""Imported once for all processes of these tests."""
_SWEEP = """
import os, sys
from scornn.program.cli import main
os.setsid()
os.chdir(folder)
for stream in (1, 2):
    os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), stream)
sys.exit(main(["sweep", *arguments]))
"""


class Process:
    """A `scornn sweep` with all its children, in a session of its own."""

    def __init__(self, arguments: list[str], output: Path) -> None:
        self._output = output
        names = {"arguments": arguments, "output": str(output), "folder": os.getcwd()}
        self._process = _FORKS.Process(target=exec, args=(_SWEEP, names))
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def running(self) -> bool:
        return self._process.is_alive()

    def kill(self) -> None:
        """SIGKILL to the whole tree."""
        os.killpg(self.pid, signal.SIGKILL)
        self._process.join()

    def wait(self) -> int | None:
        self._process.join(240)
        return self._process.exitcode

    def output(self) -> str:
        return self._output.read_text() if self._output.exists() else ""


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    made: list[Process] = []

    def run(*arguments: str, task: str = "copying") -> Process:
        own = [task, *TINY, *arguments] if task else list(arguments)
        made.append(Process(own, tmp_path / f"output-{len(made)}.txt"))
        return made[-1]

    yield run
    for process in made:
        if process.running():
            process.kill()


def runs(directory: Path) -> dict[str, dict[str, Any]]:
    """The summaries of a sweep's run directories."""
    return {path.parent.name: json.loads(path.read_text()) for path in sorted(directory.glob("trials/*/summary.json"))}


@pytest.fixture(name="runs")
def runs_fixture() -> Callable[[Path], dict[str, dict[str, Any]]]:
    return runs
