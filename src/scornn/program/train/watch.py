"""The hook for other services: whoever wants it gets every record of a run as it is written."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

Write = Callable[[Mapping[str, Any]], None]
"""Gets a line of ``metrics.jsonl``: step, epoch, split, weights where they are averaged, the metrics, seconds."""

Watcher = Callable[[Path, dict[str, Any]], AbstractContextManager[Write]]
"""From a run's directory and its config: a context, open while the run trains, that gives a :data:`Write`."""

WATCHERS: dict[str, Watcher] = {}
"""By the name of the function that was decorated."""


def watcher(make: Watcher) -> Watcher:
    """Watch every run of this process, from its first step or from where it goes on.

    In a file named with ``--plugin`` this watches the runs of the program. With several processes the first one
    watches. A watcher that fails is warned of once and heard no more: the run goes on.

    Example:
        >>> from contextlib import contextmanager
        >>> @watcher
        ... @contextmanager
        ... def printed(run, config):
        ...     yield lambda record: print(run.name, record["step"], record["loss"])
        >>> del WATCHERS[f"{printed.__module__}.{printed.__qualname__}"]
    """
    WATCHERS[f"{make.__module__}.{make.__qualname__}"] = make
    return make


def scalars(record: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a record by ``metric/split``; those of averaged weights have names of their own.

    Example:
        >>> scalars({"step": 5, "split": "test", "weights": "average", "loss": 0.5})
        {'loss/test-average': 0.5}
    """
    curve = "-".join(record[key] for key in ("split", "weights") if key in record)
    return {f"{name}/{curve}": value for name, value in record.items() if isinstance(value, float)}


def opened(
    watchers: Mapping[str, Watcher], run: Path, config: dict[str, Any], stack: ExitStack, warn: Callable[[str], None]
) -> Iterator[Write]:
    """Open every watcher for a run; ``stack`` closes them. None of them can end the run."""
    for name, make in watchers.items():
        try:
            context = make(run, config)
            write = context.__enter__()
        except Exception as error:
            warn(f"the watcher {name} does not begin: {type(error).__name__}: {error}")
            continue
        guarded = _Guarded(name, write, context, warn)
        stack.push(guarded.close)
        yield guarded.write


class _Guarded:
    def __init__(self, name: str, write: Write, context: AbstractContextManager[Write], warn: Callable[[str], None]):
        self._name, self._write, self._context, self._warn = name, write, context, warn
        self._failed = False

    def write(self, record: Mapping[str, Any]) -> None:
        if not self._failed:
            try:
                self._write(dict(record))
            except Exception as error:
                self._failed = True
                self._warn(f"the watcher {self._name} gets no more records: {type(error).__name__}: {error}")

    def close(self, *reason: Any) -> None:
        """Close it with the reason that the run ended, which stays the run's own."""
        try:
            self._context.__exit__(*reason)
        except Exception as error:
            if error is not reason[1]:
                self._warn(f"the watcher {self._name} did not close: {type(error).__name__}: {error}")
