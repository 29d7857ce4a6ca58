"""Perceptual evaluation of speech quality, narrow-band (ITU-T P.862), by the package pesq.

1 to 4.5, more is better.
"""

import numpy as np

from scornn.metrics.base import ScoreRefused, Signal, check, unavailable

_RATES = (8_000, 16_000)


def pesq(reference: Signal, test: Signal, rate: int) -> float:
    """Narrow-band PESQ (MOS-LQO) of ``test`` against ``reference``.

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
