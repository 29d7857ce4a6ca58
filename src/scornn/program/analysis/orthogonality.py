"""How far W drifts from orthogonal while it is trained: read from what the training loop logs."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


def drift(rows: Iterable[Mapping[str, Any]], steps_per_epoch: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Epochs and ‖WᵀW − I‖_F (‖W*W − I‖_F of a complex W) from the lines of a run's ``metrics.jsonl``.

    Every line of the weights that were stepped counts, of training and of evaluation, each step once; both arrays are
    empty where nothing is constrained.

    Example:
        >>> drift([{"step": 50, "orthogonality": 1e-6}, {"step": 100, "orthogonality": 2e-6}], steps_per_epoch=100)
        (array([0.5, 1. ]), array([1.e-06, 2.e-06]))
    """
    raw = (row for row in rows if row.get("weights", "raw") == "raw")
    by_step = {row["step"]: row["orthogonality"] for row in raw if row.get("orthogonality") is not None}
    steps = sorted(by_step)
    epochs = np.array(steps, dtype=float) / steps_per_epoch
    return epochs, np.array([by_step[step] for step in steps], dtype=float)
