"""Sequences of your own: a folder of NumPy files, ``train_x.npy``, ``train_y.npy`` and so on, checked as a whole.

``x`` is (N, T, m), N sequences of T steps of m numbers, or (N, T) where m is one. ``lengths`` (N,) says how many of the
T steps count, where not all of them do. Whole numbers in ``y`` are classes, one of a sequence (N,) or one of each step
(N, T); floats are values, (N,) or (N, p) of a sequence, (N, T, p) of each step.

Files are mapped, not read: they may be larger than the memory.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scornn.errors import DataError
from scornn.program import durable

SPLITS = ("train", "valid", "test")
_NAMES = ("x", "y", "lengths")
_CHUNK = 1 << 22
"""Numbers to look at in one go."""
_NUMBERED = "; numpy.unique(labels, return_inverse=True)[1] numbers labels of any kind"
_LARGE_INPUT, _LARGE_TARGET = 100.0, 30.0
"""Beyond these a network is slow to learn, if it learns at all."""
_FEW = 20
"""No more whole numbers than this, saved as floats, are more likely classes than values."""


@dataclass(frozen=True)
class Part:
    """The sequences of one split.

    Args:
        x: (N, T, m), any real type.
        y: classes (N,) or (N, T), values (N, p) or (N, T, p).
        lengths: (N,) int64 from 1 to T, or None where every step counts.
        largest: the largest absolute number in x, padding aside.
        labels: the classes in y, padding aside.
    """

    x: NDArray[Any]
    y: NDArray[Any]
    lengths: NDArray[np.int64] | None
    largest: float = 0.0
    labels: set[int] = field(default_factory=set)

    @property
    def classes(self) -> bool:
        """True if the targets are classes, not values."""
        return self.y.dtype.kind in "biu"

    @property
    def at_every_step(self) -> bool:
        """True if each step has a target, not each sequence."""
        return self.y.ndim == (2 if self.classes else 3)

    def counts(self, rows: slice | NDArray[np.int64], steps: int) -> NDArray[np.bool_]:
        """(rows, steps): True before the end of each sequence."""
        ends = np.broadcast_to(self.x.shape[1], len(self.x)) if self.lengths is None else self.lengths
        return np.arange(steps) < ends[rows, np.newaxis]

    def targets(self) -> Iterator[NDArray[Any]]:
        """All targets without padding, in pieces (M,) of classes or (M, p) of values."""
        for rows in _pieces(self.y):
            y = self.y[rows]
            yield y[self.counts(rows, y.shape[1])] if self.at_every_step else y


def load(folder: Path) -> tuple[dict[str, Part], dict[str, str]]:
    """The splits of a folder, all of one form, and the sha256 of each file. ``valid`` may be missing."""
    given = [split for split in SPLITS if split != "valid" or any(map(os.path.lexists, _files(folder, split)))]
    parts = {split: _read_part(folder, split) for split in given}
    for split, part in parts.items():
        for file, form, expected in zip(_files(folder, split), _forms(part), _forms(parts["train"]), strict=False):
            if form != expected:
                raise DataError(f"{file}: found {form}, but training has {expected}; expected the same")
    files = (file for split in parts for file in _files(folder, split) if file.exists())
    return parts, {file.name: f"sha256 {durable.sha256_file(file)}" for file in files}


def sequences(x_file: Path, lengths_file: Path | None = None) -> Part:
    """Sequences without targets, for a trained network."""
    x = _sequences(x_file)
    lengths = None if lengths_file is None else _lengths(lengths_file, *x.shape[:2])
    part = Part(x, np.zeros(len(x), dtype=np.int64), lengths)
    return replace(part, largest=_largest(x_file, part, x))


def class_count(folder: Path, parts: Mapping[str, Part]) -> int:
    """The number of classes in the targets of all splits."""
    for split, part in parts.items():
        if (least := min(part.labels)) < 0:
            file = _files(folder, split)[1]
            raise DataError(f"{file}: found the class {least}; expected classes from 0 on{_NUMBERED}")
    split = max(parts, key=lambda split: max(parts[split].labels))
    largest, targets = max(parts[split].labels), parts["train"].y.size
    if not 1 <= largest <= targets:
        raise DataError(
            f"{_files(folder, split)[1]}: found classes up to {largest} and {targets} targets in training; expected at "
            "least two classes, numbered from 0 on. Values that are to be predicted are saved as floats"
        )
    return largest + 1


def doubts(folder: Path, parts: Mapping[str, Part]) -> list[str]:
    """What looks like a mistake and may be none, each in a sentence."""
    train, (x_file, y_file, _) = parts["train"], _files(folder, "train")
    steps, numbers = train.x.shape[1:]
    found = []
    if numbers >= 4 * steps:
        found.append(f"{x_file}: {steps} steps of {numbers} numbers each; is it (N, T, m), steps before numbers?")
    if train.largest > _LARGE_INPUT:
        found.append(f"{x_file}: numbers up to {train.largest:.3g}; those around one are learned best: scale them")
    without = [split for split, part in parts.items() if part.lengths is None]
    if 0 < len(without) < len(parts):
        files = " and ".join(_files(folder, split)[2].name for split in without)
        found.append(f"{folder}: other splits have lengths, but there is no {files}; every step counts there")
    return found + (_about_classes(folder, parts) if train.classes else _about_values(y_file, train))


def _about_classes(folder: Path, parts: Mapping[str, Part]) -> list[str]:
    files = {split: _files(folder, split)[1] for split in parts}
    train, seen = parts["train"].labels, set[int]().union(*(part.labels for part in parts.values()))
    found = []
    for split, file in files.items():
        if new := sorted(parts[split].labels - train):
            found.append(f"{file}: of {_listed(new)} there is no example in {files['train'].name}")
    if missing := sorted({*range(max(seen))} - seen):
        found.append(f"{files['train']}: no target is of {_listed(missing)}; classes are numbered from 0 on")
    return found


def _listed(classes: list[int]) -> str:
    shown = ", ".join(str(one) for one in classes[:5])
    more = f" and {len(classes) - 5:,} more" if len(classes) > 5 else ""
    return f"class{'es' * (len(classes) > 1)} {shown}{more}"


def _about_values(file: Path, train: Part) -> list[str]:
    squares, count, whole = 0.0, 0, set[float]()
    for y in train.targets():
        squares, count = squares + float(np.square(y, dtype=np.float64).sum()), count + y.size
        if len(whole) <= _FEW:
            whole |= {*np.unique(y).tolist()}
    found = []
    if (size := (squares / count) ** 0.5) > _LARGE_TARGET:
        found.append(f"{file}: values of the size of {size:.3g}; those around one are learned best: scale them")
    if len(whole) <= _FEW and all(value.is_integer() for value in whole):
        found.append(f"{file}: whole numbers as floats are values; as integers, astype(int), they are classes")
    return found


def _files(folder: Path, split: str) -> list[Path]:
    return [folder / f"{split}_{name}.npy" for name in _NAMES]


def _forms(part: Part) -> tuple[str, str]:
    """What x and y of every split have in common, in words."""
    kind = "classes" if part.classes else f"{part.y.shape[-1]} values"
    return f"{part.x.shape[2]} numbers a step", f"{kind} {'at every step' if part.at_every_step else 'a sequence'}"


def _read_part(folder: Path, split: str) -> Part:
    x_file, y_file, lengths_file = _files(folder, split)
    x, y = _sequences(x_file), _read(y_file)
    N, T, _ = x.shape
    y = y[:, np.newaxis] if y.dtype.kind == "f" and y.ndim == 1 else y
    where = y.shape if y.dtype.kind in "biu" else y.shape[:-1] if y.dtype.kind == "f" else None
    if where not in ((N,), (N, T)) or 0 in y.shape:
        raise DataError(
            f"{y_file}: found {y.dtype} of shape {y.shape}; expected classes as integers ({N},), at every step "
            f"({N}, {T}), or values as floats ({N}, p), at every step ({N}, {T}, p)" + _hint(y)
        )
    part = Part(x, y, _lengths(lengths_file, N, T) if os.path.lexists(lengths_file) else None)
    if part.classes:
        labels = set[int]().union(*(np.unique(piece).tolist() for piece in part.targets()))
        return replace(part, largest=_largest(x_file, part, x), labels=labels)
    _largest(y_file, part, y)
    return replace(part, largest=_largest(x_file, part, x))


def _sequences(file: Path) -> NDArray[Any]:
    x = _read(file)
    x = x[:, :, np.newaxis] if x.ndim == 2 else x
    if x.ndim != 3 or 0 in x.shape or x.dtype.kind not in "biuf":
        raise DataError(
            f"{file}: found {x.dtype} of shape {x.shape}; expected real numbers (N, T, m), N sequences of T steps of "
            "m numbers, or (N, T)"
        )
    return x


def _hint(y: NDArray[Any]) -> str:
    """How to make targets of what was given, where that can be seen."""
    if y.dtype.kind not in "biuf":
        return _NUMBERED
    if y.dtype.kind == "f" or y.ndim != 2:
        return ""
    if y.shape[1] == 1:
        return "; y[:, 0] is of the first form"
    one_hot = bool(((y == 0) | (y == 1)).all() and (y.sum(axis=1) == 1).all())
    return "; y.argmax(1) numbers classes that are one-hot" if one_hot else ""


def _read(file: Path) -> NDArray[Any]:
    try:
        return np.lib.format.open_memmap(file, mode="r")  # no pickle: objects cannot be mapped
    except (FileNotFoundError, NotADirectoryError):
        raise DataError(
            f"{file} is missing; expected x and y of train and of test there, such as train_x.npy, each written by "
            "numpy.save"
        ) from None
    except Exception as error:  # over damaged files NumPy fails in every way
        ragged = "; sequences of different lengths are padded to one, and their lengths are saved beside them"
        instead = "; astype(int) makes classes of them, astype(float) values" if file.stem.endswith("_y") else ragged
        raise DataError(
            f"{file}: expected an array of numbers, as numpy.save writes it: {error}"
            + (instead if "objects" in str(error) else "")
        ) from None


def _lengths(file: Path, N: int, T: int) -> NDArray[np.int64]:
    lengths = _read(file)
    if lengths.shape != (N,) or lengths.dtype.kind not in "iu":
        raise DataError(f"{file}: found {lengths.dtype} of shape {lengths.shape}; expected integers ({N},)")
    if lengths.min() < 1 or lengths.max() > T:
        raise DataError(f"{file}: found {lengths.min()} to {lengths.max()}; expected 1 to {T}, the steps of x")
    return lengths.astype(np.int64)


def _largest(file: Path, part: Part, array: NDArray[Any]) -> float:
    """The largest absolute number; refuses one that is not finite. Padding is not looked at."""
    largest = 0.0
    for rows in _pieces(array):
        piece = array[rows]
        size = np.abs(piece if piece.dtype.kind == "f" else piece.astype(np.float64))
        if array.ndim == 3:
            size[~part.counts(rows, array.shape[1])] = 0
        if (bad := ~(size <= np.finfo(np.float32).max)).any():  # networks take float32
            row = rows.start + int(np.argmax(bad.reshape(len(bad), -1).any(axis=1)))
            raise DataError(
                f"{file}: sequence {row}, counted from 0, holds NaN, infinity or a number beyond float32; expected "
                "finite numbers"
            )
        largest = max(largest, float(size.max()))
    return largest


def _pieces(array: NDArray[Any]) -> Iterator[slice]:
    rows = max(1, _CHUNK // array[0].size)
    return (slice(first, first + rows) for first in range(0, len(array), rows))
