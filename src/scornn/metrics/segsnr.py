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
"""

import numpy as np

from scornn.metrics.base import ScoreRefused, Signal, check


def segsnr(
    reference: Signal, test: Signal, rate: int, *, seconds: float = 0.01, limits: tuple[float, float] = (-10.0, 35.0)
) -> float:
    """SegSNR of ``test`` against ``reference``.

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
    r, s = (signal[: frames * length].reshape(frames, length) for signal in (reference, test))
    power, noise = np.square(r).sum(axis=1), np.square(s - r).sum(axis=1)
    low, high = limits
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = 10 * np.log10(power / noise)
    ratio = np.where(noise == 0, high, np.where(power == 0, low, ratio))
    return float(np.clip(ratio, low, high).mean())
