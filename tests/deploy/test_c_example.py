"""The example in C: built with the machine's compiler, it prints the numbers of Python."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import scornn
from scornn.ops import library
from scornn.program.cli import main

ROOT = Path(__file__).resolve().parents[2]
COMPILER = shutil.which(os.environ.get("CC", "cc"))

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C compiler")


def test_prints_the_same_numbers_as_python(tmp_path: Path) -> None:
    kernel = library.load()
    if isinstance(kernel, str):
        pytest.skip(kernel)
    small = ["--set", "task.train_size=8", "--set", "task.test_size=4", "--tensorboard", "off", "--quiet"]
    train = ["train", "adding", "--hidden", "17", "--length", "9", "--iterations", "2", "--threads", "1"]
    assert main([*train, "--out", str(tmp_path / "runs" / "first"), *small]) == 0
    for folder in ("csrc", "examples"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    *build, run = commands()
    shell = ["sh", "-e", "-c"]
    found = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    subprocess.run([*shell, "\n".join(build)], cwd=tmp_path, env=found, check=True)
    x = torch.rand(12, 1, 2)
    frames = "\n".join(" ".join(f"{value:.9g}" for value in frame.flatten().tolist()) for frame in x)
    program = [str(tmp_path / "stream"), str(tmp_path / "weights.bin")]
    said = subprocess.run(program, input=frames, capture_output=True, text=True, check=True).stdout
    network = scornn.load(tmp_path / "runs" / "first")
    with torch.no_grad():
        expected = network.head(network.layer(x)[0]).flatten().numpy()
    assert np.abs(np.loadtxt(said.splitlines()) - expected).max() <= 1e-6
    said = subprocess.run([*shell, run], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert len(said.splitlines()) == 2


def test_it_compiles_without_a_warning(tmp_path: Path) -> None:
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'csrc'}", "-c", "-o", str(tmp_path / "a.o")]
    subprocess.run([str(COMPILER), *flags, str(ROOT / "examples" / "c" / "stream.c")], check=True)


def commands() -> list[str]:
    """The page's own commands."""
    page = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
    return page.partition("```text\n")[2].partition("```")[0].splitlines()
