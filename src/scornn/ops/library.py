"""Loads the kernel library (``csrc/``) and describes its C interface to ctypes.

The library is optional: where it is missing, damaged or of another version, :func:`load` says why and nothing
else happens.
"""

from __future__ import annotations

import ctypes
import os
import struct
from functools import cache
from pathlib import Path

ABI_VERSION = 5
NAMES = ("libscornn.so", "libscornn.dylib", "scornn.dll")
ISA = {"best": 0, "portable": 1, "avx2": 2, "avx512": 3}
ACTIVATION = {
    "identity": 0,
    "relu": 1,
    "leaky_relu": 2,
    "tanh": 3,
    "modrelu": 4,
    "complex_modrelu": 5,
    "lstm": 6,
    "rotations": 7,
}
STATUS = {1: "out of memory", 2: "invalid arguments"}


class Sequence(ctypes.Structure):
    """``struct scornn_sequence`` of ``csrc/scornn.h``, where the fields are explained."""

    _fields_ = (
        ("steps", ctypes.c_int64),
        ("batch", ctypes.c_int64),
        ("hidden", ctypes.c_int64),
        ("input", ctypes.c_int64),
        ("heads", ctypes.c_int64),
        ("dtype", ctypes.c_int32),
        ("activation", ctypes.c_int32),
        ("reverse", ctypes.c_int32),
        ("isa", ctypes.c_int32),
        ("batch_sizes", ctypes.c_void_p),
        ("x", ctypes.c_void_p),
        ("x_stride", ctypes.c_int64 * 3),
        ("h0", ctypes.c_void_p),
        ("W", ctypes.c_void_p),
        ("U", ctypes.c_void_p),
        ("b", ctypes.c_void_p),
        ("output", ctypes.c_void_p),
        ("h_n", ctypes.c_void_p),
        ("V", ctypes.c_void_p),
        ("c", ctypes.c_void_p),
        ("y", ctypes.c_void_p),
        ("c0", ctypes.c_void_p),
        ("c_n", ctypes.c_void_p),
        ("cells", ctypes.c_void_p),
        ("gates", ctypes.c_void_p),
    )


class Gradients(ctypes.Structure):
    """``struct scornn_gradients`` of ``csrc/scornn.h``."""

    _fields_ = (
        ("output", ctypes.c_void_p),
        ("output_stride", ctypes.c_int64 * 3),
        ("h_n", ctypes.c_void_p),
        ("y", ctypes.c_void_p),
        ("c_n", ctypes.c_void_p),
        ("x", ctypes.c_void_p),
        ("h0", ctypes.c_void_p),
        ("c0", ctypes.c_void_p),
        ("W", ctypes.c_void_p),
        ("U", ctypes.c_void_p),
        ("b", ctypes.c_void_p),
        ("V", ctypes.c_void_p),
    )


class Task(ctypes.Structure):
    """``struct scornn_task``: the forward pass, or with gradients the backward pass, of a range of rows."""

    _fields_ = (
        ("sequence", ctypes.POINTER(Sequence)),
        ("gradients", ctypes.POINTER(Gradients)),
        ("row_begin", ctypes.c_int64),
        ("row_end", ctypes.c_int64),
        ("status", ctypes.c_int32),
    )


class Tasks(ctypes.Structure):
    """``struct scornn_tasks``: a list that threads share."""

    _fields_ = (("tasks", ctypes.POINTER(Task)), ("count", ctypes.c_int64), ("next", ctypes.c_int64))


class Unavailable(Exception):
    """Why the library cannot be used."""


class Library:
    """The kernel, ready to be called. ``isa`` is the number of the instruction set that it uses."""

    def __init__(self, path: Path) -> None:
        _check_complete(path)
        try:
            library = ctypes.CDLL(str(path))
            library.scornn_abi_version.restype = ctypes.c_int32
            version = library.scornn_abi_version()
        except (OSError, AttributeError) as error:
            raise Unavailable(f"{path.name} cannot be loaded: {error}") from error
        if version != ABI_VERSION:
            raise Unavailable(f"{path} has interface version {version}, expected {ABI_VERSION}; reinstall scornn")
        self.work = library.scornn_work
        self.work.argtypes = [ctypes.c_void_p]
        self.work.restype = None
        self.peak = library.scornn_peak
        self.peak.argtypes = [ctypes.c_int32, ctypes.c_int32, ctypes.c_int64]
        self.peak.restype = ctypes.c_double
        self.isa = _instruction_set(library)
        self.path = path

    @property
    def isa_name(self) -> str:
        return next(name for name, number in ISA.items() if number == self.isa)


def _instruction_set(library: ctypes.CDLL) -> int:
    """The best one of this machine, or the one that the environment variable SCORNN_ISA names."""
    wanted = os.environ.get("SCORNN_ISA", "best")
    if wanted not in ISA:
        raise Unavailable(f"SCORNN_ISA is {wanted!r}; expected one of {', '.join(ISA)}")
    if wanted == "best":
        return int(library.scornn_best_isa())
    if not library.scornn_isa_supported(ISA[wanted]):
        raise Unavailable(f"SCORNN_ISA is {wanted!r}, which this machine or build does not have")
    return ISA[wanted]


def _check_complete(path: Path) -> None:
    """Refuse a truncated ELF file: mapping one ends in SIGBUS. Its section headers come last in the file."""
    with path.open("rb") as file:
        header = file.read(64)
    if header[:5] != b"\x7fELF\x02":
        if header[:4] in (b"\x7fELF", b""):
            raise Unavailable(f"{path} is damaged; reinstall scornn")
        return
    if len(header) == 64:
        sections, entry, count = (*struct.unpack_from("<Q", header, 40), *struct.unpack_from("<HH", header, 58))
        if sections + entry * count <= path.stat().st_size:
            return
    raise Unavailable(f"{path} is truncated; reinstall scornn")


@cache
def load() -> Library | str:
    """The library, or the reason why there is none."""
    import scornn.ops

    for folder in scornn.ops.__path__:
        for name in NAMES:
            path = Path(folder) / name
            if path.exists():
                try:
                    return Library(path)
                except (Unavailable, OSError) as error:
                    return str(error)
    return "the kernel library is not installed; build it by reinstalling scornn where a C++ compiler is found"
