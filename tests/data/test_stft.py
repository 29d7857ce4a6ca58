"""The transform: frames of the protocol, exact inverse, decibels."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scornn.program.data import stft


@given(st.integers(1, 3000), st.integers(0, 2**32 - 1))
def test_round_trip_is_exact(samples: int, seed: int) -> None:
    x = np.random.default_rng(seed).uniform(-1, 1, samples)
    X = stft.forward(x)
    assert X.shape == (-(-samples // 128) + 3, 129)
    np.testing.assert_allclose(stft.inverse(X, samples), x, rtol=0, atol=1e-12)


def test_one_frame_by_the_definition() -> None:
    x = np.random.default_rng(0).uniform(-1, 1, 1000)
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(256) / 256)
    frame = x[128:384]  # frame 3 starts at 3 * 128 in the padded signal, 256 less in x
    k, n = np.arange(129)[:, None], np.arange(256)
    expected = (np.exp(-2j * np.pi * k * n / 256) * window * frame).sum(axis=1)
    np.testing.assert_allclose(stft.forward(x)[3], expected, atol=1e-10)


def test_silence_is_minus_fifty() -> None:
    x = np.random.default_rng(0).uniform(-1, 1, 1000)
    decibels = stft.log_magnitude(stft.forward(x))
    assert decibels.dtype == np.float32
    assert np.all(decibels[[0, -1]] == stft.SILENCE)
    assert decibels[1:-1].min() > stft.SILENCE
    power = np.abs(stft.forward(x)[4]) ** 2
    np.testing.assert_allclose(decibels[4], 10 * np.log10(1e-5 + power), rtol=1e-6)
    np.testing.assert_allclose(stft.magnitude(decibels[4]) ** 2, power + 1e-5, rtol=1e-5)


def test_inverse_of_the_wrong_length() -> None:
    with pytest.raises(ValueError, match=r"expected X of shape \(11, 129\) for 1000 samples, got \(12, 129\)"):
        stft.inverse(np.zeros((12, 129), complex), 1000)


@pytest.mark.parametrize("rate", [8_000, 16_000, 44_100])
def test_resample_keeps_a_tone(rate: int) -> None:
    seconds = np.arange(rate) / rate
    y = stft.resample(np.sin(2 * np.pi * 440 * seconds), rate)
    assert len(y) == 8_000
    expected = np.sin(2 * np.pi * 440 * np.arange(8_000) / 8_000)
    assert np.abs(y - expected)[100:-100].max() < 2e-3
