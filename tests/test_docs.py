"""Every example and every command of the README and the pages is run, in the order of the page.

A `python` block runs as it stands, the blocks of one page sharing their names. Of an `sh` block every `scornn` command
runs, in one folder for each page; training is cut to two steps and the benchmark to its smallest shape, so that what
is tested is that the command works as it is written. `make` must name a target; `pip` and `git` are CI's business.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("**/*.md"))]
PAGES = [page for page in PAGES if "_build" not in page.parts]
FENCE = re.compile(r"^```(python|sh)\n(.*?)^```", re.MULTILINE | re.DOTALL)
SMALL_DATA = ["--set", "task.train_size=100", "--set", "task.test_size=20"]


def blocks(page: Path, language: str) -> list[str]:
    return [text for kind, text in FENCE.findall(page.read_text(encoding="utf-8")) if kind == language]


def with_blocks(language: str) -> list[Path]:
    return [page for page in PAGES if blocks(page, language)]


def commands(page: Path) -> list[str]:
    text = "\n".join(blocks(page, "sh")).replace("\\\n", " ")
    return [line.split("  #")[0].split(" # ")[0].strip() for line in text.splitlines() if line.strip()]


def shortened(arguments: list[str]) -> list[str]:
    """The arguments of a ``scornn`` command, with less to do."""
    if arguments[0] == "train":
        length = [i for i, argument in enumerate(arguments) if argument in ("--iterations", "--epochs", "--until")]
        kept = [argument for i, argument in enumerate(arguments) if i not in length and i - 1 not in length]
        return [*kept, "--iterations", "2", *(SMALL_DATA if arguments[1] in ("copying", "adding") else [])]
    return arguments + {"bench": ["--shape", "small"], "reproduce": ["--scale", "smoke"]}.get(arguments[0], [])


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", with_blocks("python"), ids=name)
def test_examples(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(page, "python"):
        exec(compile(block, name(page), "exec"), namespace)


@pytest.mark.parametrize("page", with_blocks("sh"), ids=name)
def test_commands(page: Path, tmp_path: Path) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    data = os.environ.get("SCORNN_SHARED_DATA", str(ROOT.parent / "shared" / "data"))
    environment = os.environ | {"SCORNN_DATA": data, "OMP_NUM_THREADS": "1", "SCORNN_CACHE": str(tmp_path / "cache")}
    for command in commands(page):
        program, *arguments = shlex.split(command)
        if program == "make":
            assert set(arguments) <= targets, command
        elif program == "scornn":
            if arguments[0] in ("train",) and "mnist" in arguments[1] and not Path(data).is_dir():
                continue
            done = subprocess.run(
                [sys.executable, "-m", "scornn", *shortened(arguments)],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        else:
            assert program in ("pip", "git", "cd", "torchrun", "python"), command
