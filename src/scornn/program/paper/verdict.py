"""What a row says of the published figure, derived from its runs: how far they went, what they set, what came out."""

import statistics
from collections.abc import Callable, Sequence

from scornn.program import durable
from scornn.program.analysis.orthogonality import drift
from scornn.program.recipes.experiments import Published
from scornn.program.report.runs import Run, Series, finite, mapping

MET = "met or beaten"  # the published figure was reached, by the run or by its averaged weights
AGREES = "direction agrees"  # a third of the protocol or more was run, and it goes the published way
MISSED = "falls short"  # the whole protocol was run, and the figure was not reached
SHORT = "too short to say"  # less was run than the protocol, and it does not show the figure yet
OTHER = "not comparable"  # other data, other test samples, or the sizes of a smoke run
NOT_RUN = "not run"
VERDICTS = (MET, AGREES, MISSED, SHORT, OTHER, NOT_RUN)
"""The best first."""

ENOUGH = 1 / 3
"""The share of its protocol from which a run has a say."""
_SOLVED, _LEFT, _BACK = 0.1, 0.7, 0.9
"""Of the baseline's loss: below the first a problem is solved, below the second the baseline is left, and above the
third a curve that had left it is back."""
_NEAR = 1.5
"""Of the published error: up to here a result goes the published way."""
_VANISHED = 0.03


def judge(
    published: Published, runs: Sequence[Run], values: Sequence[float], averaged: Sequence[float], share: float
) -> str:
    """The verdict on values that can be compared, made in a share of the protocol."""
    if published.value is not None:
        return _judge_value(published, values, averaged, share)
    holds = all(CLAIMS[published.claim](run, published.metric) for run in runs)
    if published.claim == "fails":
        return MET if not holds else AGREES if share >= ENOUGH else SHORT
    if holds and (share >= 1 or published.claim in _EARLY):
        return MET
    partly = _PARTLY.get(published.claim)
    if share >= ENOUGH and (holds or (partly and all(map(partly, runs)))):
        return AGREES
    return SHORT if share < 1 else MISSED


def _judge_value(published: Published, values: Sequence[float], averaged: Sequence[float], share: float) -> str:
    assert published.value is not None
    means = [statistics.fmean(some) for some in (values, averaged) if some]
    if published.metric == "accuracy":
        here, met = max(means), round(max(means), 3) >= published.value
        near = 1 - here <= _NEAR * (1 - published.value)
    else:
        here, met = min(means), min(means) <= published.value
        near = here <= _NEAR * published.value
    if met:
        return MET
    if near and share >= ENOUGH:
        return AGREES
    return SHORT if share < 1 else MISSED


def orthogonality(run: Run) -> Series:
    """Epochs and ‖W*W − I‖_F."""
    steps = finite(run.summary.get("steps"))
    return drift(run.rows, steps / run.epochs if steps and run.epochs else 1.0)


def gradient_moments(run: Run) -> list[tuple[int, list[float]]]:
    """(step, norms for t = 1 … T) of a run's ``gradients.json``."""
    moments = durable.read_object(run.path / "gradients.json").get("moments", [])
    return [(int(m["step"]), [float(v) for v in m["norms"]]) for m in moments if isinstance(m, dict)]


def gradient_norms(run: Run, metric: str) -> list[float]:
    """The norms at the moment that a metric names, the start or after training; empty where they were not measured."""
    moments = gradient_moments(run)
    number = 0 if metric.endswith("start") else 1
    return moments[number][1] if len(moments) > number else []


def _share_of_baseline(run: Run) -> float:
    """The last test loss, of the weights or of their average, over the baseline's."""
    losses = [run.final("test", "loss", weights) for weights in ("raw", "average")]
    known = [loss for loss in losses if loss is not None]
    return min(known) / run.baseline if known and run.baseline else 1.0


def _losses_over_baseline(run: Run) -> list[float]:
    return [float(loss) / run.baseline for loss in run.series("test", "loss")[1]] if run.baseline else []


def _drops(run: Run) -> bool:
    return min(_losses_over_baseline(run), default=1.0) < _LEFT


def _jumps_back(run: Run) -> bool:
    """Whether a loss at the baseline follows one that is well below it."""
    losses = _losses_over_baseline(run)
    first = next((k for k, loss in enumerate(losses) if loss < _LEFT), len(losses))
    return max(losses[first:], default=0.0) > _BACK


def _gradient_ratio(run: Run, metric: str) -> float:
    """The norm at the first time step over that at the last, at the moment that a panel of the figure shows."""
    norms = gradient_norms(run, metric)
    return norms[0] / norms[-1] if norms and norms[-1] else float("nan")


def _drift_ratio(run: Run) -> float:
    values = orthogonality(run)[1]
    return float(values[-1] / values[0]) if values.size > 1 and values[0] else float("nan")


Claim = Callable[[Run, str], bool]
CLAIMS: dict[str, Claim] = {
    "solves": lambda run, _: _share_of_baseline(run) <= _SOLVED,
    "fails": lambda run, _: _share_of_baseline(run) > _SOLVED,
    "drops and jumps back": lambda run, _: _jumps_back(run),
    "starts apart": lambda run, _: next(iter(_losses_over_baseline(run)), 0.0) > 1 / _LEFT,
    "steady": lambda run, _: _drift_ratio(run) <= 2,
    "drifts": lambda run, _: _drift_ratio(run) > 2,
    "flat": lambda run, metric: _VANISHED < _gradient_ratio(run, metric) < 1 / _VANISHED,
    "falls tenfold": lambda run, metric: _VANISHED < _gradient_ratio(run, metric) < 1 / 3,
    "vanishes": lambda run, metric: _gradient_ratio(run, metric) <= _VANISHED,
}
"""What curves are said to do, as tests of a run; the metric says which moment is meant."""
_EARLY = ("solves", "drops and jumps back", "starts apart")
"""Claims that hold for good once they hold."""
_PARTLY: dict[str, Callable[[Run], bool]] = {
    "solves": lambda run: _share_of_baseline(run) < _LEFT,
    "drops and jumps back": _drops,
}
"""What of a claim goes the published way without meeting it."""


def audio_mean(run: Run, score: str) -> float | None:
    """A mean score of the audio that was rebuilt from a run's predictions."""
    return finite(mapping(durable.read_object(run.path / "audio" / "scores.json").get("mean")).get(score))
