"""The tasks by name, each entered where it is defined, by the decorator :func:`task`. Nobody else keeps a list."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from scornn.errors import ScornnError, UsageError, suggest
from scornn.program.tasks.base import Task, TaskConfig

Kind = TypeVar("Kind", bound=type[Task])


@dataclass(frozen=True)
class Entry:
    """What the program knows of a task.

    Attributes:
        name: on the command line.
        kind: its class.
        config: the struct of its settings.
        label: in tables and plots.
        settings: those that the name implies, for two names may share a config.
        defaults: of a run for which the paper has no setting: state size, learning rates, length.
        smoke: settings with which a few steps take no time.
        by_folder: whether each folder of data is a problem of its own.
    """

    name: str
    kind: type[Task]
    config: type[TaskConfig]
    label: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    smoke: Mapping[str, Any] = field(default_factory=dict)
    by_folder: bool = False

    @property
    def tag(self) -> str:
        """The ``name`` in the table of its config."""
        return str(self.config.__struct_config__.tag)

    def table(self) -> dict[str, Any]:
        """The task table that the name stands for."""
        return {"name": self.tag, **self.settings}


TASKS: dict[str, Entry] = {}
"""Every task by its name on the command line, in the order of definition."""


def task(name: str, config: type[TaskConfig], *, label: str = "", **facts: Any) -> Callable[[Kind], Kind]:
    """Enter a class into the catalogue, with the fields of :class:`Entry`.

    It is called with its config, a seed and the folder of ``--data`` or None.
    """

    def enter(kind: Kind) -> Kind:
        entry = Entry(name, kind, config, label or name, **facts)
        if name in TASKS:
            raise ValueError(f"a task named {name!r} is there already: {TASKS[name].kind.__qualname__}")
        for other in TASKS.values():
            if other.tag == entry.tag and other.config is not config:
                raise ValueError(f"the tag {entry.tag!r} is that of {other.config.__qualname__} already")
        TASKS[name] = entry
        kind.name = name
        return kind

    return enter


def entry_of(table: Mapping[str, Any]) -> Entry | None:
    """The entry of a task table, or None for a task that is not in the catalogue.

    Of several entries with one tag, the first is that of a table without their settings.
    """
    for entry in TASKS.values():
        if entry.tag == table.get("name") and all(table.get(k, value) == value for k, value in entry.settings.items()):
            return entry
    return None


def name_of(settings: TaskConfig | Mapping[str, Any]) -> str:
    """A task as the command line calls it.

    Example:
        >>> from scornn.program.tasks import PixelMnistConfig
        >>> name_of(PixelMnistConfig(permuted=True)), name_of({"name": "copying", "length": 9})
        ('pmnist', 'copying')
    """
    table = msgspec.to_builtins(settings) if isinstance(settings, TaskConfig) else settings
    entry = entry_of(table)
    return entry.name if entry else str(table.get("name"))


def label_and_about(table: Mapping[str, Any]) -> tuple[str, str]:
    """The label of a task and its text for readers; an unknown task has its name for a label.

    Example:
        >>> label_and_about({"name": "mnist", "permuted": True})[0], label_and_about({"name": "mine"})
        ('permuted MNIST', ('mine', ''))
    """
    name = str(table.get("name"))
    entry = entry_of(table) or TASKS.get(name)
    return (entry.label, entry.kind.about) if entry else (name, "")


def find(name: str) -> Entry:
    """The entry of a name on the command line, or a :class:`UsageError` with the nearest."""
    if name not in TASKS:
        raise UsageError(f"unknown task {name!r}{suggest(name, TASKS)}")
    return TASKS[name]


def make(config: TaskConfig, seed: int, data: Path | None = None) -> Task:
    """The task that a configuration describes.

    Args:
        config: one of the task configurations; its ranges are checked again, for structs built in code.
        seed: of the generated data and the order of the training samples.
        data: the folder to look in first for files; see :mod:`scornn.program.data.locate`.
    """
    table = msgspec.to_builtins(config)
    entry = entry_of(table)
    if entry is None:
        raise UsageError(f"task {table.get('name')}: not in the catalogue; its class needs the decorator @task")
    try:
        config = msgspec.convert(table, type(config))
    except msgspec.ValidationError as error:
        raise UsageError(f"task {entry.tag}: {error}") from None
    make_it: Callable[[TaskConfig, int, Path | None], Task] = entry.kind
    without = "" if data is not None else " (no --data was given)"
    with faults_told(entry.kind, entry.name, f"cannot be made{without}"):
        made = make_it(config, seed, data)
    made.name = entry.name
    return made


@contextmanager
def faults_told(kind: type, name: str, what: str, noun: str = "task") -> Iterator[None]:
    """Turn an error in a user's task or model into one sentence; an error in a class of this program is a bug."""
    try:
        yield
    except (ScornnError, OSError, MemoryError):
        raise
    except Exception as error:
        if (file := foreign_file(kind)) is None:
            raise
        raise UsageError(
            f"the {noun} {name} of {file} {what}: {type(error).__name__}: {error}; --debug shows where"
        ) from error


def foreign_file(kind: type) -> str | None:
    """Source file of a user-defined class; None for a class of this package."""
    if kind.__module__.partition(".")[0] == __name__.partition(".")[0]:
        return None
    return getattr(sys.modules.get(kind.__module__), "__file__", None) or kind.__module__
