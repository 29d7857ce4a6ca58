"""What runs and measurements say about the paper's rows: every number once, with what was published beside it."""

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scornn.analysis.orthogonality import Series, drift
from scornn.analysis.timing import minutes_per_epoch
from scornn.errors import DataError
from scornn.paper import match
from scornn.paper.experiments import Preset, Published
from scornn.paper.items import ITEMS, Item
from scornn.paper.presets import presets
from scornn.report.runs import Run, find, finite, mapping, read

MODEL_NAMES = {
    "scornn": "scoRNN",
    "lstm": "LSTM",
    "rnn": "RNN",
    "urnn": "Restricted uRNN",
    "full-urnn": "Full uRNN",
    "eurnn": "EURNN",
    "ornn": "oRNN",
}


@dataclass(frozen=True)
class Number:
    """One measure of one row. ``values`` are those of the seeds; ``published`` is None where the paper has a curve."""

    item: str
    preset: Preset
    measure: str
    values: tuple[float, ...]
    published: Published | None
    budget: str

    @property
    def mean(self) -> float | None:
        return statistics.fmean(self.values) if self.values else None

    @property
    def deviation(self) -> float | None:
        return statistics.stdev(self.values) if len(self.values) > 1 else None


@dataclass(frozen=True)
class Results:
    """Runs and measurements in a directory, by preset; ``others`` belong to none."""

    runs: dict[str, list[Run]]
    timings: dict[str, dict[str, Any]]
    missing: dict[str, str]
    remarks: dict[str, str]
    others: list[Run]

    def numbers(self, item: Item) -> list[Number]:
        """Every measure of every row of an item, in order, those without a value too."""
        return [number for name in item.presets for number in self._row(item, presets()[name])]

    def _row(self, item: Item, preset: Preset) -> list[Number]:
        published = [p for p in preset.published if p.item == item.name]
        if item.kind == "timing":
            timed = self.timings.get(preset.name)
            minutes = (minutes_per_epoch(timed),) if timed else ()
            return [Number(item.name, preset, "minutes per epoch", minutes, published[0], self._timing_budget(timed))]
        runs = self.runs.get(preset.name, [])
        rows = []
        for measure, (index, function) in _MEASURES[item.name].items():
            values = tuple(v for v in map(function, runs) if v is not None)
            said = published[index] if index is not None else None
            rows.append(Number(item.name, preset, measure, values, said, self.budget(item, preset)))
        return rows

    def budget(self, item: Item, preset: Preset) -> str:
        """The scale of a row, its length, and what it sets otherwise than the paper."""
        runs = self.runs.get(preset.name, [])
        if not runs:
            return "missing"
        return "; ".join(dict.fromkeys(self._budget_of(run, item, preset) for run in runs))

    def _budget_of(self, run: Run, item: Item, preset: Preset) -> str:
        unfinished = [] if run.finished else ["not finished"]
        steps = run.summary.get("steps")
        made = f"{steps:,} iterations" if isinstance(steps, int) else ""
        if match.is_reduced(run.config, preset):
            return "smoke: " + ", ".join([made, *match.sizes(run.config), *unfinished])
        if item.kind != "gradients":
            made = match.length(run.summary, preset)
        different = match.differences(run.config, preset)
        return ("short: " if different or " of " in made else "paper: ") + ", ".join([made, *different, *unfinished])

    def _timing_budget(self, timed: dict[str, Any] | None) -> str:
        if timed is None:
            return "missing"
        config = mapping(timed.get("config"))
        preset = presets()[str(timed["preset"])]
        text = f"{timed['steps']:,} steps timed, scaled to 1,100"
        if match.is_reduced(config, preset):
            return "smoke: " + ", ".join([text, *match.sizes(config)])
        return ", ".join([text, *match.differences(config, preset)])


def collect(directory: Path) -> Results:
    """Read what is in a directory of runs: ``OUT`` of ``scornn reproduce``, or the committed results."""
    if not directory.is_dir():
        raise DataError(f"{directory}: expected a directory of results, found nothing")
    try:
        found = [read(path) for path in find([directory])]
    except DataError:
        found = []
    by_preset: dict[str, list[Run]] = {}
    others = []
    for run in found:
        preset = match.preset_of(run.config)
        if preset is None:
            others.append(run)
        else:
            by_preset.setdefault(preset.name, []).append(run)
    timings = {}
    for path in sorted(directory.glob("timing/*.json")):
        timed = _read(path)
        if timed.get("preset") in presets() and finite(timed.get("seconds_per_step")) is not None:
            timings[str(timed["preset"])] = timed
    remarks = {str(k): str(v) for k, v in _read(directory / "remarks.json").items()}
    missing = {str(k): str(v) for k, v in _read(directory / "missing.json").items()}
    return Results(by_preset, timings, missing, remarks, others)


