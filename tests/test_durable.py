"""Durable writes: whole or absent, through exceptions, full disks and SIGKILL."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from scornn.errors import StorageError
from scornn.program import durable


def test_write_and_replace(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    durable.write_json(path, {"x": [1, 2.5, None, "ρ"]})
    assert json.loads(path.read_text()) == {"x": [1, 2.5, None, "ρ"]}
    durable.write_text(path, "new")
    assert path.read_bytes() == b"new"
    durable.write_bytes(path, bytes(range(256)) * 9000)
    assert path.stat().st_size == 256 * 9000
    assert os.listdir(tmp_path) == ["a.json"]


def test_exception_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f"
    path.write_text("old")

    def fail(descriptor: int) -> None:
        raise RuntimeError

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(RuntimeError):
        durable.write_bytes(path, b"new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["f"]


def test_not_finite_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        durable.write_json(tmp_path / "f", {"loss": float("nan")})
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("size", [100, 5_000_000])
def test_full_disk(tmp_path: Path, size: int) -> None:
    """A write that the system refuses half-way (here by a limit on the file's size) leaves the old file."""
    path = tmp_path / "f"
    path.write_text("old")
    code = f"""
import resource, signal
from scornn.program import durable
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (50, 50))
durable.write_bytes({str(path)!r}, bytes({size}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "StorageError" in done.stderr
    assert str(path) in done.stderr
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["f"]


def test_paths_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="a file stands where a directory should"):
        durable.write_text(tmp_path / "file" / "x", "")
    with pytest.raises(StorageError, match="a file stands where a directory should"):
        durable.make_directory(tmp_path / "file")
    with pytest.raises(StorageError, match="a file stands where a directory should"):
        durable.make_directory(tmp_path / "file" / "deeper")
    with pytest.raises(StorageError, match="does not exist"):
        durable.write_text(tmp_path / "none" / "x", "")
    (tmp_path / "dir").mkdir()
    with pytest.raises(StorageError, match="a directory stands where the file should"):
        durable.write_text(tmp_path / "dir", "")
    assert durable.make_directory(tmp_path / "a" / "b").is_dir()


def test_sigkill_in_mid_write(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("old")
    code = f"""
import os, signal
from scornn.program import durable
os.fsync = lambda descriptor: os.kill(os.getpid(), signal.SIGKILL)
durable.write_bytes({str(path)!r}, b"half of")
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
    assert path.read_text() == "old"
    (tmp_path / ".hidden.tmp").write_text("someone else's")
    assert len(os.listdir(tmp_path)) == 3
    durable.remove_temporaries(tmp_path)
    assert sorted(os.listdir(tmp_path)) == [".hidden.tmp", "f"]


@pytest.mark.parametrize("path", [".", "..", "/", "folder"])
def test_a_directory_is_no_file(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path / "folder" if path == ".." else tmp_path)
    with pytest.raises(StorageError, match=r"cannot write .*: Is a directory"):
        durable.write_text(path, "x")
    assert [*tmp_path.iterdir()] == [tmp_path / "folder"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
def test_a_device_or_pipe_is_not_replaced(tmp_path: Path) -> None:
    """Where a root may, `--out /dev/null` would have made a file of it, for every process of the machine."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    for name in ("pipe", "link"):
        with pytest.raises(StorageError, match=rf"cannot write .*/{name}: it is a device or a pipe"):
            durable.write_text(tmp_path / name, "x")
    assert (tmp_path / "pipe").is_fifo()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "pipe"]
