"""What people see: a bar in a terminal, lines elsewhere, TensorBoard where it is wanted."""

import importlib.util
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scornn.errors import UsageError
from scornn.program.progress import log, run_log, run_messages
from scornn.program.train import board, program
from scornn.program.train.config import Config, to_json

Small = Callable[..., Config]


def test_a_terminal_gets_a_bar_and_its_cursor_back(small: Small, forker: Any, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(to_json(small()))
    master, slave = os.openpty()
    seen = bytearray()

    def read() -> None:
        try:
            while data := os.read(master, 4096):
                seen.extend(data)
        except OSError:  # how Linux says that nobody holds the other end
            pass

    reader = threading.Thread(target=read)
    reader.start()
    argv = ("train", "--config", "config.json", "--out", "run", "--tensorboard", "off")
    job = forker.start(tmp_path, *argv, output=os.ttyname(slave))
    code = job.wait()
    os.close(slave)
    reader.join()
    os.close(master)
    text = seen.decode()
    assert code == 0, text
    for part in ("14/14", "100%", "loss ", "(baseline 0.6931)", "test recall", "steps/s", "‖WᵀW−I‖", "done: "):
        assert part in text
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")


def test_lines_for_everything_else(small: Small, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program.start(small(), tmp_path / "run", tensorboard=False)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" · ")[0] for line in lines if line.startswith("step")] == [
        "step 4/14",
        "step 8/14",
        "step 12/14",
        "step 14/14",
    ]
    assert "\x1b" not in "".join(lines)


def test_messages_of_a_run_go_to_its_log_and_warnings_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    written: list[str] = []
    with run_messages(logging.WARNING) as kept:
        run_log.info("early")
        run_log.warning("odd")
        log.info("of the program")
        kept.write_to(written.append)
        run_log.info("late")
    run_log.info("after")
    assert written == ["early", "odd", "late"]
    assert capsys.readouterr() == ("of the program\nafter\n", "warning: odd\n")


def test_tensorboard_where_it_is_wanted(small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tensorboard")
    program.start(small(), tmp_path / "with", quiet=True, tensorboard=True)
    program.start(small(), tmp_path / "without", quiet=True, tensorboard=False)
    assert list((tmp_path / "with" / "tensorboard").glob("events.*"))
    assert not (tmp_path / "without" / "tensorboard").exists()
    monkeypatch.setattr(
        board, "find_spec", lambda name: None if name == "tensorboard" else importlib.util.find_spec(name)
    )
    assert board.wanted(None) is False
    with pytest.raises(UsageError, match="--tensorboard on needs tensorboard: pip install tensorboard"):
        board.wanted(True)
