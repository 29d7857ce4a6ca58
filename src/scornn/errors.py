"""What can go wrong that is not a bug, and the exit code of each.

Library code raises these where a person must act (a missing file, a broken checkpoint, a full disk).
The command line prints the message on stderr, without a traceback, and leaves with ``exit_code``.
Wrong arguments to layers and functions are plain ``ValueError`` / ``TypeError``, as in torch.
"""

import difflib
from collections.abc import Iterable


def not_installed(what: str, *packages: str) -> str:
    """The message where something needs packages that are missing: the line installs them from anywhere.

    >>> not_installed("an ONNX file", "onnx", "onnxruntime")
    'an ONNX file needs onnx and onnxruntime: pip install onnx onnxruntime'
    """
    return f"{what} needs {' and '.join(packages)}: pip install {' '.join(packages)}"


def first_line(error: BaseException) -> str:
    """What an error of another program's says, in a line; its kind where it says nothing.

    >>> first_line(ValueError("no such table\\n[SQL: …]")), first_line(KeyError())
    ('no such table', 'KeyError')
    """
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def suggest(word: str, known: Iterable[str]) -> str:
    """The end of a message on an unknown word: the nearest known ones, else a list of them.

    >>> suggest("Trian", ["train", "resume"]), suggest("x", ["train", "resume"])
    ('; did you mean train?', '; known: train, resume')
    """
    names, word = {name.lower(): name for name in known}, word.lower()
    close = [word] if word in names else difflib.get_close_matches(word, names, n=2, cutoff=0.6)
    if close:
        return f"; did you mean {' or '.join(names[name] for name in close)}?"
    return f"; known: {', '.join(names.values())}" if names else ""


class ScornnError(Exception):
    """Base of all of them. The message names what was found, what was expected and what to do."""

    exit_code = 1


class UsageError(ScornnError):
    """A wrong argument or configuration key."""

    exit_code = 2


class DataError(ScornnError):
    """Data missing, truncated, or not what its name says."""

    exit_code = 3


class CheckpointError(ScornnError):
    """A checkpoint that cannot be used, or that belongs to another configuration."""

    exit_code = 4


class DivergedError(ScornnError):
    """A loss or gradient that is not finite. The update was not applied."""

    exit_code = 5


class StorageError(ScornnError):
    """The disk is full, a path is not writable, or a file stands where a directory should."""

    exit_code = 6


class RunInUseError(ScornnError):
    """Another process holds the run directory."""

    exit_code = 7
