"""Loads the kernel library (``csrc/``) and describes its C interface to ctypes.

The library is optional: where it is missing, damaged or of another version, :func:`load` says why and nothing
else happens. Its digest is shipped beside it and checked before it is mapped: a truncated library ends in SIGBUS, one
with other bytes in SIGSEGV or in wrong numbers.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
from functools import cache
from pathlib import Path
from typing import Any

ABI_VERSION = 8
NAMES = ("libscornn.so", "libscornn.dylib", "scornn.dll")
ISA = {"best": 0, "portable": 1, "avx2": 2, "avx512": 3}
MAP = {"fourier": 0, "rotations": 1}
STATUS = {1: "out of memory", 2: "invalid arguments", 3: "not accurate"}
INACCURATE = 3


def _fields(kind: Any, names: str) -> list[tuple[str, Any]]:
    """Fields of one type, in this order."""
    return [(name, kind) for name in names.split()]


class MapStruct(ctypes.Structure):
    """``struct scornn_map`` of ``csrc/scornn.h``."""

    _fields_ = (
        *_fields(ctypes.c_int32, "kind layers"),
        ("index", ctypes.c_void_p),
        ("factor", ctypes.c_void_p * 3),
    )


class SequenceStruct(ctypes.Structure):
    """``struct scornn_sequence`` of ``csrc/scornn.h``, where the fields are explained."""

    _fields_ = (
        *_fields(ctypes.c_int64, "steps batch hidden input heads"),
        *_fields(ctypes.c_int32, "dtype cell reverse isa"),
        *_fields(ctypes.c_void_p, "batch_sizes x"),
        ("x_stride", ctypes.c_int64 * 3),
        *_fields(ctypes.c_void_p, "h0 W U b output h_n V c y c0 c_n c_all gates"),
        ("map", ctypes.POINTER(MapStruct)),
    )


class GradientsStruct(ctypes.Structure):
    """``struct scornn_gradients`` of ``csrc/scornn.h``."""

    _fields_ = (
        ("output", ctypes.c_void_p),
        ("output_stride", ctypes.c_int64 * 3),
        *_fields(ctypes.c_void_p, "h_n y c_n x h0 c0 W U b V"),
        ("factor", ctypes.c_void_p * 3),
    )


class Task(ctypes.Structure):
    """``struct scornn_task``: the forward pass, or with gradients the backward pass, of a range of rows."""

    _fields_ = (
        ("sequence", ctypes.POINTER(SequenceStruct)),
        ("gradients", ctypes.POINTER(GradientsStruct)),
        ("row_begin", ctypes.c_int64),
        ("row_end", ctypes.c_int64),
        ("status", ctypes.c_int32),
    )


class Tasks(ctypes.Structure):
    """``struct scornn_tasks``: a list that threads share."""

    _fields_ = (("tasks", ctypes.POINTER(Task)), ("count", ctypes.c_int64), ("next", ctypes.c_int64))


class CayleyStruct(ctypes.Structure):
    """``struct scornn_cayley``: from the free numbers of A to W, or from the gradient of W to theirs."""

    _fields_ = (
        *_fields(ctypes.c_int64, "size bandwidth"),
        *_fields(ctypes.c_int32, "dtype isa"),
        ("tolerance", ctypes.c_double),
        *_fields(ctypes.c_void_p, "v D W R dW dv"),
    )


class OperationStruct(ctypes.Structure):
    """``struct scornn_operation``: one operation of a frame."""

    _fields_ = (
        *_fields(ctypes.c_int32, "kind cell"),
        *_fields(ctypes.c_int64, "n m"),
        ("number", ctypes.c_double),
        ("weights", ctypes.c_void_p * 2),
        ("x", ctypes.c_int64 * 3),
        ("y", ctypes.c_int64),
    )


class NetworkStruct(ctypes.Structure):
    """``struct scornn_network``: what a stream is prepared from."""

    _fields_ = (
        *_fields(ctypes.c_int32, "dtype isa"),
        *_fields(ctypes.c_int64, "batch arrays operations"),
        *_fields(ctypes.c_void_p, "array_size array_start operation"),
    )


STRUCTS = (SequenceStruct, GradientsStruct, Task, Tasks, MapStruct, CayleyStruct, OperationStruct, NetworkStruct)
"""In the order of ``enum scornn_struct``."""


class Unavailable(Exception):
    """Why the library cannot be used."""


class Library:
    """The kernel, ready to be called.

    ``isa`` is the number of the instruction set that it uses, ``digest`` the sha256 of the file.
    """

    def __init__(self, path: Path) -> None:
        self.digest = _checked_digest(path)
        try:
            library = ctypes.CDLL(str(path))
            library.scornn_abi_version.restype = ctypes.c_int32
            version = library.scornn_abi_version()
        except (OSError, AttributeError) as error:
            raise Unavailable(f"{path.name} cannot be loaded: {error}") from error
        if version != ABI_VERSION:
            raise Unavailable(f"{path} has interface version {version}, expected {ABI_VERSION}; reinstall scornn")
        _check_structs(library, path)
        self.work = library.scornn_work
        self.work.argtypes = [ctypes.c_void_p]
        self.work.restype = None
        self.cayley_forward = library.scornn_cayley_forward
        self.cayley_backward = library.scornn_cayley_backward
        for call in (self.cayley_forward, self.cayley_backward):
            call.argtypes = [ctypes.POINTER(CayleyStruct)]
            call.restype = ctypes.c_int32
        self.prepare = library.scornn_prepare
        self.prepare.argtypes = [ctypes.POINTER(NetworkStruct), ctypes.c_void_p]
        self.prepare.restype = ctypes.c_int64
        self.step = library.scornn_step
        self.step.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p]
        self.step.restype = ctypes.c_int64
        self.reset = library.scornn_reset
        self.reset.argtypes = [ctypes.c_void_p]
        self.reset.restype = None
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


def _checked_digest(path: Path) -> str:
    """The sha256 of the library, which has to be the one that its build wrote beside it."""
    beside = path.with_name(f"{path.name}.sha256")
    try:
        expected = beside.read_text(encoding="ascii", errors="replace").strip()
    except FileNotFoundError:
        raise Unavailable(f"{beside} is missing, so that {path.name} cannot be checked; reinstall scornn") from None
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != expected:
        raise Unavailable(f"{path} is damaged: its sha256 is {found}, expected {expected}; reinstall scornn")
    return found


def _check_structs(library: ctypes.CDLL, path: Path) -> None:
    library.scornn_struct_size.restype = ctypes.c_int64
    for number, struct in enumerate(STRUCTS):
        size = library.scornn_struct_size(number)
        if size != ctypes.sizeof(struct):
            raise Unavailable(
                f"{path}: its {struct.__name__} has {size} bytes, expected {ctypes.sizeof(struct)}; reinstall scornn"
            )


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


def instruction_set() -> str | None:
    """The instruction set that the kernel uses here; None where there is no kernel."""
    loaded = load()
    return None if isinstance(loaded, str) else loaded.isa_name


def digest() -> str | None:
    """The sha256 of the kernel library that is loaded; None where there is none."""
    loaded = load()
    return None if isinstance(loaded, str) else loaded.digest
