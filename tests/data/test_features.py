"""Features: what they are, that the cache is never trusted blindly, and that bad files are listed."""

import logging
from pathlib import Path

import numpy as np
import pytest
import soundfile

from scornn.errors import DataError
from scornn.program.data import corpora, features, stft

SPEAKERS = ("anna", "berta", "carl")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three speakers of three sounds, and a cache of this test alone."""
    monkeypatch.setenv("SCORNN_CACHE", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    for speaker in SPEAKERS:
        (tmp_path / "wav" / speaker).mkdir(parents=True)
        for k in range(3):
            noise = rng.uniform(-0.5, 0.5, 1000 + 700 * k)
            soundfile.write(tmp_path / "wav" / speaker / f"{k}.wav", noise, 16_000, subtype="PCM_16")
    return tmp_path / "wav"


def load(folder: Path, allow_partial: bool = False) -> features.Features:
    return features.load(corpora.load("folder", folder), allow_partial=allow_partial)


def test_frames_are_those_of_the_files(folder: Path) -> None:
    loaded = load(folder)
    assert len(loaded.utterances) == 9
    for index, utterance in enumerate(loaded.utterances):
        samples = stft.resample(soundfile.read(utterance.path)[0], 16_000)
        expected = stft.log_magnitude(stft.forward(samples))
        assert np.array_equal(loaded.of(index), expected)


def cached(folder: Path) -> list[Path]:
    return sorted((folder.parent / "cache" / "features").iterdir())


def test_cache_is_used_and_gives_the_same(folder: Path) -> None:
    first = load(folder)
    _, frames = cached(folder)
    written = frames.stat().st_mtime_ns
    second = load(folder)
    assert frames.stat().st_mtime_ns == written
    assert np.array_equal(first.frames, second.frames)
    assert np.array_equal(first.starts, second.starts)
    assert first.fingerprint == second.fingerprint


def test_a_changed_file_is_another_fingerprint(folder: Path) -> None:
    first = load(folder)
    path = first.utterances[0].path
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    second = load(folder)
    assert first.fingerprint["files"] != second.fingerprint["files"]
    assert not np.array_equal(first.frames, second.frames)
    assert len(cached(folder)) == 4


@pytest.mark.parametrize("damage", ["flip", "cut", "manifest"])
def test_a_damaged_cache_is_computed_again(folder: Path, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    first = load(folder)
    manifest, frames = cached(folder)
    content = bytearray(frames.read_bytes())
    if damage == "flip":
        content[len(content) // 2] ^= 4
        frames.write_bytes(content)
    elif damage == "cut":
        frames.write_bytes(content[: len(content) // 2])
    else:
        manifest.write_text('{"sha256": "", "lengths": "none"')
    second = load(folder)
    assert np.array_equal(first.frames, second.frames)
    assert "is computed again" in caplog.text
    caplog.clear()
    assert np.array_equal(load(folder).frames, first.frames)
    assert caplog.text == ""


def test_a_cache_that_cannot_be_written(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("SCORNN_CACHE", str(tmp_path / "file"))
    assert len(load(folder).utterances) == 9
    assert "features are not cached" in caplog.text


def spoil(folder: Path) -> None:
    (folder / "anna" / "0.wav").write_bytes(b"")
    (folder / "anna" / "1.wav").write_text("<html>")
    soundfile.write(folder / "berta" / "2.wav", np.zeros(3000), 16_000)
    soundfile.write(folder / "carl" / "0.wav", np.ones((3000, 2)) / 3, 16_000)
    soundfile.write(folder / "carl" / "1.wav", np.random.default_rng(0).uniform(-1, 1, 100), 16_000)


def test_bad_files_are_listed(folder: Path) -> None:
    spoil(folder)
    for _ in range(2):  # computed, then from the cache
        with pytest.raises(DataError) as caught:
            load(folder)
        message = str(caught.value)
        assert message.startswith("5 of 9 files of folder cannot be used: ")
        for name in (
            "anna/0.wav: found an empty file",
            "anna/1.wav: found an HTML",
            "berta/2.wav: silent",
            "--allow-partial",
        ):
            assert name in message
        for name in ("carl/0.wav: found 2 channels", "carl/1.wav: 0.006 seconds"):
            assert name in message
    loaded = load(folder, allow_partial=True)
    assert len(loaded.utterances) == 4
    assert len(loaded.skipped) == 5
    assert len(loaded.starts) == 5
    for index, utterance in enumerate(loaded.utterances):
        expected = stft.log_magnitude(stft.forward(features.waveform(utterance.path, None)))
        assert np.array_equal(loaded.of(index), expected)


def test_nothing_left_to_train_on(folder: Path) -> None:
    for path in folder.glob("*/*.wav"):
        path.write_bytes(b"RIFF")
    with pytest.raises(DataError, match=r"no utterance that can be used is left for train: .*anna/0\.wav"):
        load(folder, allow_partial=True)


def test_a_file_that_goes_away(folder: Path) -> None:
    corpus = corpora.load("folder", folder)
    (folder / "anna" / "0.wav").unlink()
    with pytest.raises(DataError, match=r"anna/0\.wav: cannot be read: No such file"):
        features.load(corpus)


def test_other_rates_of_a_folder(folder: Path) -> None:
    tone = 0.5 * np.sin(2 * np.pi * 440 * np.arange(22_050) / 22_050)
    soundfile.write(folder / "anna" / "0.wav", tone, 22_050)
    loaded = load(folder)
    peak = loaded.of([u.path.match("anna/0.wav") for u in loaded.utterances].index(True))[30].argmax()
    assert peak == round(440 / (8_000 / 256))


def test_the_real_sample(shared_data: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        loaded = features.load(corpora.load("timit", shared_data, allow_partial=True))
    assert len(loaded.utterances) == 128
    assert loaded.frames.shape == (24_821, 129)
    assert loaded.frames.min() == stft.SILENCE
    assert loaded.skipped == ()
