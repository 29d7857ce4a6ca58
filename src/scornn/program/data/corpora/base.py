"""What a corpus is, and how speakers are held out of one that has no lists of its own."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from scornn.errors import DataError

SPLITS = ("train", "valid", "test")
_EVERY = 8
_MOST_NAMED = 10


@dataclass(frozen=True)
class Utterance:
    """One sound file; ``id`` is unique in its corpus and safe as a file name."""

    id: str
    speaker: str
    split: str
    path: Path


@dataclass(frozen=True)
class Corpus:
    """Utterances in the order of their ids, the rate that they must have (None: any), and what people should know."""

    name: str
    utterances: tuple[Utterance, ...]
    rate: int | None
    notes: tuple[str, ...] = ()


def hold_out(speakers: Iterable[str], where: Path) -> dict[str, str]:
    """A split for each speaker: every eighth of their names in order is for test, every eighth for validation.

    No speaker is in two splits. From three speakers on, each split has one.
    """
    names = sorted(set(speakers))
    if len(names) < len(SPLITS):
        raise DataError(
            f"{where}: found {len(names)} speaker(s) ({listed(names)}), expected at least {len(SPLITS)}, "
            f"to hold out one for validation and one for test"
        )
    test = set(names[_EVERY // 2 - 1 :: _EVERY]) or {names[-1]}
    valid = set(names[_EVERY - 1 :: _EVERY]) or {next(name for name in names if name not in test)}
    return {name: "test" if name in test else "valid" if name in valid else "train" for name in names}


def wav_files(folder: Path) -> Iterator[Path]:
    """Every *.wav below a folder, in any case, in an order that does not depend on the disk."""
    for parent, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            if name.lower().endswith(".wav") and not name.startswith("."):
                yield Path(parent, name)


def listed(names: Iterable[object]) -> str:
    """The first few names, and how many more there are."""
    words = [str(name) for name in names]
    more = len(words) - _MOST_NAMED
    return ", ".join(words[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
