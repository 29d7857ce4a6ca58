"""Where a study is kept: a journal file, which any number of processes may append to, or a database."""

import importlib
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scornn.errors import StorageError, UsageError, first_line, not_installed
from scornn.program import durable

if TYPE_CHECKING:
    from optuna.storages import BaseStorage

_DRIVERS = {"postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg", "mysql": "mysql+pymysql"}
_PACKAGES = {"psycopg": "psycopg[binary]"}


def fcntl_module() -> Any:
    """The module, for a lock that waits; Windows lacks it, and holds a run by :func:`durable.hold`."""
    try:
        return importlib.import_module("fcntl")
    except ImportError:
        raise StorageError("sweeps are held by flock, which this system lacks: train on Linux or macOS") from None


def require_optuna() -> None:
    """Say how to install it where it is missing; silence what it logs."""
    try:
        import optuna
    except ModuleNotFoundError as error:
        raise UsageError(not_installed("a sweep", str(error.name))) from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)


def is_database(where: str) -> bool:
    """Whether this is a database URL; else it is a journal file."""
    return "://" in where


def without_password(where: str) -> str:
    """The URL as it may be shown and written down. What a password is goes by SQLAlchemy: it may hold a slash.

    >>> without_password("postgresql://me:secret@host/sweeps")
    'postgresql://me@host/sweeps'
    """
    return re.sub(r"(?<=://)([^:/]*):[^@]*@(?:[^@/?]*@)*", r"\1@", where)


def open_storage(where: str, directory: Path, *, write: bool = True) -> "BaseStorage":
    """The storage of ``--storage``; a journal's path is relative to the sweep's directory where it is a bare name."""
    require_optuna()
    return _database(where) if is_database(where) else _journal(journal_path(where, directory), write)


def journal_path(where: str, directory: Path) -> Path:
    """A bare file name lies in the sweep's directory; anything else is a path."""
    return directory / where if os.sep not in where else Path(where)


def _database(url: str) -> "BaseStorage":
    from optuna.storages import RDBStorage, get_storage
    from sqlalchemy import exc
    from sqlalchemy.pool import NullPool

    scheme, _, rest = url.partition("://")
    shown = without_password(url)
    try:
        # A connection for each question: trials take minutes, and a pool would hold one that the server has dropped.
        options: dict[str, Any] = {"poolclass": NullPool}
        return get_storage(RDBStorage(f"{_DRIVERS.get(scheme, scheme)}://{rest}", engine_kwargs=options))
    except ImportError:  # Optuna has its own words for it, without the package's name
        driver = _DRIVERS.get(scheme, scheme).rpartition("+")[2]
        package = _PACKAGES.get(driver, driver)
        raise UsageError(f'--storage {shown}: its driver is not installed: pip install "{package}"') from None
    except (exc.ArgumentError, exc.NoSuchModuleError, ValueError) as error:
        raise UsageError(
            f"--storage {shown}: {first_line(error)}; expected a file, or postgresql://… or mysql://…"
        ) from None
    except exc.SQLAlchemyError as error:
        raise StorageError(f"cannot reach the storage {shown}: {first_line(error)}") from error


def _journal(path: Path, write: bool) -> "BaseStorage":
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    last: list[bytes] = []
    with durable.storage_errors(path, "open the journal"):
        if not write or (path.is_file() and path.stat().st_size):
            with open(path, "rb") as file:
                _refuse_foreign(path, first := file.readline())
                last = [line for line in (first, *file) if line.endswith(b"\n")][-1:]
        if write:
            with open(path, "ab"):
                pass
    try:
        for line in last:
            json.loads(line)  # Optuna forgives the last line, and fails once another is written after it
        lock: Any = _Flock(path)
        return JournalStorage(JournalFileBackend(str(path), lock_obj=lock))
    except Exception as error:  # Optuna trusts what it reads, and fails in every way
        raise StorageError(f"cannot read the journal {path}: it is damaged: {error!r}") from error


def _refuse_foreign(path: Path, line: bytes) -> None:
    try:
        known = "op_code" in json.loads(line)
    except (ValueError, TypeError):
        known = False
    torn = line.startswith(b"{") and not line.endswith(b"\n")
    if not known and not torn:
        raise UsageError(f"--storage {path}: this file is no journal of a study; expected one, or a free name")


class _Flock:
    """A journal's lock that dies with its holder: Optuna's own ones outlive a killed process by half a minute.

    Who gets it cuts off the part of a line that a killed writer may have left at the end of the journal.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def acquire(self) -> bool:
        self._file = _locked(f"{self._path}.lock")
        _cut_torn_line(self._path)
        return True

    def release(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _cut_torn_line(path: Path) -> None:
    with open(path, "rb+") as file:
        size = file.seek(0, os.SEEK_END)
        if not size:
            return
        file.seek(-1, os.SEEK_END)
        if file.read(1) == b"\n":
            return
        file.seek(0)
        whole = file.read().rfind(b"\n") + 1
        file.truncate(whole)


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold a lock file while the block runs; it dies with its holder."""
    with durable.storage_errors(path):
        descriptor = _locked(path)
    try:
        yield
    finally:
        os.close(descriptor)


def _locked(path: str | os.PathLike[str]) -> int:
    fcntl = fcntl_module()
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


@contextmanager
def database_errors(where: str) -> Iterator[None]:
    """A storage that goes away in the middle is a :class:`StorageError` that names it."""
    from optuna.exceptions import StorageInternalError
    from sqlalchemy import exc

    try:
        yield
    except (exc.SQLAlchemyError, StorageInternalError) as error:
        reason = error.__cause__ if isinstance(error, StorageInternalError) and error.__cause__ else error
        raise StorageError(f"lost the storage {without_password(where)}: {first_line(reason)}") from error
