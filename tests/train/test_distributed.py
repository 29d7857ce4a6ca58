"""Two processes under torchrun: one's numbers to rounding, one death ends all, a restart goes on in the same bits."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
import safetensors.torch
import torch

from scornn.nn.catalogue import MODELS
from scornn.program.cli import main
from scornn.program.train import checkpoint, program, state
from scornn.program.train.config import Config, to_json

Small = Callable[..., Config]


@pytest.mark.parametrize("address", [{}, {"MASTER_ADDR": "127.0.0.1"}], ids=["no address", "no peer"])
def test_a_job_whose_peers_do_not_come_says_so(
    address: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    if address:
        address = {**address, "MASTER_PORT": port}
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", **address}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("scornn.program.train.distributed._JOINING", timedelta(seconds=1))
    monkeypatch.setattr("scornn.program.train.distributed._PATIENCE", 0.1)
    assert main(["train", "copying", "--iterations", "1", "--out", "run"]) == 2
    said = capsys.readouterr().err
    if address:
        assert f"waiting for 1 other process at 127.0.0.1:{port}" in said
        assert "did not come within 0:00:01" in said
    assert "torchrun" in said
    assert "Traceback" not in said
    assert not Path("run").exists()


# Of 50 training samples the third batch holds 10; 7 test samples make two batches, one for each process. tanh, since a
# modReLU unit at its threshold makes another number of a difference in rounding.
CHANGES: dict[str, Any] = {
    "task": {"name": "copying", "length": 10, "train_size": 50, "test_size": 7, "batch": 20, "eval_batch": 4},
    "model__options": {"rho": "n/2", "nonlinearity": "tanh"},
    "optimizer__clip_norm": 0.5,
    "checkpoint_every": 10,
    "eval_every": 50,
}


class Torchrun:
    """A job of two processes, in a session of its own."""

    def __init__(self, cwd: Path, config: Config, out: str, *options: str) -> None:
        (cwd / "config.json").write_text(to_json(config))
        self.run = cwd / out
        self.log = cwd / f"{out}.log"
        # scornn from here, for a child that starts elsewhere; no thread pools beside the two processes.
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *options]
        command += ["-m", "scornn", "train", "--config", "config.json", "--out", out, "--tensorboard", "off"]
        with self.log.open("wb") as log:
            self.process = psutil.Popen(
                command, cwd=cwd, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )

    def workers(self) -> list[psutil.Process]:
        return [child for child in self.process.children() if "train" in child.cmdline()]

    def wait_for_checkpoint(self) -> None:
        while not checkpoint.steps(self.run / "checkpoints"):
            assert self.process.poll() is None, self.log.read_text()
            time.sleep(0.01)

    def wait(self) -> int:
        return int(self.process.wait(timeout=120))


@pytest.fixture(scope="module")
def torchrun(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Torchrun]]:
    jobs: list[Torchrun] = []

    def start(*args: Any) -> Torchrun:
        jobs.append(Torchrun(folder, *args))
        return jobs[-1]

    folder = tmp_path_factory.mktemp("torchrun")
    yield start
    for job in jobs:
        if job.process.poll() is None:
            os.killpg(job.process.pid, signal.SIGKILL)
            job.process.wait()


@pytest.fixture(scope="module")
def straight(torchrun: Any, small: Small) -> Path:
    """A run of two processes that nobody disturbed."""
    job = torchrun(small(**CHANGES, steps=200), "straight")
    assert job.wait() == 0, job.log.read_text()
    return job.run


def weights(run: Path) -> dict[str, torch.Tensor]:
    newest = checkpoint.steps(run / "checkpoints")[-1]
    return safetensors.torch.load_file(run / "checkpoints" / f"step-{newest}" / "model.safetensors")


def losses(run: Path) -> list[tuple[str, int, float]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [(line["split"], line["step"], line["loss"]) for line in lines]


def test_two_processes_do_what_one_does(straight: Path, small: Small, tmp_path: Path) -> None:
    program.start(small(**CHANGES, steps=200), tmp_path / "one", quiet=True, tensorboard=False)
    one, two = weights(tmp_path / "one"), weights(straight)
    assert one.keys() == two.keys()
    for name in one:
        torch.testing.assert_close(two[name], one[name], rtol=1e-3, atol=1e-5)
    assert [key[:2] for key in losses(straight)] == [key[:2] for key in losses(tmp_path / "one")]
    assert [key[2] for key in losses(straight)] == pytest.approx([key[2] for key in losses(tmp_path / "one")], rel=1e-4)


def test_a_killed_process_ends_the_job_and_a_restart_goes_on(
    straight: Path, torchrun: Any, small: Small, bits: Any
) -> None:
    mortal = torchrun(small(**CHANGES, steps=200), "run")
    mortal.wait_for_checkpoint()
    workers = mortal.workers()
    workers[1].kill()
    assert mortal.wait() != 0
    assert psutil.wait_procs(workers, timeout=60)[1] == []
    assert not json.loads((mortal.run / "summary.json").read_text())["finished"]

    restarted = torchrun(small(**CHANGES, steps=200), "run", "--max-restarts", "1")
    while len(workers := restarted.workers()) < 2 or "test recall" not in restarted.log.read_text():
        assert restarted.process.poll() is None, restarted.log.read_text()
        time.sleep(0.01)
    workers[0].kill()
    assert restarted.wait() == 0, restarted.log.read_text()
    assert bits(restarted.run) == bits(straight)


def test_a_dead_launcher_leaves_no_orphans(torchrun: Any, small: Small) -> None:
    job = torchrun(small(**CHANGES, steps=1_000_000), "endless")
    job.wait_for_checkpoint()
    workers = job.workers()
    job.process.kill()
    assert psutil.wait_procs(workers, timeout=60)[1] == []


@pytest.fixture(scope="module")
def cases() -> dict[str, list[str]]:
    """What is wrong with each case of two processes, all of them in one go."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    together = {"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
    script = str(Path(__file__).with_name("two_processes.py"))
    pair = [
        subprocess.Popen(
            [sys.executable, script],
            env={**os.environ, **together, "RANK": rank},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in "01"
    ]
    (said, error), _ = (process.communicate(timeout=300) for process in pair)
    found: dict[str, list[str]] = json.loads(said) if said else {"": [error]}
    return found


OTHERS = ["sgd", "adam", "adamw", "stiefel", "stiefel-rms", "penalty", "average", "dropout", "norm"]
OTHERS += ["lstm with dropout"]


@pytest.mark.parametrize("name", [*MODELS, *OTHERS])
def test_every_model_and_rule_with_uneven_and_empty_shares(name: str, cases: dict[str, list[str]]) -> None:
    assert cases.get(name, cases.get("", ["not run"])) == []


def test_the_tenth_gpu_comes_after_the_second() -> None:
    states = {f"random/cuda{i}": torch.tensor([i]) for i in (10, 2, 0, 1)}
    assert [int(found) for found in state.cuda_states(states)] == [0, 1, 2, 10]
