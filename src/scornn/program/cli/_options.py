"""What the commands' parsers share."""

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import tyro

from scornn.errors import DataError, UsageError
from scornn.program.data.locate import expanded

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")

TensorBoard = Annotated[
    Literal["auto", "on", "off"],
    tyro.conf.arg(help="Write TensorBoard files: where it is installed (auto), on, or off."),
]


_PATHS = ("--out", "--data", "--config", "--start-from", "--plugin", "--audio", "--from")
_WITHOUT_TORCH = ("data", "completion")
_FORM = (tyro.conf.FlagCreatePairsOff, tyro.conf.UseAppendAction)
"""No ``--no-quiet``; a list is an option given several times."""


def option(metavar: str, help: str) -> Any:
    """An option that may be left out, and then says nothing."""
    return tyro.conf.arg(metavar=metavar, help=help, help_behavior_hint="")


def flag(help: str) -> Any:
    """A bool that is off unless given."""
    return tyro.conf.arg(help=help, help_behavior_hint="")


def parse(flags: type[T], argv: list[str], command: str, description: str | None) -> T:
    """Parse with suggestions for misspelt options; an option given twice is refused unless it is a list."""
    if description and {"-h", "--help"} & set(argv):
        print(_wrapped(description), end="\n\n")  # tyro's own rendering breaks words at the terminal's edge
    given = [argument.partition("=")[0].replace("_", "-") for argument in argv if argument.startswith("--")]
    lists = {f"--{field.name.replace('_', '-')}" for field in fields(flags) if isinstance(field.default, tuple)}
    for name in given:
        if given.count(name) > 1 and name not in lists:
            raise UsageError(f"{name} is given {given.count(name)} times; expected once")
    for argument, value in zip(argv, [*argv[1:], None], strict=False):
        if argument.removesuffix("=") in _PATHS and (value == "" or argument.endswith("=")):
            raise UsageError(f"{argument.removesuffix('=')} is empty: expected a path")
    with _no_colour_if_asked():
        parsed = tyro.cli(flags, args=argv, prog=f"scornn {command}", description="", config=_FORM)
    if command not in _WITHOUT_TORCH and "torch" not in sys.modules and sys.stderr.isatty():
        with waiting("loading PyTorch"):
            import_module("torch")
    return parsed


@contextmanager
def _no_colour_if_asked() -> Iterator[None]:
    """NO_COLOR, which rich knows and tyro does not: tyro looks at TERM alone."""
    terminal = os.environ.get("TERM")
    if os.environ.get("NO_COLOR") and terminal is not None:
        os.environ["TERM"] = "dumb"
    try:
        yield
    finally:
        if terminal is not None:
            os.environ["TERM"] = terminal


@contextmanager
def waiting(text: str) -> Iterator[None]:
    """Say in a terminal what takes longer than a moment; the line goes when it is done."""
    shown = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    if shown:
        print(f"{text} …", end="", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        if shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def write_page(path: str, text: str) -> None:
    """Write a page and say where it is."""
    from scornn.program import durable

    if Path(path).is_file() and Path(path).suffix not in (".html", ".htm"):
        raise UsageError(f"{path} is there already and is not called .html: it would be replaced; choose another name")
    durable.write_text(path, text)
    size = len(text.encode())
    shown = f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.0f} kB"
    print(f"{path} ({shown}): open it in a browser")


def _wrapped(description: str) -> str:
    """Paragraphs filled to the width of the terminal, indented ones left as they are."""
    width = min(shutil.get_terminal_size().columns, 100)
    paragraphs = description.strip().split("\n\n")
    return "\n\n".join(p if "\n    " in f"\n{p}" else textwrap.fill(p, width) for p in paragraphs)


def task_names() -> list[str]:
    """The names of the catalogue of tasks."""
    return sorted(_named("program/tasks", "@task"))


def model_names() -> list[str]:
    """The names of the catalogue of models."""
    return _named("nn", "@model")


def item_names() -> list[str]:
    """The names of the paper's tables and figures."""
    return _named("program/paper", "Item")


def _named(room: str, call: str) -> list[str]:
    """The names that such calls give, read from the sources of a room: help is given without importing torch."""
    name = re.compile(rf'^\s*{call}\(\s*"([^"]+)"', re.MULTILINE)
    sources = sorted((Path(__file__).parents[2] / room).glob("*.py"))
    return [found for source in sources for found in name.findall(source.read_text(encoding="utf-8"))]


def filled(text: str) -> str:
    """A long line, broken at words to the width of the terminal; whole where nobody looks."""
    return textwrap.fill(text, shutil.get_terminal_size().columns) if sys.stdout.isatty() else text


def at_least_one(**given: int | None) -> None:
    """Refuse a number of things, where it is given, that is none."""
    for name, value in given.items():
        if value is not None and value < 1:
            raise UsageError(f"--{name} {value}: expected an integer >= 1")


def wanted(choice: str) -> bool | None:
    """auto, on, off."""
    return {"on": True, "off": False}.get(choice)


def absolute(path: str | None) -> Path | None:
    """A folder of data, which must be there, by a name that stays the same when a run is resumed from elsewhere."""
    if not path:
        return None
    folder = expanded(path).absolute()
    if not folder.is_dir():
        raise DataError(f"--data {path}: {'not a folder' if folder.exists() else 'no such folder'}")
    return folder
