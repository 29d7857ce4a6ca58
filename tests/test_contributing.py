"""The four diffs of ``docs/contributing.md``, applied to a copy of the package, and what they add, run there."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import scornn

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
train = ["train", "parity", "--model", "diagonal", "--iterations", "2", "--quiet", "--tensorboard", "off"]
for scale in (1, 3):
    assert main([*train, "--set", f"optimizer.scale={scale}", "--out", f"runs/{scale}"]) == 0
assert main([*train, "--set", "optimizer.scale=-1"]) == 2
assert main(["models", "--task", "parity", "--hidden", "4"]) == 0
page = report(["runs"])
assert "Are the ones among 12 bits odd in number" in page and "diagonal RNN" in page and "Parity, T = 12" in page
"""


def test_each_is_a_change_of_two_files() -> None:
    assert list(DIFFS) == ["model", "task", "backend", "option"]
    for name, diff in DIFFS.items():
        assert len(set(re.findall(r"^\+\+\+ (\S+)$", diff, re.MULTILINE))) == 2, name


@pytest.mark.skipif(shutil.which("patch") is None, reason="no patch here")
def test_what_they_add_runs(tmp_path: Path) -> None:
    source = Path(scornn.__file__).parent
    shutil.copytree(source, tmp_path / "src" / "scornn", ignore=shutil.ignore_patterns("__pycache__"))
    for name, diff in DIFFS.items():
        command = ["patch", "-p1", "--no-backup-if-mismatch", "--fuzz=0", "--quiet"]
        done = subprocess.run(command, cwd=tmp_path, input=diff, text=True, capture_output=True, check=False)
        assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"
    package = tmp_path / "src"
    code = f"import sys; sys.path.insert(0, sys.argv[1]){USE}"
    done = subprocess.run(
        [sys.executable, "-c", code, str(package)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"diagonal +no unit sees another", done.stdout)
    assert "optimizer.scale = -1: expected a finite number" in done.stderr
    losses = [(tmp_path / "runs" / scale / "metrics.jsonl").read_text() for scale in ("1", "3")]
    assert losses[0] != losses[1]
