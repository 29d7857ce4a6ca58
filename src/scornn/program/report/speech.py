"""Speech on the page: true and predicted spectrograms side by side, with players, and the audio's scores.

A run's ``audio/`` holds for each utterance ``<utt>.npz`` (arrays ``true`` and ``predicted``, frames × bins,
in dB), ``<utt>.true.wav`` and ``<utt>.predicted.wav``, and ``scores.json``.
"""

import io
import wave
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scornn.errors import first_line
from scornn.program import durable
from scornn.program.report import figures, style
from scornn.program.report.page import Figure, Figures, Heading, Prose, Section, Table, words
from scornn.program.report.runs import finite, mapping

UTTERANCES = 3
MOST_BYTES = 8_000_000
_MOST_VALUES = 4_000_000
_HEARD = ("true", "predicted")


def scores(runs: Sequence[tuple[str, Path]]) -> list[Section]:
    """One table of mean scores for the runs, given as (label, directory), that have any."""
    known = [(label, _scores(_read(path))) for label, path in runs]
    known = [(label, found) for label, found in known if found.get("")]
    if not known:
        return []
    keys = list(dict.fromkeys(key for _, found in known for key in found[""]))
    rows = [[label, len(found) - 1 or None, *(found[""].get(key) for key in keys)] for label, found in known]
    columns = ["run", "utterances", *map(words, keys)]
    sections: list[Section] = [Table(columns, rows, "Mean scores of the audio rebuilt from predictions")]
    notes = [f"{label}: {note}" for label, path in runs for note in _refusals(_read(path))]
    conventions = {key: text for _, path in runs for key, text in mapping(_read(path).get("conventions")).items()}
    if conventions:
        sections.append(Prose([f"{words(key)}: {text}" for key, text in conventions.items()]))
    return [*sections, *([Prose(notes, "note")] if notes else [])]


def examples(run: Path, label: str, *, utterances: int = UTTERANCES) -> list[Section]:
    """The first utterances in ``run/audio``; nothing if there is none."""
    audio = run / "audio"
    if not audio.is_dir():
        return []
    by_name = _scores(_read(run))
    names = sorted(path.stem for path in audio.glob("*.npz"))
    shown: list[Section] = []
    left, notes = MOST_BYTES, []
    for name in names[: max(utterances, 0)]:
        try:
            pair = _spectrograms(audio / f"{name}.npz")
        except Exception as error:  # whatever a damaged archive leads to: the page is made without it
            notes.append(f"{name}.npz cannot be shown: {first_line(error)}")
            continue
        sounds = {kind: _sound(audio / f"{name}.{kind}.wav") for kind in _HEARD}
        for kind, sound in sounds.items():
            if sound is None:
                notes.append(f"{name}.{kind}.wav is missing")
            elif len(sound) > left:
                most = f"the page holds at most {MOST_BYTES / 1e6:.0f} MB of sound"
                notes.append(f"{name}.{kind}.wav is left out: {most}")
                sounds[kind] = None
            else:
                left -= len(sound)
        shown += [Heading(f"{label}: {name}", 3), _side_by_side(name, pair, sounds, by_name.get(name, {}))]
    if len(names) > utterances:
        notes.append(f"{max(utterances, 0)} of {len(names)} utterances are shown; the others are in audio/.")
    return [*shown, *([Prose(notes, "note")] if notes else [])]


def _side_by_side(
    name: str,
    pair: dict[str, NDArray[np.float64]],
    sounds: dict[str, bytes | None],
    marks: dict[str, float],
) -> Figures:
    true = pair["true"]
    limits = (float(np.percentile(true, 5)), float(true.max()))
    if not limits[0] < limits[1]:
        limits = (limits[0] - 1, limits[0] + 1)
    rate = _rate(sounds["true"])
    drawn = []
    for kind in _HEARD:
        frames, bins = pair[kind].shape
        hop = bins - 1
        figure = figures.spectrogram(
            pair[kind],
            seconds=frames * hop / rate,
            kilohertz=rate / 2000,
            limits=limits,
            title="True" if kind == "true" else "Predicted one frame ahead",
        )
        scale = f"{limits[0]:.0f} to {limits[1]:.0f} dB"
        alt = f"Spectrogram of {name}, {kind}: {frames} frames of {bins} bins, {scale}"
        caption = ", ".join(f"{words(key)} {value:.3g}" for key, value in marks.items()) if kind == "predicted" else ""
        drawn.append(Figure(style.svg(figure, alt=alt), caption, audio=sounds[kind], audio_label=f"{name}, {kind}"))
    return Figures(drawn)


def _spectrograms(path: Path) -> dict[str, NDArray[np.float64]]:
    with zipfile.ZipFile(path) as archive:
        if sum(entry.file_size for entry in archive.infolist()) > 8 * _MOST_VALUES:
            raise ValueError(f"it unpacks to more than {8 * _MOST_VALUES / 1e6:.0f} MB")
    pair = {}
    with np.load(path, allow_pickle=False) as arrays:
        for kind in _HEARD:
            if kind not in arrays:
                raise ValueError(f"expected an array {kind!r} in it, found {', '.join(arrays) or 'none'}")
            values = arrays[kind]
            if values.ndim != 2 or min(values.shape) < 2 or values.dtype.kind != "f":
                raise ValueError(f"{kind}: expected frames × bins of floats, found {values.shape} of {values.dtype}")
            pair[kind] = np.nan_to_num(values.astype(np.float64), nan=-50.0, posinf=0.0, neginf=-50.0)
    return pair


def _sound(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _rate(sound: bytes | None) -> int:
    """Samples a second by the wav's header; the paper's 8 kHz where it cannot be read."""
    try:
        with wave.open(io.BytesIO(sound or b"")) as file:
            return file.getframerate() or 8000
    except (wave.Error, EOFError):
        return 8000


def _read(run: Path) -> dict[str, Any]:
    """``scores.json``, empty where there is none that can be read."""
    return durable.read_object(run / "audio" / "scores.json")


def _refusals(content: dict[str, Any]) -> list[str]:
    """Which files a score refused, and which scores could not be computed at all."""
    notes = [f"{words(key)} is missing: {why}" for key, why in mapping(content.get("unavailable")).items()]
    for key, files in mapping(content.get("refused")).items():
        if mapping(files):
            named = "; ".join(f"{name} ({why})" for name, why in mapping(files).items())
            notes.append(f"{words(key)} could not be given for {len(files)} utterances: {named}")
    return notes


def _scores(content: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Numbers by utterance, and under "" those of the whole set."""
    files = mapping(content.get("files"))
    return {name: _numbers(values) for name, values in files.items()} | {"": _numbers(content.get("mean"))}


def _numbers(values: object) -> dict[str, float]:
    numbers = {str(key): finite(value) for key, value in mapping(values).items()}
    return {key: value for key, value in numbers.items() if value is not None}
