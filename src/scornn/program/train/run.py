"""The run directory: who holds it, what is written in it, and where it stands.

``config.json`` · ``metrics.jsonl`` · ``summary.json`` · ``checkpoints/`` · ``tensorboard/`` · ``log.txt`` ·
``lock``, which a process holds (flock) as long as it trains here.
"""

import json
import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, Self

from scornn.errors import CheckpointError, RunInUseError, StorageError, UsageError
from scornn.program import durable, plugins
from scornn.program.tasks.catalogue import name_of
from scornn.program.train import checkpoint
from scornn.program.train.config import Config, build
from scornn.program.train.identity import Identity
from scornn.program.train.tables import Table, read

RUNS = Path("runs")
_BEFORE_CONFIG = ("lock", "checkpoints", "metrics.jsonl", "log.txt", ".config.json.")
"""What a run that was killed in its first moment leaves: nothing to continue, and nothing to lose."""


def label(config: Config) -> str:
    """The run's name: its own if it has one, else task and length, model, size and seed."""
    parts = (name_of(config.task), getattr(config.task, "length", None), config.model.name, config.model.hidden)
    return config.name or "-".join(str(part) for part in (*parts, f"s{config.seed}") if part is not None)


def read_config(path: Path, files: Sequence[str] = ()) -> Config:
    """The config of an existing run. Its plugins are loaded: ``files``, or those that it names."""
    return build(with_plugins(read_table(path), files))


def read_table(path: Path) -> Table:
    """What the config.json of an existing run holds."""
    if not path.is_dir():
        raise UsageError(f"no run directory {path}; expected one made by `scornn train`")
    if not (path / "config.json").is_file():
        raise UsageError(f"{path} is not a run directory: it has no config.json")
    try:
        return read(path / "config.json")
    except UsageError as error:
        saved = checkpoint.steps(path / "checkpoints")
        copied = "; every checkpoint has a copy, under config of its state.json" if saved else ""
        raise UsageError(f"{error}{copied}") from None


def with_plugins(table: Mapping[str, Any], files: Sequence[str]) -> Table:
    """What a config holds, with its plugins loaded: ``files``, or those that it names."""
    return {**table, "plugins": plugins.of_config(table, files)}


def place(config: Config, out: Path | None, *, join: bool = False) -> Path:
    """Where a run goes: ``out``, or a free name under ``runs/``.

    A directory that holds a run is refused with the way to continue it; ``join`` continues a run of the same
    config instead. Without ``out``, a run of another config under the same name makes room: the new one gets
    ``-2``, ``-3``, …
    """
    path, number = out or RUNS / label(config), 1
    while out is None and path.is_dir() and _holds_another(config, path):
        number += 1
        path = RUNS / f"{label(config)}-{number}"
    if path.is_symlink() and not path.exists():
        raise StorageError(f"{path} is a broken link; expected a directory or a free name")
    if path.exists() and not path.is_dir():
        raise StorageError(f"{path} is a file; expected a directory for the run, or a free name")
    if not path.exists() or _is_empty(path):
        return path
    if not (path / "config.json").is_file():
        raise UsageError(f"{path} holds files that are not of a run: choose another --out")
    refuse_held(path)
    another = _holds_another(config, path)
    if join and not another:
        return path
    finished, other = is_finished(path), " of another config" if another else ""
    quoted = shlex.quote(str(path))
    later = f"see `scornn eval {quoted}`, give it a later end with `scornn resume {quoted} --iterations N`"
    advice = later if finished else f"continue it with `scornn resume {quoted}`"
    raise UsageError(
        f"{path} holds {'a finished' if finished else 'an unfinished'} run{other}: {advice}, or choose another --out"
    )


def newest_step(path: Path, warn: Callable[[str], None]) -> int | None:
    """The step of the newest good checkpoint of a run that no process holds now; None where there is none at all."""
    refuse_held(path)
    saved = checkpoint.newest(path / "checkpoints", warn)
    if saved is None and has_results(path):  # of a recorded result, or of a run whose checkpoints were deleted
        raise CheckpointError(f"{path} has results, but no checkpoint to go on from: {retrain_advice(path)}")
    return saved.step if saved else None


def retrain_advice(path: Path) -> str:
    """Advice for a directory that has results but no checkpoint."""
    again = f"scornn train --config {shlex.quote(str(path / 'config.json'))} --out NEW"
    return f"to train it again would replace its results; `{again}` makes another run"


