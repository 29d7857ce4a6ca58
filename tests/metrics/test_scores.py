"""SegSNR by hand, STOI and PESQ on real speech, and refusals with their reasons."""

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scornn.program.data import features
from scornn.program.metrics import ScoreRefused, ScoreUnavailable, pesq, segsnr, stoi

NOISE = np.random.default_rng(0).standard_normal(8000)


@pytest.fixture
def speech(shared_data: Path) -> np.ndarray:
    return features.waveform(shared_data / "timit_sample" / "dr1-fvmh0" / "sx206.wav", 16_000)


@given(st.floats(-9, 34), st.integers(80, 1000))
def test_segsnr_of_known_noise(decibels: float, samples: int) -> None:
    reference = np.sin(np.arange(float(samples)))
    test = reference * (1 + 10 ** (-decibels / 20))
    assert segsnr(reference, test, 8000) == pytest.approx(decibels)


def test_segsnr_of_the_samples_of_a_sound_file() -> None:
    reference = (20_000 * np.sin(np.arange(8000.0))).astype(np.int16)
    test = -reference
    assert segsnr(reference, test, 8000) == segsnr(reference.astype(float), test.astype(float), 8000)


def test_segsnr_limits_and_silence() -> None:
    """Frames of 80 samples.

    one perfect, one of silence with noise, one with no signal left, one of silence kept.
    """
    reference = np.concatenate([NOISE[:80], np.zeros(80), NOISE[:80], np.zeros(80), NOISE[:79]])
    test = np.concatenate([NOISE[:80], NOISE[:80], np.zeros(80), np.zeros(80), np.zeros(79)])
    assert segsnr(reference, test, 8000) == pytest.approx((35 - 10 + 0 + 35) / 4)
    assert segsnr(reference, test, 8000, limits=(-100, 100)) == pytest.approx((100 - 100 + 0 + 100) / 4)
    assert segsnr(reference, test, 8000, seconds=0.02) != segsnr(reference, test, 8000)


def test_scores_fall_with_noise(speech: np.ndarray) -> None:
    noise = np.random.default_rng(0).standard_normal(len(speech)) * np.std(speech)
    for score, perfect in ((segsnr, 35), (stoi, 1), (pesq, 4.5486)):
        values = [score(speech, speech + level * noise, 8000) for level in (0, 0.1, 1)]
        assert values[0] == pytest.approx(perfect, rel=1e-4)
        assert values[0] > values[1] > values[2]


@pytest.mark.parametrize("score", [segsnr, stoi, pesq])
def test_refusals(score: type) -> None:
    with pytest.raises(ScoreRefused, match="the reference is silent"):
        score(np.zeros(8000), NOISE, 8000)
    with pytest.raises(ScoreRefused, match="not finite"):
        score(NOISE, np.full(8000, np.nan), 8000)
    with pytest.raises(ValueError, match="one length"):
        score(NOISE, NOISE[1:], 8000)
    with pytest.raises(ScoreRefused, match=r"shorter than|at least"):
        score(NOISE[:50], NOISE[:50], 8000)


def test_segsnr_of_a_prediction_that_went_astray() -> None:
    """Its squares overflow, which is as much noise as any, and no warning."""
    assert segsnr(NOISE, 1e160 * NOISE, 8000) == -10


def test_stoi_refuses_what_is_mostly_silent() -> None:
    mostly = np.concatenate([NOISE[:1000], np.zeros(7000)])
    with pytest.raises(ScoreRefused, match="Not enough STFT frames"):
        stoi(mostly, NOISE, 8000)


def test_pesq_refuses_what_has_no_utterance(speech: np.ndarray) -> None:
    with pytest.raises(ScoreRefused, match="the test signal is silent"):
        pesq(speech, np.zeros_like(speech), 8000)
    with pytest.raises(ValueError, match="got 44100"):
        pesq(speech, speech, 44_100)
    with pytest.raises(ScoreRefused, match="at least 1/4 of a second"):
        pesq(speech[:1500], speech[:1500], 8000)


@pytest.mark.parametrize(("score", "package"), [(stoi, "pystoi"), (pesq, "pesq")])
def test_without_the_extra(score: type, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ScoreUnavailable, match=rf"needs {package}: pip install {package}"):
        score(NOISE, NOISE, 8000)
