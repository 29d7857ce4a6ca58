"""What the commands' parsers share."""

from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import tyro

from scornn.errors import UsageError

T = TypeVar("T")

TensorBoard = Annotated[
    Literal["auto", "on", "off"],
    tyro.conf.arg(help="Write TensorBoard files: where it is installed (auto), on, or off."),
]


def option(metavar: str, help: str) -> Any:
    """An option that may be left out, and then says nothing."""
    return tyro.conf.arg(metavar=metavar, help=help, help_behavior_hint="")


def parse(flags: type[T], argv: list[str], command: str, description: str | None) -> T:
    """Parse with suggestions for misspelt options; an option given twice is refused unless it is a list."""
    given = [argument.partition("=")[0] for argument in argv if argument.startswith("--")]
    for name in given:
        if given.count(name) > 1 and name not in ("--set", "--until"):
            raise UsageError(f"{name} is given {given.count(name)} times; expected once")
    return tyro.cli(flags, args=argv, prog=f"scornn {command}", description=description)


def wanted(choice: str) -> bool | None:
    """auto, on, off."""
    return {"on": True, "off": False}.get(choice)


def absolute(path: str | None) -> Path | None:
    """A folder that stays the same one when the run is resumed from elsewhere."""
    return Path(path).expanduser().absolute() if path else None
