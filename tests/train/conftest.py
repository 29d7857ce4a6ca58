"""Small runs, commands in processes of their own, and comparison of runs bit by bit."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from scornn.nn.catalogue import MODELS
from scornn.program import plugins
from scornn.program.tasks import TASKS
from scornn.program.train.config import Config, build
from scornn.program.train.tables import assign, merge

SMALL: dict[str, Any] = {
    "task": {"name": "copying", "length": 10, "train_size": 80, "test_size": 40, "batch": 20},
    # Dropout between two layers draws from the global generator at every step.
    "model": {"name": "scornn", "hidden": 6, "options": {"rho": "n/2", "num_layers": 2, "dropout": 0.3}},
    "optimizer": {
        "rest": {"kind": "adam", "lr": 1e-2},
        "recurrent": {"kind": "rmsprop", "flavour": "tf1", "lr": 1e-3},
        "average": {"decay": 0.9},
    },
    "steps": 14,
    "eval_every": 4,
    "log_every": 3,
    "checkpoint_every": 5,
    "threads": 1,
}


@pytest.fixture
def new_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """A folder and a cache of its own, and no plugin after the test; called, it forgets the plugins so far."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCORNN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "path", [*sys.path])  # a plugin adds its folder
    before: list[tuple[dict[str, Any], dict[str, Any]]] = [(TASKS, dict(TASKS)), (MODELS, dict(MODELS))]

    def forget() -> None:
        for registry, entries in before:
            registry.clear()
            registry.update(entries)
        plugins._digests.clear()
        for name in [name for name in sys.modules if name.startswith("scornn_plugin_")]:
            del sys.modules[name]

    yield forget
    forget()


@pytest.fixture(autouse=True)
def _same_threads_after() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def small() -> Callable[..., Config]:
    """A config of a run of milliseconds; keyword arguments with __ for dots change it."""

    def make(**changes: Any) -> Config:
        table = merge(SMALL, {})
        for key, value in changes.items():
            assign(table, key.replace("__", "."), value)
        return build(table)

    return make


def bits(path: Path) -> dict[str, Any]:
    """All that a run has to show, floats in hexadecimal and tensors as integers, without times and versions."""

    passing = ("seconds", "elapsed", "versions", "code")

    def exact(value: Any) -> Any:
        if isinstance(value, float):
            return value.hex()
        if isinstance(value, dict):
            return {key: exact(item) for key, item in value.items() if not key.startswith(passing)}
        return [exact(v) for v in value] if isinstance(value, list) else value

    lines = [exact(json.loads(line)) for line in (path / "metrics.jsonl").read_text().splitlines()]
    summary = exact(json.loads((path / "summary.json").read_text()))
    newest = max((path / "checkpoints").iterdir(), key=lambda entry: int(entry.name.removeprefix("step-")))
    state = exact(json.loads((newest / "state.json").read_text()))
    state.pop("metrics_bytes")  # the times have as many digits as they like
    tensors = {
        f"{file}/{name}": (tuple(tensor.shape), tensor.contiguous().view(torch.uint8).flatten().tolist())
        for file in ("model", "training")
        for name, tensor in safetensors.torch.load_file(newest / f"{file}.safetensors").items()
        for tensor in (tensor.reshape(1) if tensor.dim() == 0 else tensor,)
    }
    return {"lines": lines, "summary": summary, "state": state, "tensors": tensors}


@pytest.fixture(name="bits")
def bits_fixture() -> Callable[[Path], dict[str, Any]]:
    return bits


class Job:
    """A command in a process of its own."""

    def __init__(self, server: "Forker", output: Path) -> None:
        self._server, self._output = server, output
        self.pid = int(server.answer())
        self._code: int | None = None

    def wait(self) -> int:
        if self._code is None:
            self._code = int(self._server.answer())
        return self._code

    def kill(self, number: int = signal.SIGKILL) -> int:
        if self._code is None:
            os.kill(self.pid, number)
        return self.wait()

    def output(self) -> str:
        return self._output.read_text()


class Forker:
    """Starts jobs, one at a time."""

    def __init__(self) -> None:
        script = Path(__file__).with_name("forker.py")
        self._process = subprocess.Popen(
            [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.answer() == "ready"

    @property
    def pid(self) -> int:
        return self._process.pid

    def answer(self) -> str:
        assert self._process.stdout
        return self._process.stdout.readline().strip()

    def start(
        self, cwd: Path, *argv: str, limit: int | None = None, trace: bool = False, output: str | None = None
    ) -> Job:
        assert self._process.stdin
        output = output or str(cwd / "output.txt")
        job = {"argv": argv, "cwd": str(cwd), "output": output, "limit": limit, "trace": trace}
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        return Job(self, Path(output))

    def close(self) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


@pytest.fixture(scope="session")
def forker() -> Iterator[Forker]:
    server = Forker()
    yield server
    server.close()
