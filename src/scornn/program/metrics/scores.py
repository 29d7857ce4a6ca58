"""Scores of a test signal against a reference: SegSNR, STOI, PESQ; what keeps one from being given; shared checks."""

import warnings

import numpy as np
from numpy.typing import NDArray

from scornn.errors import not_installed

Signal = NDArray[np.float64]
_SHORTEST = 0.4  # seconds, for STOI
_RATES = (8_000, 16_000)  # of PESQ


class ScoreRefused(Exception):
    """A score that is not defined for this pair of signals. The message says why."""


class ScoreUnavailable(Exception):
    """A score whose package is not installed. The message says what to install."""


def unavailable(score: str, package: str, error: ImportError) -> ScoreUnavailable:
    return ScoreUnavailable(f"{not_installed(score, package)} ({error})")


def check(reference: Signal, test: Signal) -> None:
    """Refuse signals that no score can compare."""
    if reference.ndim != 1 or reference.shape != test.shape:
        raise ValueError(f"expected two signals of one length, got shapes {reference.shape} and {test.shape}")
    if not (np.isfinite(reference).all() and np.isfinite(test).all()):
        raise ScoreRefused("a signal has samples that are not finite")
    if not reference.any():
        raise ScoreRefused("the reference is silent")


def segsnr(
    reference: Signal, test: Signal, rate: int, *, seconds: float = 0.01, limits: tuple[float, float] = (-10.0, 35.0)
) -> float:
    r"""Segmental signal-to-noise ratio, in dB.

    .. math:: \frac{1}{K} \sum_k \operatorname{clip}\Bigl(
              10 \log_{10} \frac{\sum_i r_{k,i}^2}{\sum_i (s_{k,i} - r_{k,i})^2}, -10, 35\Bigr)

    over the K whole frames of 10 ms of a reference r and a test signal s, without overlap, all frames of the
    file.

    VOICEBOX's ``snrseg``, which the paper used, is the same mean of the same ratio over the same frames of 10
    ms, with three differences in its default mode: frames in which a P.56 activity detector finds no speech are
    left out; the reference is moved by up to a sample either way in each frame, where that lowers the noise;
    and there are no limits, but -100 dB for a frame whose reference is all zeros and 100 dB for one without
    noise. Its mode 'wz' drops the first two, and by its formula ``segsnr(..., limits=(-100, 100))`` is the same
    but for frames that are not zero and lie beyond 100 dB; the two programs were not run side by side. The
    limits of -10 and 35 dB are the customary ones of speech enhancement; they keep silent frames, where the
    ratio means little, from ruling the mean. Scores are comparable within one convention only.

    Example:
        >>> r = np.sin(np.arange(800.0))
        >>> round(segsnr(r, 0.9 * r, 8000), 6)
        20.0
    """
    check(reference, test)
    length = round(seconds * rate)
    frames = len(reference) // length
    if frames == 0:
        raise ScoreRefused(f"{len(reference)} samples are shorter than one frame of {length}")
    r, s = (np.float64(signal[: frames * length]).reshape(frames, length) for signal in (reference, test))
    low, high = limits
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        power, noise = np.square(r).sum(axis=1), np.square(s - r).sum(axis=1)
        ratio = 10 * np.log10(power / noise)
    ratio = np.where(noise == 0, high, np.where(power == 0, low, ratio))
    return float(np.clip(ratio, low, high).mean())


def stoi(reference: Signal, test: Signal, rate: int) -> float:
    """Short-time objective intelligibility (Taal et al. 2011) of ``test``, by pystoi: about 0 to 1, more is better.

    It needs 30 frames (0.4 s) of speech that is not silent.
    """
    check(reference, test)
    if len(reference) < _SHORTEST * rate:
        raise ScoreRefused(f"{len(reference) / rate:.3f} seconds are shorter than {_SHORTEST}")
    try:
        import pystoi
    except ImportError as error:
        raise unavailable("STOI", "pystoi", error) from error
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        try:
            return float(pystoi.stoi(reference, test, rate, extended=False))
        except (RuntimeWarning, ValueError, IndexError) as error:
            raise ScoreRefused(str(error).split(". ")[0]) from error


def pesq(reference: Signal, test: Signal, rate: int) -> float:
    """Perceptual evaluation of speech quality of ``test``, narrow-band (ITU-T P.862): 1 to 4.5, more is better.

    What the package refuses (less than a quarter of a second, for one) is raised with its reason, never a
    number.
    """
    check(reference, test)
    if rate not in _RATES:
        raise ValueError(f"PESQ is defined at 8000 and 16000 samples a second, got {rate}")
    if not test.any():
        raise ScoreRefused("the test signal is silent")
    try:
        import pesq as package
    except ImportError as error:
        raise unavailable("PESQ", "pesq", error) from error
    try:
        score = float(package.pesq(rate, reference.astype(np.float32), test.astype(np.float32), "nb"))
    except (package.PesqError, ValueError, ZeroDivisionError) as error:
        text = error.args[0] if error.args else type(error).__name__
        raise ScoreRefused(text.decode() if isinstance(text, bytes) else str(text)) from error
    if not np.isfinite(score):
        raise ScoreRefused(f"the score is {score}")
    return score
