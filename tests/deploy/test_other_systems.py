"""Windows and macOS as far as Linux can play them: without the modules, calls and signals that they lack."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

WITHOUT = """
    import subprocess, sys, types
    sys.modules |= dict.fromkeys(("fcntl", "grp", "pwd", "resource", "syslog", "termios", "tty", "pty"))
    import os, signal
    for module, names in ((os, ["O_CLOEXEC", "O_DIRECTORY", "fork", "getuid", "pread", "pwrite",
                                "sched_getaffinity", "statvfs"]), (signal, ["SIGHUP", "SIGKILL", "SIGUSR1"])):
        for name in names:
            delattr(module, name)
    def locking(descriptor, mode, count):  # as Windows: the bytes from here on, and EACCES where they are held
        place = os.fstat(descriptor).st_ino, os.lseek(descriptor, 0, os.SEEK_CUR)
        if mode != 2 or count != 1 or place[1] == 0:
            raise ValueError(place)
        if HELD in os.environ:
            raise PermissionError(13, "Permission denied")

    HELD = "HELD_BY_ANOTHER"
    sys.modules["msvcrt"] = types.SimpleNamespace(locking=locking, LK_NBLCK=2)
"""


def play(code: str, folder: Path) -> None:
    text = textwrap.dedent(WITHOUT) + textwrap.dedent(code)
    done = subprocess.run([sys.executable, "-c", text], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_run_from_training_to_export(tmp_path: Path) -> None:
    play(
        """
        from scornn.program.cli import main
        small = ["--set", "task.train_size=8", "--set", "task.test_size=4", "--tensorboard", "off", "--quiet"]
        train = ["train", "adding", "--hidden", "5", "--length", "4", "--threads", "1", "--backend", "naive"]
        assert main([*train, "--iterations", "2", "--out", "run", *small]) == 0
        assert main(["resume", "run", "--iterations", "4", "--quiet"]) == 0
        assert main(["eval", "run"]) == 0
        import scornn, torch
        assert scornn.load("run").stored.step == 4
        for to in ("safetensors", "onnx"):
            assert main(["export", "run", "--to", to, "--out", f"a.{to}"]) == 0
        os.environ[HELD] = "1"
        assert main(["resume", "run", "--iterations", "6", "--quiet"]) == 7
        """,
        tmp_path,
    )


@pytest.mark.parametrize("imports", ["import scornn, torch", "import torch, scornn"])
def test_layers_without_the_kernel(imports: str, tmp_path: Path) -> None:
    play(
        f"""
        {imports}
        from scornn.ops import library
        library.load = lambda: "none is installed"
        import warnings
        warnings.simplefilter("ignore")
        layer = scornn.ScoRNN(3, 5)
        layer(torch.randn(4, 2, 3))[0].sum().backward()
        assert torch.ops.scornn.native_forward is not None  # programs on our operators load
        """,
        tmp_path,
    )
