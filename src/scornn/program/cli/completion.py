"""Print a script that completes commands, options and their values in bash, zsh or fish.

It is made from the declarations of the options themselves, and starts no Python while you type.

Examples:
    eval "$(scornn completion bash)"                                    in ~/.bashrc
    source <(scornn completion zsh)                                     in ~/.zshrc, after compinit
    scornn completion fish > ~/.config/fish/completions/scornn.fish     once
"""

from dataclasses import dataclass, fields
from importlib import import_module
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import tyro

from scornn.program.cli import _shells, commands
from scornn.program.cli._options import item_names, model_names, option, parse, task_names
from scornn.program.cli._shells import Argument, Command, Takes

_KINDS: dict[str, Takes] = {"FILE": "file", "DIR": "folder", "RUN": "folder", "RUN...": "folder"}


@dataclass(frozen=True)
class Flags:
    shell: Annotated[Literal["bash", "zsh", "fish"], tyro.conf.Positional, option("SHELL", "The shell.")]


def main(argv: list[str]) -> int:
    flags = parse(Flags, argv, "completion", __doc__)
    write = {"bash": _shells.bash, "zsh": _shells.zsh, "fish": _shells.fish}[flags.shell]
    print(write([_command(name) for name in commands()]), end="")
    return 0


def _command(name: str) -> Command:
    module = import_module(f"scornn.program.cli.{name}")
    hints = get_type_hints(module.Flags, include_extras=True)
    arguments = [_argument(name, field.name, hints[field.name]) for field in fields(module.Flags)]
    own_help = Argument("--help", "Explain the command and its options.", "", "nothing")
    return Command(name, (module.__doc__ or "").partition("\n")[0], (*arguments, own_help))


def _argument(command: str, field: str, hint: Any) -> Argument:
    """What tyro is told about a field: its type, then marks, among them the one with help and metavar."""
    kind, *marks = get_args(hint)
    said: Any = next(mark for mark in marks if hasattr(mark, "metavar"))
    name = "" if tyro.conf.Positional in marks else f"--{(said.name or field).replace('_', '-')}"
    metavar = (said.metavar or "VALUE").strip("[]")
    choices = [part for part in (kind, *get_args(kind)) if get_origin(part) is Literal]  # alone or in a union
    words = tuple(word for part in choices for word in get_args(part) if word) or _words(command, name, metavar)
    takes: Takes = "nothing" if kind is bool else "words" if words else _KINDS.get(metavar, "text")
    repeats = get_origin(kind) is tuple
    return Argument(name, said.help or "", metavar, takes, words, repeats)


def _words(command: str, name: str, metavar: str) -> tuple[str, ...]:
    """What may stand where the type does not say it, read from sources: torch takes seconds to import."""
    if metavar == "TASK":
        return (*task_names(), *(("resume", "report") if command == "sweep" else ()))
    if metavar == "ACTION":
        from scornn.program.cli.data import ACTIONS

        return ACTIONS
    if metavar == "ITEM":
        return (*item_names(), "all", "record", "page")
    if name == "--model":
        return tuple(model_names())
    return ()
