"""Every example and every command of the README and the pages is run, in the order of the page.

All blocks of a page run in one folder. A `python` block runs as it stands, sharing its names with those before it. Of
an `sh` block every `scornn` command runs, and `torchrun` with it; training is cut to two steps and the benchmark to its
smallest shape, so that what is tested is that the command works as it is written. `make` must name a target; `pip`
and `git` are CI's business.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from scornn.program.cli import main
from scornn.program.paper.items import chosen
from scornn.program.recipes.presets import presets

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("**/*.md"))]
FENCE = re.compile(r"^```(python|sh)\n(.*?)^```", re.MULTILINE | re.DOTALL)
DATA = os.environ.get("SCORNN_SHARED_DATA", str(ROOT.parent / "shared" / "data"))
SMALL_DATA = ["--set", "task.train_size=100", "--set", "task.test_size=20"]
SMALL_TASKS = ("copying", "adding", "mnist", "pmnist")
ENDS = ("--iterations", "--epochs", "--until")


def blocks(page: Path) -> list[tuple[str, str]]:
    return FENCE.findall(page.read_text(encoding="utf-8"))


PAGES = [page for page in PAGES if "_build" not in page.parts and blocks(page)]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def commands(block: str) -> list[str]:
    lines = block.replace("\\\n", " ").splitlines()
    return [line.split("  #")[0].split(" # ")[0].strip() for line in lines if line.strip()]


def without(arguments: list[str], *options: str) -> list[str]:
    """The arguments less these options and their values."""
    found = [i for i, argument in enumerate(arguments) if argument in options]
    return [argument for i, argument in enumerate(arguments) if i not in found and i - 1 not in found]


def shortened(arguments: list[str]) -> list[str]:
    """The arguments of a ``scornn`` command, with less to do."""
    command, *rest = arguments
    if command == "train":
        small = SMALL_DATA if rest[0] in SMALL_TASKS else []
        return [*without(arguments, *ENDS, "--threads"), "--iterations", "2", "--threads", "1", *small]
    if command == "resume" and set(ENDS) & set(rest):
        return [*without(arguments, *ENDS), "--iterations", "3"]
    if command == "bench":
        return [*without(arguments, "--shape"), "--shape", "small"]
    if command == "reproduce" and rest[0] not in ("record", "page"):
        row = [] if "--only" in rest else [word for name in chosen(rest[0])[0].presets[:1] for word in ("--only", name)]
        return [*without(arguments, "--scale", "--iterations"), "--scale", "smoke", *row]
    return arguments


def run(command: str) -> None:
    program, *arguments = shlex.split(command)
    if program == "make":
        targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
        assert set(arguments) <= targets, command
    elif program == "scornn":
        if not any("mnist" in argument for argument in arguments[:2]) or Path(DATA).is_dir():
            assert main(shortened(arguments)) == 0, command
    elif program == "torchrun":
        first = arguments.index("scornn") + 1
        launch = [sys.executable, "-m", "torch.distributed.run", *arguments[:first], *shortened(arguments[first:])]
        done = subprocess.run(launch, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    else:
        assert program in ("pip", "git", "cd", "python", "python3"), command


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_page(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCORNN_DATA", DATA)
    monkeypatch.setenv("SCORNN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("scornn.program.train.watch.WATCHERS", {})
    (tmp_path / "mine").mkdir()  # arrays for pages that do not make any themselves
    for split in ("train", "test"):
        np.save(tmp_path / "mine" / f"{split}_x.npy", np.linspace(-1, 1, 120).reshape(12, 10))
        np.save(tmp_path / "mine" / f"{split}_y.npy", np.arange(12) % 3)
    namespace: dict[str, object] = {"__name__": "__main__"}
    for language, block in blocks(page):
        if language == "python":
            exec(compile(block, name(page), "exec"), namespace)
        else:
            for command in commands(block):
                run(command)


def test_every_preset_beyond_the_paper_is_named() -> None:
    page = (ROOT / "docs" / "reproduce.md").read_text(encoding="utf-8")
    assert [preset.name for preset in presets().values() if preset.beyond and f"`{preset.name}`" not in page] == []


def test_no_line_installs_scornn_from_a_registry() -> None:
    """It is on none: a clone or a wheel is installed, and pip finds the extras of what is installed."""
    for path in [*PAGES, *(ROOT / "src").rglob("*.py")]:
        assert not re.search(r"pip install .*\bscornn\b(?!\[)", path.read_text(encoding="utf-8")), name(path)


@pytest.mark.parametrize("page", ["README.md", "docs/quickstart.md"])
def test_the_torch_to_install_is_the_one_that_was_tested(page: str) -> None:
    tested = re.findall(r"^torch==.*", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert re.findall(r"torch==[\d.]+\d", (ROOT / page).read_text(encoding="utf-8")) == tested
