"""Where a study is kept: an SQLite file in the sweep's directory, or any database that Optuna can use."""

import random
import re
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scornn.errors import StorageError, UsageError, first_line, not_installed

if TYPE_CHECKING:
    from optuna.storages import RDBStorage
    from sqlalchemy import Engine

DATABASE = "sweep.db"
GRACE_SECONDS = 120
"""A process on another machine whose heartbeat has not changed for so long is dead."""
_BEAT_SECONDS = 15
_ATTEMPTS = 20
_DRIVERS = {"postgresql": "postgresql+psycopg", "postgres": "postgresql+psycopg", "mysql": "mysql+pymysql"}
_PACKAGES = {"psycopg": "psycopg[binary]"}


def require_optuna() -> None:
    """Say how to install Optuna where it is missing; silence what it logs."""
    try:
        import optuna
    except ModuleNotFoundError as error:
        raise UsageError(not_installed("a sweep", str(error.name))) from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)


def without_password(where: str) -> str:
    """The URL as it may be shown and written down. What a password is goes by SQLAlchemy: it may hold a slash.

    >>> without_password("postgresql://me:secret@host/sweeps")
    'postgresql://me@host/sweeps'
    """
    return re.sub(r"(?<=://)([^:/]*):[^@]*@(?:[^@/?]*@)*", r"\1@", where)


def open_storage(where: str, directory: Path, *, write: bool = True) -> "RDBStorage":
    """The database of ``--storage``: a URL, or an SQLite file, by its bare name in the sweep's directory.

    With ``write=False`` nothing is made. A file of something else is refused.
    """
    from sqlalchemy import create_engine, exc, inspect
    from sqlalchemy.pool import NullPool

    file = None if "://" in where else (directory / where).absolute()
    if file and not write and not file.is_file():
        raise StorageError(f"cannot open the storage {file}: no such file")
    scheme, _, rest = (f"sqlite:///{file}" if file else where).partition("://")
    driver, shown = _DRIVERS.get(scheme, scheme), without_password(where)
    # A connection for each question: trials take minutes, and a pool would hold one that the server has dropped.
    options: dict[str, Any] = {"poolclass": NullPool}
    if scheme == "sqlite":
        options["connect_args"] = {"timeout": 60}
    try:
        engine = create_engine(f"{driver}://{rest}", **options)
        tables = inspect(engine).get_table_names()
    except ImportError:
        package = driver.rpartition("+")[2]
        install = f'pip install "{_PACKAGES.get(package, package)}"'
        raise UsageError(f"--storage {shown}: its driver is not installed: {install}") from None
    except (exc.ArgumentError, exc.NoSuchModuleError, ValueError) as error:
        expected = "expected a file, or postgresql://… or mysql://…"
        raise UsageError(f"--storage {shown}: {first_line(error)}; {expected}") from None
    except (exc.OperationalError, exc.InterfaceError) as error:
        raise StorageError(f"cannot reach the storage {shown}: {first_line(error)}") from error
    except exc.DatabaseError:
        tables = ["of something else"]
    if not {"studies", "version_info"} & {*tables} and (not write or (scheme == "sqlite" and tables)):
        raise UsageError(f"--storage {shown}: it holds no study; expected the database of a sweep, or a free name")
    return _made(f"{driver}://{rest}", options, shown, write)


def _made(url: str, options: dict[str, Any], shown: str, write: bool) -> "RDBStorage":
    from optuna.storages import RDBStorage
    from sqlalchemy import exc

    class Storage(RDBStorage):
        def record_heartbeat(self, trial_id: int) -> None:
            with suppress(exc.SQLAlchemyError):  # one that is late is better than a thread that ends
                super().record_heartbeat(trial_id)

    beat: dict[str, Any] = {"heartbeat_interval": _BEAT_SECONDS, "grace_period": GRACE_SECONDS}
    for attempt in range(_ATTEMPTS):
        try:
            storage = Storage(url, options, **beat, skip_table_creation=not write)
            break
        except exc.DatabaseError as error:  # another process makes the tables at this moment
            if attempt == _ATTEMPTS - 1:
                raise StorageError(f"cannot make the tables of a study in {shown}: {first_line(error)}") from error
            time.sleep(random.uniform(0, 0.02 * (attempt + 1)))
        except RuntimeError as error:  # tables of another version of Optuna
            raise StorageError(f"cannot use the storage {shown}: {first_line(error)}") from error
    if write and url.startswith("sqlite"):
        _lock_from_the_first_read(storage.engine)
    return storage


def _lock_from_the_first_read(engine: "Engine") -> None:
    """Begin SQLite's transactions with its write lock: it ignores the locks of rows by which Optuna claims a trial."""
    from sqlalchemy import event

    def connected(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # sqlite3 begins no transaction by itself

    event.listen(engine, "connect", connected)
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))


@contextmanager
def storage_errors(where: str) -> Iterator[None]:
    """A storage that goes away in the middle is a :class:`StorageError` that names it."""
    from optuna.exceptions import StorageInternalError
    from sqlalchemy import exc

    try:
        yield
    except (exc.SQLAlchemyError, StorageInternalError, UnboundLocalError) as error:
        # Optuna's loop ends in an UnboundLocalError where it can neither close a trial nor look at it.
        reason = error.__context__ if isinstance(error, UnboundLocalError) else error
        if not isinstance(reason, exc.SQLAlchemyError | StorageInternalError):
            raise
        said = first_line(reason.__cause__ or reason)
        raise StorageError(f"lost the storage {without_password(where)}: {said}") from error
