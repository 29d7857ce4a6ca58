"""The figures of a run, from the lines of its ``metrics.jsonl``: the last, the best, the best by validation."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Literal

from scornn.program.tasks.contract import NOT_METRICS

Metrics = dict[str, float]
Weights = Literal["raw", "average"]
"""Those that are stepped, or their exponential average."""


@dataclass(frozen=True)
class Figures:
    """The figures of one kind of weights, as ``summary.json`` holds them.

    Args:
        final: the metrics of the last evaluation, by split.
        best: step, epoch, split and value of the best evaluation on test, the paper's figure.
        best_by_valid: the same at the evaluation that was best on validation, and what it was there (``valid``); None
            where the task has no such split.
    """

    final: dict[str, Metrics] = field(default_factory=dict)
    best: dict[str, Any] | None = None
    best_by_valid: dict[str, Any] | None = None

    @property
    def kept_step(self) -> int | None:
        """The step whose weights are kept as the best: chosen on validation where there is such a split."""
        kept = self.best_by_valid or self.best
        return None if kept is None else int(kept["step"])


def figures(
    rows: Iterable[Mapping[str, Any]],
    headline: str,
    goal: str,
    weights: Weights = "raw",
    before: Figures | None = None,
) -> Figures:
    """The figures of all evaluations in some lines of ``metrics.jsonl``.

    Args:
        rows: the lines, in their order. Those of training and of the other weights are passed over.
        headline: the metric that people compare.
        goal: ``max`` or ``min``: whether more or less of it is better.
        weights: the raw ones, or their average.
        before: the figures of the lines before these.

    Example:
        >>> rows = [
        ...     {"step": 5, "epoch": 1, "split": "train", "loss": 0.9},
        ...     {"step": 5, "epoch": 1, "split": "valid", "loss": 0.5},
        ...     {"step": 5, "epoch": 1, "split": "test", "loss": 0.7},
        ...     {"step": 9, "epoch": 2, "split": "valid", "loss": 0.6},
        ...     {"step": 9, "epoch": 2, "split": "test", "loss": 0.4},
        ... ]
        >>> found = figures(rows, "loss", "min")
        >>> found.final
        {'valid': {'loss': 0.6}, 'test': {'loss': 0.4}}
        >>> found.best
        {'step': 9, 'epoch': 2, 'split': 'test', 'value': 0.4}
        >>> found.best_by_valid
        {'step': 5, 'epoch': 1, 'split': 'test', 'value': 0.7, 'valid': 0.5}
    """
    found = before or Figures()
    own = (row for row in rows if row.get("split") != "train" and row.get("weights", "raw") == weights)
    for step, evaluation in groupby(own, key=lambda row: row.get("step")):
        by_split = {str(row.get("split")): row for row in evaluation}
        final = {split: _metrics(row) for split, row in by_split.items()}
        best, best_by_valid = found.best, found.best_by_valid
        value, valid = (final.get(split, {}).get(headline) for split in ("test", "valid"))
        if value is not None:
            at = {"step": step, "epoch": by_split["test"].get("epoch"), "split": "test", "value": value}
            if best is None or _better(value, best["value"], goal):
                best = at
            if valid is not None and (best_by_valid is None or _better(valid, best_by_valid["valid"], goal)):
                best_by_valid = {**at, "valid": valid}
        found = Figures(final, best, best_by_valid)
    return found


def _metrics(row: Mapping[str, Any]) -> Metrics:
    numbers = {key: value for key, value in row.items() if key not in NOT_METRICS}
    return {key: value for key, value in numbers.items() if isinstance(value, int | float)}


def _better(new: float, old: float, goal: str) -> bool:
    return new > old if goal == "max" else new < old
