"""What a terminal gets: colour unless NO_COLOR, and a sign of life while PyTorch is loaded."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

COLOUR = re.compile(r"\x1b\[[0-9;]*[1-9][0-9;]*m")
SMALL = ["copying", "--length", "3", "--hidden", "4", "--iterations", "2", "--threads", "1"]
SMALL += ["--set", "task.train_size=40", "--set", "task.test_size=20"]


def in_a_terminal(*arguments: str, **environment: str) -> str:
    """What a terminal would show of a command, both streams."""
    ours, theirs = pty.openpty()
    program = [sys.executable, "-m", "scornn", *arguments]
    plain = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "COLUMNS")}
    whole = {**plain, "TERM": "xterm-256color", **environment}
    with subprocess.Popen(program, stdin=theirs, stdout=theirs, stderr=theirs, env=whole) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                more = os.read(ours, 4096)
            except OSError:  # the other end is closed
                break
            if not more:
                break
            shown += more
    os.close(ours)
    assert process.returncode in (0, 2), shown
    return shown.decode()


@pytest.mark.parametrize("arguments", [["data", "--help"], ["data", "--nodata", "x"]])
def test_no_color_is_heard_by_help_and_refusals(arguments: list[str]) -> None:
    assert COLOUR.search(in_a_terminal(*arguments))
    assert not COLOUR.search(in_a_terminal(*arguments, NO_COLOR="1"))


def test_a_run_shows_something_at_once_and_no_colour_if_asked(tmp_path: Path) -> None:
    run = str(tmp_path / "run")
    shown = in_a_terminal("train", *SMALL, "--out", run, "--tensorboard", "off", NO_COLOR="1")
    assert shown.startswith("loading PyTorch …\r\x1b[K")
    assert "done: test recall is" in shown
    assert not COLOUR.search(shown)
