"""The command line: ``scornn COMMAND …``.

A command is a module of this package: its docstring is the help, ``Flags`` are the options, and ``main(flags)`` does it
and returns the exit code. torch is imported only inside functions.
"""

import errno
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields
from importlib import import_module
from inspect import cleandoc
from typing import Annotated, Any, Union

import tyro

from scornn import __version__
from scornn.errors import ScornnError, UsageError, suggest
from scornn.program.cli._options import waiting, wrapped

_RUNS = ("train", "resume", "eval", "predict", "export", "report")
COMMANDS = (*_RUNS, "sweep", "sweep resume", "sweep report", "reproduce", "models", "data", "bench", "doctor")
_ABOUT = """Recurrent networks whose recurrent matrix stays orthogonal: train, compare, reproduce.

Examples:
    scornn train copying --until recall=0.99
    scornn train mnist --hidden 170 --epochs 5
    scornn resume runs/copying-1000-scornn-190-s5544
    scornn report runs/ --out report.html

`scornn COMMAND --help` explains a command; --debug shows the traceback of an error.

Exit codes: 0 done, 2 usage, 3 data, 4 checkpoint, 5 diverged, 6 storage, 7 run in use, 129, 130 and 143 interrupted.
"""
_BROKEN_PIPE = 128 + 13
_WITHOUT_TORCH = ("data",)
_FORM = (tyro.conf.FlagCreatePairsOff, tyro.conf.UseAppendAction, tyro.conf.DisallowNone)
"""No ``--no-quiet``; a list is an option given several times."""


def main(argv: list[str] | None = None) -> int:
    """Run one command; return the exit code."""
    _mend_streams()
    argv = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in argv
    try:
        code = _run([argument for argument in argv if argument != "--debug"])
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is still to be flushed at exit goes nowhere
        return _BROKEN_PIPE
    except SystemExit as leaving:  # from the parser, which has said why
        return leaving.code if isinstance(leaving.code, int) else 2 if leaving.code else 0
    except Exception as error:
        message, code = _explained(error)
        if not code:
            raise
        if debug:
            traceback.print_exc()
        print(f"scornn: {message}", file=sys.stderr)
        return code


def _explained(error: Exception) -> tuple[str, int]:
    """What to say of an error, and the exit code; 0 for a bug."""
    if isinstance(error, ScornnError):
        return str(error), error.exit_code
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError" or "allocate memory" in str(error):
        line = str(error).partition("\n")[0].rpartition("] ")[2]
        return "not enough memory" + (f": {line}" if line else ""), 6
    if isinstance(error, OSError) and error.errno is not None:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{os.strerror(error.errno)} ({errno.errorcode.get(error.errno)})", 6
    if isinstance(error, UnicodeError):
        return f"names and files must be UTF-8: {error}", 2
    return (f"nested too deep: {error}", 2) if isinstance(error, RecursionError) else ("", 0)


def _mend_streams() -> None:
    """Standard streams that are there and write any character: a closed one, or one in latin-1, costs no run."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = getattr(sys, name)
        if stream is None:  # closed; files that are opened must not get its number
            descriptor = os.open(os.devnull, os.O_WRONLY)
            if descriptor != number:
                os.dup2(descriptor, number)
            setattr(sys, name, open(number, "w", encoding="utf-8", closefd=False))  # noqa: SIM115
        elif hasattr(stream, "reconfigure"):
            with suppress(OSError):  # a file that was opened twice cannot be asked where it stands
                stream.reconfigure(errors="replace")


def _run(argv: list[str]) -> int:
    argv = ["--help"] if argv in ([], ["help"]) else argv
    if argv[0] in ("-V", "--version"):
        print(f"scornn {__version__}")
        return 0
    words = 2 if " ".join(argv[:2]) in COMMANDS and len(argv) > 1 else 1
    name, rest = " ".join(argv[:words]), argv[words:]
    if name in COMMANDS:
        flags = _parse(_flags(name), name, rest, _description(name))
        if name not in _WITHOUT_TORCH and "torch" not in sys.modules:
            with waiting("loading PyTorch"):
                import_module("torch")
        return int(sys.modules[type(flags).__module__].main(flags))
    if not name.startswith("-"):
        raise UsageError(f"unknown command {name!r}{suggest(name, COMMANDS)}")
    every: Any = Union[tuple(_subcommand(command) for command in COMMANDS)]  # noqa: UP007
    _parse(every, "", argv, _ABOUT)
    return 0


def _parse(kind: Any, name: str, argv: list[str], description: str) -> Any:
    """Parse with suggestions for misspelt options. An option that is not a list may be given once, and not empty."""
    if {"-h", "--help"} & set(argv):
        print(wrapped(description), end="\n\n")  # tyro's own rendering breaks words at the terminal's edge
    with _no_colour_if_asked():
        flags = tyro.cli(kind, args=argv, prog=f"scornn {name}".rstrip(), description="", config=_FORM)
    given = [argument.partition("=")[0].replace("_", "-") for argument in argv if argument.startswith("--")]
    for field in fields(flags):
        option, value = f"--{field.name.replace('_', '-')}", getattr(flags, field.name)
        if given.count(option) > 1 and not isinstance(value, tuple):
            raise UsageError(f"{option} is given {given.count(option)} times; expected once")
        if value == "" and field.default != "":
            raise UsageError(f"{option} is empty: expected a value")
    return flags


def _flags(name: str) -> Any:
    module, _, action = name.partition(" ")
    return getattr(import_module(f"scornn.program.cli.{module}"), f"{action.capitalize()}Flags")


def _description(name: str) -> str:
    flags = _flags(name)
    return cleandoc((flags if " " in name else sys.modules[flags.__module__]).__doc__ or "")


def _subcommand(name: str) -> Any:
    first = _description(name).partition("\n")[0]
    return Annotated[_flags(name), tyro.conf.subcommand(name, description=first)]


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