def label(preset: Preset, *, size: bool = True) -> str:
    """The model as the paper writes it."""
    model = preset.config["model"]
    name = MODEL_NAMES.get(model["name"], str(model["name"]))
    return f"{name} n={model['hidden']}" if size else name


def orthogonality(run: Run) -> Series:
    """Epochs and ‖W*W − I‖_F."""
    steps, epochs = finite(run.summary.get("steps")), finite(run.summary.get("epochs"))
    return drift(run.rows, steps / epochs if steps and epochs else 1.0)


def gradient_moments(run: Run) -> list[tuple[int, list[float]]]:
    """(step, norms for t = 1 … T) of a run's ``gradients.json``."""
    moments = _read(run.path / "gradients.json").get("moments", [])
    return [(int(m["step"]), [float(v) for v in m["norms"]]) for m in moments if isinstance(m, dict)]


def audio_mean(run: Run, score: str) -> float | None:
    """A mean score of the audio that was rebuilt from a run's predictions."""
    return finite(mapping(_read(run.path / "audio" / "scores.json").get("mean")).get(score))


def _at_chosen(run: Run, split: str, metric: str) -> float | None:
    """A metric at the evaluation that was best on validation."""
    step = mapping(run.summary.get("best_by_valid")).get("step")
    rows = [row for row in run.rows if row.get("split") == split and row.get("step") == step]
    return finite(rows[-1].get(metric)) if rows else None


def _drift_at(run: Run, index: int) -> float | None:
    values = orthogonality(run)[1]
    return float(values[index]) if values.size else None


def _gradient(run: Run, moment: int, t: int) -> float | None:
    moments = gradient_moments(run)
    return moments[moment][1][t] if len(moments) > moment and moments[moment][1] else None


Measure = Callable[[Run], float | None]

_MEASURES: dict[str, dict[str, tuple[int | None, Measure]]] = {
    "fig-copying": {
        "cross-entropy": (0, lambda run: run.final("test", "loss")),
        "recall": (None, lambda run: run.final("test", "recall")),
    },
    "fig-adding": {
        "MSE": (0, lambda run: run.final("test", "mse")),
        "best MSE": (None, lambda run: run.best()),
    },
    "table-mnist": {
        "accuracy": (0, lambda run: run.best()),
        "chosen on validation": (None, lambda run: run.chosen()),
    },
    "table-timit": {
        "valid MSE": (0, lambda run: _at_chosen(run, "valid", "mse_padded")),
        "eval MSE": (1, lambda run: _at_chosen(run, "test", "mse_padded")),
        "eval MSE, valid frames": (None, lambda run: _at_chosen(run, "test", "mse")),
        "SegSNR": (None, lambda run: audio_mean(run, "segsnr")),
        "STOI": (None, lambda run: audio_mean(run, "stoi")),
        "PESQ": (None, lambda run: audio_mean(run, "pesq")),
    },
    "fig-orthogonality": {
        "first": (0, lambda run: _drift_at(run, 0)),
        "last": (None, lambda run: _drift_at(run, -1)),
    },
    "fig-gradients": {
        "start, t = 1": (0, lambda run: _gradient(run, 0, 0)),
        "start, t = T": (None, lambda run: _gradient(run, 0, -1)),
        "trained, t = 1": (1, lambda run: _gradient(run, 1, 0)),
        "trained, t = T": (None, lambda run: _gradient(run, 1, -1)),
    },
}
"""For each measure which of the preset's published figures it answers, and how it is read from a run."""


def records(results: Results, items: Sequence[Item] = tuple(ITEMS.values())) -> list[dict[str, Any]]:
    """Every number as plain values, for CSV and JSON."""
    rows = []
    for item in items:
        for n in results.numbers(item):
            rows.append(
                {
                    "item": item.name,
                    "preset": n.preset.name,
                    "model": label(n.preset, size=False),
                    "n": n.preset.config["model"]["hidden"],
                    "parameters": n.preset.parameters,
                    "measure": n.measure,
                    "published": n.published.value if n.published else None,
                    "published text": n.published.text if n.published else None,
                    "source": n.published.source if n.published else None,
                    "here": n.mean,
                    "standard deviation": n.deviation,
                    "seeds": len(n.values),
                    "values": list(n.values),
                    "budget": n.budget,
                }
            )
    return rows


def _read(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return mapping(value)
