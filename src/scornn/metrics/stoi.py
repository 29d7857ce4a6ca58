"""Short-time objective intelligibility (Taal et al. 2011), by pystoi: about 0 to 1, more is better."""

import warnings

from scornn.metrics.base import ScoreRefused, Signal, check, unavailable

_SHORTEST = 0.4


def stoi(reference: Signal, test: Signal, rate: int) -> float:
    """STOI of ``test`` against ``reference``. It needs 30 frames (0.4 s) of speech that is not silent."""
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