def _holds_another(config: Config, path: Path) -> bool:
    try:
        here, there = Identity.of(config), Identity.of(read_table(path))
        return not (here.same(there, "course") and here.same(there, "problem"))
    except (UsageError, StorageError):
        return not _is_empty(path)


def _is_empty(path: Path) -> bool:
    known = all(entry.name.startswith(_BEFORE_CONFIG) for entry in path.iterdir())
    return known and not checkpoint.steps(path / "checkpoints")


def has_results(path: Path) -> bool:
    """Whether a run has a summary of more than its start."""
    return (path / "summary.json").exists() and durable.read_object(path / "summary.json").get("steps") != 0


def is_finished(path: Path, step: int | None = None) -> bool:
    """Whether a run has come to its end, at this step where one is given."""
    summary = durable.read_object(path / "summary.json")
    return summary.get("finished") is True and step in (None, summary.get("steps"))


def refuse_held(path: Path) -> None:
    """Refuse a directory in which another process trains now."""
    with suppress(FileNotFoundError), open(path / "lock", "rb") as file:
        if not durable.hold(file.fileno(), shared=True):
            raise _in_use(path, file.read(32))


def _in_use(path: Path, holder: bytes) -> RunInUseError:
    name = holder.decode(errors="replace").strip() or "of unknown number"
    return RunInUseError(f"{path} is in use by process {name}; wait for it, stop it, or choose another --out")


class Run:
    """A run directory, held by this process until :meth:`close`."""

    def __init__(self, path: Path) -> None:
        self.path, self.checkpoints = path, path / "checkpoints"
        self._files: dict[str, BinaryIO] = {}
        durable.make_directory(path)
        with durable.storage_errors(path / "lock"):
            own = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
            self._lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | own, 0o666)
        if not durable.hold(self._lock):
            holder = os.read(self._lock, 32)
            os.close(self._lock)
            raise _in_use(path, holder)
        try:
            self._open()
        except BaseException:
            os.close(self._lock)
            raise

    def _open(self) -> None:
        """Remove what a kill left, and open what is written to."""
        durable.make_directory(self.checkpoints)
        with durable.storage_errors(self.path):
            os.ftruncate(self._lock, 0)
            os.write(self._lock, f"{os.getpid()}\n".encode())
            durable.remove_temporaries(self.path)
            checkpoint.remove_unfinished(self.checkpoints)
        for name in ("metrics.jsonl", "log.txt"):
            with durable.storage_errors(self.path / name):
                self._files[name] = open(self.path / name, "ab")  # noqa: SIM115

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """``summary.json``, durably."""
        durable.write_json(self.path / "summary.json", summary)

    def log(self, text: str) -> None:
        """One line in ``log.txt``, with the time."""
        self._write("log.txt", f"{datetime.now().astimezone().isoformat(timespec='seconds')} {text}")

    def append(self, record: Mapping[str, Any]) -> None:
        """One line in ``metrics.jsonl``."""
        self._write("metrics.jsonl", json.dumps(record, allow_nan=False))

    def _write(self, name: str, line: str) -> None:
        with self._opened(name) as file:
            file.write(line.encode() + b"\n")
            file.flush()

    def sync_metrics(self) -> int:
        """Make the metrics durable; return the length of the file, which belongs into the checkpoint."""
        with self._opened("metrics.jsonl") as file:
            os.fsync(file.fileno())
            return os.fstat(file.fileno()).st_size

    def truncate_metrics(self, size: int) -> None:
        """Drop the lines written after a checkpoint, whose steps will be made again; refuse a file that lacks lines."""
        with self._opened("metrics.jsonl") as file:
            if (found := os.fstat(file.fileno()).st_size) < size:
                raise CheckpointError(
                    f"{self.path / 'metrics.jsonl'} has {found} bytes, but the checkpoint was made when it had {size}: "
                    "lines were removed; restore the file"
                )
            os.ftruncate(file.fileno(), size)
            os.fsync(file.fileno())

    @contextmanager
    def _opened(self, name: str) -> Iterator[BinaryIO]:
        with durable.storage_errors(self.path / name):
            yield self._files[name]

    def close(self) -> None:
        """Let go of the directory. Each line was flushed when it was written, and a failure told then."""
        for file in self._files.values():
            with suppress(OSError):
                file.close()
        os.close(self._lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
