"""Killed at any moment, traced into failing system calls, out of space: the run goes on in the same bits."""

import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scornn.errors import RunInUseError
from scornn.program.train import checkpoint, program
from scornn.program.train.config import Config, to_json
from scornn.program.train.run import Run, place

Small = Callable[..., Config]
Bits = Callable[[Path], dict[str, Any]]
QUIET = ("--quiet", "--tensorboard", "off")


@pytest.fixture
def straight(small: Small, tmp_path: Path) -> Callable[..., Path]:
    """An uninterrupted run of the same config, and its config file."""

    def make(**changes: Any) -> Path:
        config = small(**changes)
        (tmp_path / "config.json").write_text(to_json(config))
        program.start(config, tmp_path / "straight", quiet=True, tensorboard=False)
        return tmp_path / "straight"

    return make


def start(forker: Any, cwd: Path, **how: Any) -> Any:
    return forker.start(cwd, "train", "--config", "config.json", "--out", "run", *QUIET, **how)


def resume(forker: Any, cwd: Path, **how: Any) -> Any:
    """`train` where the kill came too early for a run to be there."""
    if not (cwd / "run" / "config.json").exists():
        return start(forker, cwd, **how)
    return forker.start(cwd, "resume", "run", *QUIET, **how)


def newest(run: Path) -> int:
    return max(checkpoint.steps(run / "checkpoints"), default=-1)


def kill_again_and_again(forker: Any, cwd: Path, times: int, seed: int) -> None:
    """SIGKILL `times` times, each a random moment after a new checkpoint has shown itself."""
    draw, killed = random.Random(seed), 0
    while killed < times:
        before, job = newest(cwd / "run"), resume(forker, cwd)
        while newest(cwd / "run") == before and Path(f"/proc/{job.pid}").exists():
            time.sleep(0.002)
        time.sleep(draw.uniform(0, 0.05))
        if job.kill() != -signal.SIGKILL:
            pytest.fail(f"the run ended before kill {killed + 1}: make it longer\n{job.output()}")
        killed += 1
        for step in checkpoint.steps(cwd / "run" / "checkpoints"):
            checkpoint.load(cwd / "run" / "checkpoints" / f"step-{step}")


@pytest.mark.parametrize("times", [4, pytest.param(20, marks=pytest.mark.slow)])
def test_sigkill_at_random_moments(times: int, straight: Any, forker: Any, bits: Bits, tmp_path: Path) -> None:
    expected = straight(steps=20 + 25 * times, checkpoint_every=5, eval_every=7, log_every=2)
    kill_again_and_again(forker, tmp_path, times, seed=times)
    job = resume(forker, tmp_path)
    assert job.wait() == 0, job.output()
    assert bits(tmp_path / "run") == bits(expected)


def test_sigterm_and_sigint_save_and_say_how_to_go_on(straight: Any, forker: Any, bits: Bits, tmp_path: Path) -> None:
    expected = straight(steps=400, checkpoint_every=50, eval_every=100)
    for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
        before, job = newest(tmp_path / "run"), resume(forker, tmp_path)
        while newest(tmp_path / "run") == before:
            time.sleep(0.002)
        assert job.kill(number) == code
        step = newest(tmp_path / "run")
        assert f"saved at step {step}; continue with: scornn resume run" in job.output()
    assert resume(forker, tmp_path).wait() == 0
    assert bits(tmp_path / "run") == bits(expected)


def test_the_directory_of_a_running_process_is_refused_until_it_dies(small: Small, forker: Any, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(to_json(small(steps=100_000, eval_every=100_000)))
    job = start(forker, tmp_path)
    while newest(tmp_path / "run") < 0:
        time.sleep(0.002)
    with pytest.raises(RunInUseError, match=f"run is in use by process {job.pid}"):
        Run(tmp_path / "run")
    with pytest.raises(RunInUseError, match="in use by process"):
        place(small(), tmp_path / "run")
    job.kill()
    Run(tmp_path / "run").close()


def strace(job: Any, *inject: str) -> subprocess.Popen[bytes]:
    """Attach to a job once it has stopped itself, and let it run into the injected fault."""
    while "State:\tT" not in Path(f"/proc/{job.pid}/status").read_text():
        time.sleep(0.002)
    command = ["strace", "-f", "-qq", "-o", os.devnull, "-p", str(job.pid)]
    faults = [part for fault in inject for part in (f"--trace={fault.partition(':')[0]}", f"--inject={fault}")]
    tracer = subprocess.Popen([*command, *faults], stderr=subprocess.PIPE)
    while "TracerPid:\t0" in Path(f"/proc/{job.pid}/status").read_text():
        if tracer.poll() is not None:
            os.kill(job.pid, signal.SIGKILL)
            job.wait()
            pytest.skip(f"strace cannot attach: {tracer.communicate()[1].decode()}")
        time.sleep(0.002)
    os.kill(job.pid, signal.SIGCONT)
    return tracer


needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")


@needs_strace
def test_sigkill_at_the_renames_of_a_save(straight: Any, forker: Any, bits: Bits, tmp_path: Path) -> None:
    expected = straight(checkpoint_every=2)
    # config.json is the first rename; then each save makes one for each of its files, its own, and the summary's.
    for when in (1, 5, 6, 7, 12):
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        job = start(forker, tmp_path, trace=True)
        tracer = strace(job, f"rename,renameat,renameat2:signal=KILL:when={when}")
        assert job.wait() == -signal.SIGKILL, job.output()
        tracer.communicate()
        for step in checkpoint.steps(tmp_path / "run" / "checkpoints"):
            checkpoint.load(tmp_path / "run" / "checkpoints" / f"step-{step}")
        job = resume(forker, tmp_path)
        assert job.wait() == 0, job.output()
        assert bits(tmp_path / "run") == bits(expected), when
        assert not list((tmp_path / "run").rglob("*.tmp"))


@needs_strace
@pytest.mark.parametrize("error", ["ENOSPC", "EIO"])
def test_a_full_or_failing_disk(error: str, straight: Any, forker: Any, bits: Bits, tmp_path: Path) -> None:
    expected = straight()
    for when in (1, 8, 25):
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        job = start(forker, tmp_path, trace=True)
        tracer = strace(job, f"fsync:error={error}:when={when}+")
        assert job.wait() == 6, job.output()
        tracer.communicate()
        assert job.output().startswith("scornn: cannot ")
        assert "run" in job.output()
        assert "Traceback" not in job.output()
        for step in checkpoint.steps(tmp_path / "run" / "checkpoints"):
            checkpoint.load(tmp_path / "run" / "checkpoints" / f"step-{step}")
        job = resume(forker, tmp_path)
        assert job.wait() == 0, job.output()
        assert bits(tmp_path / "run") == bits(expected), when


@pytest.mark.parametrize(("limit", "steps"), [(100, 14), (9_000, 14), (25_000, 200)], ids=["config", "save", "metrics"])
def test_a_file_that_may_not_grow(
    limit: int, steps: int, straight: Any, forker: Any, bits: Bits, tmp_path: Path
) -> None:
    """RLIMIT_FSIZE stands for a full disk, also where strace is missing."""
    expected = straight(steps=steps, log_every=1, checkpoint_every=50, eval_every=100)
    job = start(forker, tmp_path, limit=limit)
    assert job.wait() == 6, job.output()
    assert "cannot " in job.output()
    assert "Traceback" not in job.output()
    assert (newest(tmp_path / "run") > 0) is (steps > 14)
    job = resume(forker, tmp_path)
    assert job.wait() == 0, job.output()
    assert bits(tmp_path / "run") == bits(expected)
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["finished"]
