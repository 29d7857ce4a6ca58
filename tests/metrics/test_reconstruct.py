"""Rebuilding: exact for true magnitudes up to the 1e-5, and whole when a score or a package is missing."""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from torch import Tensor, nn

from scornn.program import tasks
from scornn.program.data import stft
from scornn.program.metrics.reconstruct import evaluate_audio, predictions, rebuild
from scornn.program.tasks import Speech, SpeechConfig


class Answers(nn.Module):
    """A model with a say of its own in what it answers, given the batch."""

    def __init__(self, answer: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.answer = answer

    def forward(self, inputs: Tensor, lengths: Tensor) -> Tensor:
        return self.answer(inputs)


@pytest.fixture(scope="module")
def wavs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three speakers; the third, which is the test set, has a sound of a second and one too short for PESQ."""
    root = tmp_path_factory.mktemp("wav")
    rng = np.random.default_rng(0)
    for speaker in "abc":
        (root / speaker).mkdir()
        for name, samples in (("long", 16_000), ("short", 3_000)):
            soundfile.write(root / speaker / f"{name}.wav", rng.uniform(-0.5, 0.5, samples), 16_000)
    return root


@pytest.fixture
def task(wavs: Path) -> Speech:
    task = tasks.make(SpeechConfig(corpus="folder"), 0, wavs)
    assert isinstance(task, Speech)
    return task


def test_true_magnitudes_give_the_signal_back() -> None:
    x = np.random.default_rng(0).uniform(-0.5, 0.5, 4321)
    frames = stft.log_magnitude(stft.forward(x))
    assert np.abs(rebuild(frames[1:], x) - x).max() < 1e-3
    quieter = rebuild(frames[1:] - np.float32(6.0206), x)
    np.testing.assert_allclose(quieter[300:-300], x[300:-300] / 2, atol=1e-3)


def test_predictions_are_each_utterance_once(task: Speech) -> None:
    found = list(predictions(Answers(lambda inputs: inputs + 1), task))
    assert sorted(index for index, _ in found) == sorted(task._members["test"].tolist())
    for index, frames in found:
        assert np.array_equal(frames, task.features.of(index)[:-1] + 1)


def test_a_refused_score_is_counted_and_named(task: Speech, tmp_path: Path) -> None:
    result = evaluate_audio(Answers(lambda inputs: inputs), task, tmp_path / "new" / "audio", progress=False)
    assert result["counts"] == {"mse": 2, "segsnr": 2, "stoi": 1, "pesq": 1}
    assert result["refused"]["pesq"] == {"c_short": "Buffer needs to be at least 1/4 of a second long"}
    assert set(result["files"]["c_short"]) == {"mse", "segsnr"}
    assert set(result["files"]["c_long"]) == {"mse", "segsnr", "stoi", "pesq"}
    assert result["unavailable"] == {}
    names = sorted(path.name for path in (tmp_path / "new" / "audio").iterdir())
    assert names == sorted(
        ["scores.json", *(f"c_{n}.{k}" for n in ("long", "short") for k in ("npz", "true.wav", "predicted.wav"))]
    )


def test_without_the_extra(task: Speech, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("pesq", "pystoi"):
        monkeypatch.setitem(sys.modules, package, None)
    result = evaluate_audio(Answers(lambda inputs: inputs), task, tmp_path, progress=False)
    assert result["counts"] == {"mse": 2, "segsnr": 2, "stoi": 0, "pesq": 0}
    assert "PESQ needs pesq: pip install pesq" in result["unavailable"]["pesq"]
    assert set(result["mean"]) == {"mse", "segsnr"}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e30])
def test_absurd_predictions(task: Speech, tmp_path: Path, value: float) -> None:
    """They are scored as bad or refused by name; the files can still be played."""
    result = evaluate_audio(Answers(lambda inputs: torch.full_like(inputs, value)), task, tmp_path, progress=False)
    assert result["counts"]["mse"] + len(result["refused"]["mse"]) == 2
    assert result["counts"]["segsnr"] + len(result["refused"]["segsnr"]) == 2
    sound, _ = soundfile.read(tmp_path / "c_long.predicted.wav")
    assert np.isfinite(sound).all()
