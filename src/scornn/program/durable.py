"""Files that are whole or absent: a crash at any moment leaves the old content or the new, never a part.

Temporary name in the same directory, opened O_EXCL; write; flush; fsync; ``os.replace``; fsync of the directory.
Every ``OSError`` on the way becomes a :class:`~scornn.errors.StorageError` that names the path.
"""

import errno
import hashlib
import importlib
import json
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from scornn.errors import StorageError

_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{16}\.tmp")
_ADVICE = {
    errno.ENOSPC: "free some space or choose another directory",
    errno.EDQUOT: "free some of your quota or choose another directory",
    errno.EACCES: "choose a directory that you may write to",
    errno.EPERM: "choose a directory that you may write to",
    errno.EROFS: "choose a directory that you may write to",
    errno.ENOTDIR: "a file stands where a directory should",
    errno.EEXIST: "a file stands where a directory should",
    errno.EISDIR: "a directory stands where the file should",
    errno.ENOENT: "its directory does not exist",
}


@contextmanager
def storage_errors(path: str | os.PathLike[str], doing: str = "write") -> Iterator[None]:
    """Turn an ``OSError`` of the block into a ``StorageError``: "cannot <doing> <path>: reason; advice"."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        advice = _ADVICE.get(error.errno or 0)
        raise StorageError(f"cannot {doing} {path}: {reason}" + (f"; {advice}" if advice else "")) from error


def fsync_directory(path: str | os.PathLike[str]) -> None:
    """Make the names in a directory as durable as the files behind them."""
    if not hasattr(os, "O_DIRECTORY"):
        return  # Windows opens no directories
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(path: str | os.PathLike[str]) -> Path:
    """``mkdir -p``, durable: each directory that had to be made is synced into its parent."""
    path = Path(path)
    with storage_errors(path, "make directory"):
        missing = [p for p in (path, *path.parents) if not p.exists()]
        path.mkdir(parents=True, exist_ok=True)
        for made in missing:
            fsync_directory(made.parent)
    return path


def hold(descriptor: int, *, shared: bool = False) -> bool:
    """Hold an open file until it is closed or the process dies; False where another process holds it.

    ``shared`` only asks whether somebody holds it.
    """
    try:
        fcntl: Any = importlib.import_module("fcntl")
    except ImportError:
        return _hold_on_windows(descriptor)
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _hold_on_windows(descriptor: int) -> bool:
    """One byte far beyond the content, since nobody else may read what is locked there."""
    msvcrt: Any = importlib.import_module("msvcrt")
    os.lseek(descriptor, 1 << 30, os.SEEK_SET)
    try:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    except OSError:
        return False
    finally:
        os.lseek(descriptor, 0, os.SEEK_SET)
    return True


def sha256_file(path: str | os.PathLike[str]) -> str:
    """The sha256 of a file's content, in hexadecimal, read in blocks."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a whole file, durably, in place of whatever has that name; on an error that is as it was."""
    path = Path(path)
    with storage_errors(path):
        if path.is_dir():  # "." and "/" have no name to make another of
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if path.exists() and not path.is_file():  # a device such as /dev/null would become a file
            raise StorageError(f"cannot write {path}: it is a device or a pipe; expected the name of a file")
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
        own = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | own, 0o666)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise
        fsync_directory(path.parent)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a whole UTF-8 file, durably."""
    write_bytes(path, text.encode())


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Write JSON, durably."""
    write_bytes(path, json_bytes(value))


def json_bytes(value: Any) -> bytes:
    """The content of a JSON file. Standard JSON has no NaN or infinity: they are refused with ``ValueError``."""
    return (json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False) + "\n").encode()


def read_object(path: Path, notes: list[str] | None = None) -> dict[str, Any]:
    """The object in a JSON file; an empty one where there is none that can be read, and a note that says why."""
    found: Any = {}
    try:
        found, why = json.loads(path.read_bytes()), ""
    except (FileNotFoundError, NotADirectoryError):
        why = f"no {path.name}"
    except (OSError, ValueError):
        why = f"{path.name} is damaged: it is not JSON"
    if not isinstance(found, dict):
        found, why = {}, f"{path.name} is damaged: it holds no object"
    if why and notes is not None:
        notes.append(why)
    return found


def remove_temporaries(directory: Path) -> None:
    """Remove what writers killed in mid-write left in a directory that nobody else writes to now."""
    with storage_errors(directory, "clean"):
        for path in directory.iterdir():
            if _TEMPORARY.fullmatch(path.name):
                path.unlink()
