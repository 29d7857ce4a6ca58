"""Short-time Fourier transform of the speech task, its exact inverse, and log-magnitudes.

As in the pipeline that the paper follows: samples are padded with zeros to a multiple of 128, then by 256
on either side; a periodic Hann window of 256 moves by 128. n samples give ceil(n / 128) + 3 frames of 129
bins, of which the first and the last see nothing but padding. The feature is 10 log10(1e-5 + |X|^2), so
silence is -50 dB.
"""

from math import gcd

import numpy as np
from numpy.typing import NDArray

RATE = 8_000
WINDOW = 256
HOP = 128
BINS = WINDOW // 2 + 1
EPSILON = 1e-5
SILENCE = -50.0

_HANN = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW)  # periodic


def resample(samples: NDArray[np.float64], rate: int) -> NDArray[np.float64]:
    """To 8 kHz by polyphase filtering.

    The authors used Matlab's ``resample`` and rounded to 16 bits; this does not.
    """
    if rate == RATE:
        return samples
    from scipy.signal import resample_poly  # slow to import, and only speech needs it

    common = gcd(RATE, rate)
    return resample_poly(samples, RATE // common, rate // common)


def frames(samples: int) -> int:
    """The number of frames of so many samples."""
    return -(-samples // HOP) + 3


def forward(samples: NDArray[np.float64]) -> NDArray[np.complex128]:
    """X of shape (frames, 129)."""
    padded = np.zeros((frames(len(samples)) + 1) * HOP)
    padded[WINDOW : WINDOW + len(samples)] = samples
    windows = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[::HOP]
    return np.fft.rfft(windows * _HANN, axis=1)


def inverse(X: NDArray[np.complex128], samples: int) -> NDArray[np.float64]:
    """The signal whose transform is nearest to X in the least-squares sense; the signal itself where X is one's."""
    if X.shape != (frames(samples), BINS):
        raise ValueError(f"expected X of shape {(frames(samples), BINS)} for {samples} samples, got {X.shape}")
    pieces = np.fft.irfft(X, n=WINDOW, axis=1) * _HANN
    total = _overlap(pieces)
    weight = _overlap(np.broadcast_to(_HANN**2, pieces.shape))
    inside = slice(WINDOW, WINDOW + samples)
    return total[inside] / weight[inside]


def _overlap(pieces: NDArray[np.float64]) -> NDArray[np.float64]:
    """The sum of the pieces, each HOP after the one before; two of them cover every sample."""
    total = np.zeros((len(pieces) + 1, HOP))
    total[:-1] += pieces[:, :HOP]
    total[1:] += pieces[:, HOP:]
    return total.ravel()


def log_magnitude(X: NDArray[np.complex128]) -> NDArray[np.float32]:
    """10 log10(1e-5 + |X|^2), in dB."""
    power = X.real**2 + X.imag**2
    return (10 * np.log10(EPSILON + power)).astype(np.float32)


def magnitude(decibels: NDArray[np.float32]) -> NDArray[np.float64]:
    """sqrt(10^(dB/10)).

    |X| but for the 1e-5, which is left in, as the authors of the pipeline do; 200 dB at most.
    """
    return 10 ** (np.minimum(decibels, 200).astype(np.float64) / 20)
