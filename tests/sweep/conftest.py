"""Sweeps of milliseconds, and `scornn sweep` in processes of their own."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from scornn.cli import main

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


@pytest.fixture
def sweep() -> Callable[..., int]:
    """`scornn sweep copying` of a tiny problem, in this process."""

    def run(*arguments: str) -> int:
        return main(["sweep", "copying", *TINY, *arguments])

    return run


class Process:
    """A `scornn sweep` with all its children, in a session of its own."""

    def __init__(self, arguments: list[str], output: Path) -> None:
        self._output = output
        with open(output, "wb") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "scornn", "sweep", *arguments], stdout=file, stderr=file, start_new_session=True
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def running(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """SIGKILL to the whole tree."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def wait(self) -> int:
        return self._process.wait(240)

    def output(self) -> str:
        return self._output.read_text()


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
