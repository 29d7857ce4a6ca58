"""The diffs of ``docs/contributing.md``, applied to a copy of the package, and what they add, run there."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import scornn
from scornn.ops.library import NAMES

COMPILER = shutil.which(os.environ.get("CXX", "g++"))
ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "contributing.md").read_text(encoding="utf-8")
DIFFS = dict(re.findall(r"^## An? (\w+)$.*?^```diff\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
USE = """
import sys
sys.meta_path = [finder for finder in sys.meta_path if "ScikitBuild" not in type(finder).__name__]
import scornn, torch
assert scornn.__file__.startswith(sys.argv[1]), scornn.__file__
from scornn.program.cli import main
from scornn.program.report.run_report import report

assert scornn.nn.build("diagonal", 3, 4)(torch.zeros(5, 2, 3))[0].shape == (5, 2, 4)
assert list(scornn.backends())[-1] == "mine" and scornn.ops.chosen("cpu", dtype=torch.float64) == "mine"
x = torch.randn(5, 2, 3)
for model, options in (("scornn", {"nonlinearity": "softsign"}), ("relu-gru", {})):
    rungs = [scornn.nn.build(model, 3, 8, backend=backend, **options) for backend in ("native", "manual", "naive")]
    gradients = []
    for layer in rungs:
        layer.load_state_dict(rungs[0].state_dict())
        trained = [p for p in layer.parameters() if p.requires_grad]
        gradients.append(torch.autograd.grad(layer(x)[0].sin().sum(), trained))
    for other in gradients[1:]:
        for a, b in zip(gradients[0], other, strict=True):
            torch.testing.assert_close(a, b)
train = ["train", "parity", "--model", "diagonal", "--iterations", "2", "--quiet", "--tensorboard", "off"]
for scale in (1, 3):
    assert main([*train, "--set", f"optimizer.scale={scale}", "--out", f"runs/{scale}"]) == 0
assert main([*train, "--set", "optimizer.scale=-1"]) == 2
assert main(["models", "--task", "parity", "--hidden", "4"]) == 0
page = report(["runs"])
assert "Are the ones among 12 bits odd in number" in page and "diagonal RNN" in page and "Parity, T = 12" in page
"""


def test_each_is_a_change_of_few_files() -> None:
    files = {name: len(set(re.findall(r"^\+\+\+ (\S+)$", diff, re.MULTILINE))) for name, diff in DIFFS.items()}
    assert files == {"model": 2, "task": 2, "backend": 2, "activation": 3, "cell": 5, "option": 2}


def build_kernel(root: Path) -> None:
    """The kernel of ``root/csrc`` beside its package, for one instruction set and without optimization."""
    library = root / "src" / "scornn" / "ops" / NAMES[0]
    flags = ["-std=gnu++17", "-O0", "-w", "-fPIC", "-shared", "-DSCORNN_ISA=portable"]
    sources = [str(root / "csrc" / name) for name in ("dispatch.cpp", "kernel.cpp")]
    subprocess.run([str(COMPILER), *flags, *sources, "-o", str(library)], check=True)
    digest = hashlib.sha256(library.read_bytes()).hexdigest()
    library.with_name(f"{library.name}.sha256").write_text(f"{digest}\n")


@pytest.mark.skipif(shutil.which("patch") is None or COMPILER is None, reason="no patch or no C++ compiler here")
def test_what_they_add_runs(tmp_path: Path) -> None:
    source = Path(scornn.__file__).parent
    shutil.copytree(source, tmp_path / "src" / "scornn", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "csrc", tmp_path / "csrc")
    for name, diff in DIFFS.items():
        command = ["patch", "-p1", "--no-backup-if-mismatch", "--fuzz=0", "--quiet"]
        done = subprocess.run(command, cwd=tmp_path, input=diff, text=True, capture_output=True, check=False)
        assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"
    build_kernel(tmp_path)
    package = tmp_path / "src"
    code = f"import sys; sys.path.insert(0, sys.argv[1]){USE}"
    done = subprocess.run(
        [sys.executable, "-c", code, str(package)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"diagonal +no unit sees another", done.stdout)
    assert "optimizer.scale = -1: expected `float` > 0.0" in done.stderr
    losses = [(tmp_path / "runs" / scale / "metrics.jsonl").read_text() for scale in ("1", "3")]
    assert losses[0] != losses[1]
