"""Speech corpora: which files, whose voice, and which of train, valid and test each belongs to."""

from pathlib import Path

from scornn.program.data.corpora import folder, iban, timit
from scornn.program.data.corpora.base import SPLITS, Corpus, Utterance

LOADERS = {"timit": timit.load, "iban": iban.load, "folder": folder.load}

__all__ = ["LOADERS", "SPLITS", "Corpus", "Utterance", "load"]


def load(name: str, data: Path | None = None, *, allow_partial: bool = False) -> Corpus:
    """The corpus ``name`` ("timit", "iban" or "folder") in ``data``, ``SCORNN_DATA`` or the cache."""
    return LOADERS[name](data, allow_partial)
