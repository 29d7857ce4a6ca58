"""What keeps a score from being given, and the checks that all scores share."""

import numpy as np
from numpy.typing import NDArray

Signal = NDArray[np.float64]


class ScoreRefused(Exception):
    """A score that is not defined for this pair of signals. The message says why."""


class ScoreUnavailable(Exception):
    """A score whose package is not installed. The message says what to install."""


def unavailable(score: str, package: str, error: ImportError) -> ScoreUnavailable:
    return ScoreUnavailable(f"{score} needs the package {package}: pip install 'scornn[audio]' ({error})")


def check(reference: Signal, test: Signal) -> None:
    """Refuse signals that no score can compare."""
    if reference.ndim != 1 or reference.shape != test.shape:
        raise ValueError(f"expected two signals of one length, got shapes {reference.shape} and {test.shape}")
    if not (np.isfinite(reference).all() and np.isfinite(test).all()):
        raise ScoreRefused("a signal has samples that are not finite")
    if not reference.any():
        raise ScoreRefused("the reference is silent")
