"""Log-magnitude frames of a corpus, computed once and cached under a fingerprint of the files and the
settings.

The cache is ``features/`` in the cache directory: for each fingerprint a safetensors file with the frames,
and a JSON manifest, written last, with its sha256. A cache that is damaged or cannot be written costs time,
never a wrong result.
"""

import hashlib
import json
import logging
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from scornn.errors import DataError, ScornnError
from scornn.program import durable
from scornn.program.data import audio, locate, stft
from scornn.program.data.corpora.base import SPLITS, Corpus, Utterance, listed
from scornn.program.progress import Bar

_WORKERS = min(os.cpu_count() or 1, 8)
_log = logging.getLogger(__name__)


def _settings() -> dict[str, Any]:
    """What features depend on besides the sounds."""
    audio.library()
    return {
        "format": 1,
        "rate": stft.RATE,
        "window": stft.WINDOW,
        "hop": stft.HOP,
        "epsilon": stft.EPSILON,
        "numpy": np.__version__,
        "scipy": version("scipy"),
    }


@dataclass(frozen=True)
class Features:
    """The frames of a corpus, one utterance after the other.

    Args:
        frames: (N, 129) float32 in dB.
        starts: (U + 1,) int64; utterance u is ``frames[starts[u] : starts[u + 1]]``.
        utterances: U of them: the corpus's without the skipped.
        skipped: path and reason of each file that cannot be used.
        fingerprint: what identifies the files and the frames made of them.
    """

    frames: NDArray[np.float32]
    starts: NDArray[np.int64]
    utterances: tuple[Utterance, ...]
    skipped: tuple[str, ...]
    fingerprint: dict[str, str]

    def of(self, index: int) -> NDArray[np.float32]:
        """(L, 129): the frames of one utterance."""
        return self.frames[self.starts[index] : self.starts[index + 1]]


class _Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sha256: str
    lengths: list[int]
    refused: list[str | None]


def waveform(path: Path, expected_rate: int | None) -> NDArray[np.float64]:
    """The samples of a file at 8 kHz."""
    return stft.resample(*audio.read(path, expected_rate))


def load(corpus: Corpus, *, allow_partial: bool = False) -> Features:
    """The features of a corpus, from the cache or computed now.

    A file that cannot be used is an error that lists it, or, with ``allow_partial``, a skip that is listed;
    so is a split left without utterances.
    """
    with ThreadPoolExecutor(_WORKERS) as pool:
        hashes = list(pool.map(_sha256, corpus.utterances))
    identity = [[u.id, u.split, sha256] for u, sha256 in zip(corpus.utterances, hashes, strict=True)]
    files = hashlib.sha256(json.dumps(identity).encode()).hexdigest()
    key = hashlib.sha256(json.dumps([_settings(), corpus.rate, files]).encode()).hexdigest()
    cache = locate.cache_directory() / "features" / f"{corpus.name}-{key[:32]}.safetensors"
    frames, manifest = _cached(cache) or _extract(corpus, cache)

    judged = list(zip(corpus.utterances, manifest.refused, strict=True))
    kept = [u for u, reason in judged if reason is None]
    skipped = tuple(f"{u.path}: {reason}" for u, reason in judged if reason is not None)
    _check_left(corpus, kept, skipped, allow_partial)
    starts = np.cumsum([0, *(length for length in manifest.lengths if length)], dtype=np.int64)
    fingerprint = {
        "corpus": f"{corpus.name}: {len(kept)} utterances, {len(frames)} frames, {len(skipped)} skipped",
        "files": f"sha256 {files}",
        "frames": f"sha256 {manifest.sha256}",
        **{split: f"{sum(u.split == split for u in kept)} utterances" for split in SPLITS},
    }
    return Features(frames, starts, tuple(kept), skipped, fingerprint)


def _sha256(utterance: Utterance) -> str:
    try:
        return durable.sha256_file(utterance.path)
    except OSError as error:
        raise DataError(f"{utterance.path}: cannot be read: {error.strerror}") from error


def _check_left(corpus: Corpus, kept: list[Utterance], skipped: tuple[str, ...], allow_partial: bool) -> None:
    if skipped and not allow_partial:
        raise DataError(
            f"{len(skipped)} of {len(corpus.utterances)} files of {corpus.name} cannot be used: {listed(skipped)}. "
            f"To go on without them, pass --allow-partial"
        )
    for split in SPLITS:
        if not any(utterance.split == split for utterance in kept):
            reasons = f": {listed(skipped)}" if skipped else ""
            raise DataError(f"{corpus.name}: no utterance that can be used is left for {split}{reasons}")


def _extract(corpus: Corpus, cache: Path) -> tuple[NDArray[np.float32], _Manifest]:
    """Compute all frames, in parallel, and cache them."""

    def one(utterance: Utterance) -> NDArray[np.float32] | str:
        try:
            return stft.log_magnitude(stft.forward(waveform(utterance.path, corpus.rate)))
        except DataError as error:
            return str(error).removeprefix(f"{utterance.path}: ")

    results = []
    title = f"features of {len(corpus.utterances)} utterances"
    with Bar(title, len(corpus.utterances), aside=True) as bar, ThreadPoolExecutor(_WORKERS) as pool:
        for result in pool.map(one, corpus.utterances):
            results.append(result)
            bar.update(len(results))
    pieces = [result for result in results if not isinstance(result, str)]
    lengths = [0 if isinstance(result, str) else len(result) for result in results]
    refused = [result if isinstance(result, str) else None for result in results]
    frames = np.concatenate([np.empty((0, stft.BINS), np.float32), *pieces])
    content = safetensors.numpy.save({"frames": frames})
    manifest = _Manifest(hashlib.sha256(content).hexdigest(), lengths, refused)
    try:
        durable.make_directory(cache.parent)
        durable.write_bytes(cache, content)
        durable.write_bytes(cache.with_suffix(".json"), msgspec.json.encode(manifest))
    except ScornnError as error:
        _log.warning("features are not cached: %s", error)
    return frames, manifest


def _cached(cache: Path) -> tuple[NDArray[np.float32], _Manifest] | None:
    """The cached frames if they are there and whole."""
    try:
        manifest = msgspec.json.decode(cache.with_suffix(".json").read_bytes(), type=_Manifest)
        content = cache.read_bytes()
        if hashlib.sha256(content).hexdigest() != manifest.sha256:
            raise ValueError("its sha256 is not the manifest's")
        return safetensors.numpy.load(content)["frames"], manifest
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, msgspec.MsgspecError, safetensors.SafetensorError) as error:
        _log.warning("%s is computed again: %s", cache, error)
        return None
