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
from scornn.cli import main
from scornn.ops import library

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "c"
COMPILER = shutil.which(os.environ.get("CC", "cc"))


@pytest.mark.skipif(COMPILER is None, reason="no C compiler")
def test_prints_the_same_numbers_as_python(tmp_path: Path) -> None:
    kernel = library.load()
    if isinstance(kernel, str):
        pytest.skip(kernel)
    run, program, weights = tmp_path / "run", tmp_path / "stream", tmp_path / "weights.bin"
    small = ["--set", "task.train_size=8", "--set", "task.test_size=4", "--tensorboard", "off", "--quiet"]
    train = ["train", "adding", "--hidden", "17", "--length", "9", "--iterations", "2", "--threads", "1"]
    assert main([*train, "--out", str(run), *small]) == 0
    subprocess.run([sys.executable, str(EXAMPLE / "weights.py"), str(run), str(weights)], check=True)
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'csrc'}"]
    link = [str(kernel.path), f"-Wl,-rpath,{kernel.path.parent}"]
    subprocess.run([str(COMPILER), *flags, str(EXAMPLE / "stream.c"), *link, "-o", str(program)], check=True)
    x = torch.rand(12, 1, 2)
    frames = "\n".join(" ".join(f"{value:.9g}" for value in frame.flatten().tolist()) for frame in x)
    said = subprocess.run([str(program), str(weights)], input=frames, capture_output=True, text=True, check=True).stdout
    network = scornn.load(run)
    with torch.no_grad():
        expected = network.head(network.layer(x)[0]).flatten().numpy()
    assert np.abs(np.loadtxt(said.splitlines()) - expected).max() <= 1e-6
