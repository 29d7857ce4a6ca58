"""The command line: ``scornn COMMAND …``.

A command is a module of this package with ``main(argv) -> int``; the first line of its docstring is its line in
``scornn --help``. Modules are imported when their command is called, and torch only inside functions.
"""

import ast
import errno
import os
import shutil
import sys
import textwrap
import traceback
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from scornn import __version__
from scornn.errors import ScornnError, UsageError, suggest

_ORDER = ("train", "resume", "eval", "export", "report", "sweep", "reproduce", "models", "data", "bench", "doctor")
_EXAMPLES = {
    "scornn train copying --until recall=0.99": "the paper's network on its copying problem, until it is solved",
    "scornn train mnist --hidden 170 --epochs 5": "pixel-by-pixel MNIST",
    "scornn resume runs/copying-1000-scornn-190-s5544": "go on after Ctrl-C, a kill or a full disk",
    "scornn report runs/ --out report.html": "one page with curves and tables",
}
_MORE = (
    "`scornn COMMAND --help` explains a command, `scornn completion --help` how your shell completes all this.",
    "--debug shows the traceback of an error.",
    "Exit codes: 0 done, 2 usage, 3 data, 4 checkpoint, 5 diverged, 6 storage, 7 run in use, "
    "129, 130 and 143 interrupted.",
)
_BROKEN_PIPE = 128 + 13
_OF_SEVERAL_PROCESSES = ("train", "resume")
_JOB = ("TORCHELASTIC_RUN_ID", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
"""By which torchrun tells its processes of each other."""


def main(argv: list[str] | None = None) -> int:
    """Run one command; return the exit code."""
    _mend_streams()
    argv = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in argv
    argv = [argument for argument in argv if argument != "--debug"]
    try:
        code = _dispatch(argv)
        sys.stdout.flush()
        return code
    except ScornnError as error:
        return _fail(str(error), error.exit_code, debug)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is still to be flushed at exit goes nowhere
        return _BROKEN_PIPE
    except SystemExit as leaving:  # from the parsers, which have said why
        return leaving.code if isinstance(leaving.code, int) else 2 if leaving.code else 0
    except (MemoryError, RuntimeError) as error:
        known = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
        if not known and "allocate memory" not in str(error):  # torch has no type for that on a CPU
            raise
        line = str(error).partition("\n")[0].rpartition("] ")[2]
        return _fail("not enough memory" + (f": {line}" if line else ""), 6, debug)
    except OSError as error:
        if error.errno is None:
            raise
        where = f"{error.filename}: " if error.filename else ""
        return _fail(f"{where}{os.strerror(error.errno)} ({errno.errorcode.get(error.errno)})", 6, debug)


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


def _fail(message: str, code: int, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    print(f"scornn: {message}", file=sys.stderr)
    return code


def _dispatch(argv: list[str]) -> int:
    _refuse_bytes(argv)
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(_help())
        return 0
    if argv[0] in ("-V", "--version"):
        print(f"scornn {__version__}")
        return 0
    name = argv[0].replace("-", "_")
    if name not in commands():
        raise UsageError(f"unknown command {argv[0]!r}{suggest(name, commands())}")
    if name not in _OF_SEVERAL_PROCESSES and not _alone():
        return 0
    return import_module(f"scornn.program.cli.{name}").main(argv[1:])


def _alone() -> bool:
    """Whether this process is to do what is for one alone: of torchrun's it is the first, which leaves the job."""
    if _JOB[0] not in os.environ:
        return True
    for name in _JOB:
        os.environ.pop(name, None)
    return os.environ.get("RANK") == "0"


def _refuse_bytes(argv: list[str]) -> None:
    """Files and logs are UTF-8, and could not name what is not."""
    for argument in argv:
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise UsageError(
                f"the argument {argument!a} is not UTF-8; give a file another name, or a link to it"
            ) from None


def commands() -> list[str]:
    """The names of all commands, the usual ones first."""
    found = {path.stem for path in Path(__file__).parent.glob("*.py") if not path.stem.startswith("_")}
    return [name for name in _ORDER if name in found] + sorted(found - set(_ORDER))


def _help() -> str:
    width = min(shutil.get_terminal_size().columns, 100)
    lines = ["usage: scornn COMMAND [options]", ""]
    about = "Recurrent networks whose recurrent matrix stays orthogonal: train, compare, reproduce."
    lines += [*textwrap.wrap(about, width), ""]
    for name in commands():
        source = (Path(__file__).parent / f"{name}.py").read_text(encoding="utf-8")
        said = (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]
        lines += textwrap.wrap(f"  {name:<10} {said}", width, subsequent_indent=" " * 13)
    lines += ["", "Try:"]
    for command, does in _EXAMPLES.items():
        lines += [f"  {command}", *textwrap.wrap(does, width, initial_indent=" " * 6, subsequent_indent=" " * 6)]
    lines.append("")
    for text in _MORE:
        lines += textwrap.wrap(text, width, break_on_hyphens=False)
    return "\n".join(lines)
