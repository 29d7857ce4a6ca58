"""What the commands' options share."""

import os
import shutil
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from scornn.errors import DataError, UsageError
from scornn.program.data.locate import expanded

TASKS = ("adding", "arrays", "copying", "mnist", "pmnist", "speech")
"""Of the catalogue, which is not read for help: torch takes seconds to import. A test compares them."""

TensorBoard = Annotated[
    Literal["auto", "on", "off"],
    tyro.conf.arg(help="Write TensorBoard files: where it is installed (auto), on, or off."),
]


@dataclass(frozen=True)
class Key:
    """The dotted key of ``config.json`` that an option sets."""

    name: str


def option(metavar: str, help: str) -> Any:
    """An option that may be left out, and then says nothing."""
    return tyro.conf.arg(metavar=metavar, help=help, help_behavior_hint="")


def flag(help: str) -> Any:
    """A bool that is off unless given."""
    return tyro.conf.arg(help=help, help_behavior_hint="")


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


def filled(text: str) -> str:
    """A long line, broken at words to the width of the terminal; whole where nobody looks."""
    return textwrap.fill(text, shutil.get_terminal_size().columns) if sys.stdout.isatty() else text


def wrapped(text: str) -> str:
    """Paragraphs filled to the width of the terminal, indented ones left as they are."""
    width = min(shutil.get_terminal_size().columns, 100)
    paragraphs = text.strip().split("\n\n")
    return "\n\n".join(p if "\n    " in f"\n{p}" else textwrap.fill(p, width) for p in paragraphs)


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
