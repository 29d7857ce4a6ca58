"""What runs and measurements say about the paper's rows: every number once, with what was published beside it."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from scornn.errors import DataError
from scornn.nn.catalogue import look
from scornn.program import durable
from scornn.program.analysis.timing import minutes_per_epoch
from scornn.program.paper import match, verdict
from scornn.program.paper.items import GRADIENT_STEPS, MAIN, Item
from scornn.program.paper.verdict import audio_mean, gradient_norms, judge, orthogonality
from scornn.program.recipes.experiments import Preset, Published
from scornn.program.recipes.presets import presets
from scornn.program.report.page import number
from scornn.program.report.runs import Run, find, finite, mapping, read
from scornn.program.report.settings import setting_name


@dataclass(frozen=True)
class Number:
    """One measure of one row.

    ``values`` are those of the seeds, ``averaged`` the same with averaged weights. ``published`` is None where the
    paper has no such figure, and the verdict empty. ``share`` says how much of its protocol the shortest run made.
    """

    item: str
    preset: Preset
    measure: str
    values: tuple[float, ...]
    averaged: tuple[float, ...]
    published: Published | None
    budget: str
    verdict: str
    share: float
    parameters: float | None
    """Of the network that ran, or of the preset's where none did."""

    @property
    def judged(self) -> str:
        """The verdict, and beside what was compared that it rests on one seed."""
        alone = len(self.values) == 1 and self.item in MAIN and self.verdict not in (verdict.OTHER, verdict.SHORT)
        return f"{self.verdict}, one seed" if alone else self.verdict

    @property
    def mean(self) -> float | None:
        return statistics.fmean(self.values) if self.values else None

    @property
    def best(self) -> float | None:
        """The better mean, of the runs or of their averaged weights."""
        means = [statistics.fmean(some) for some in (self.values, self.averaged) if some]
        goal = max if self.published is not None and self.published.metric == "accuracy" else min
        return goal(means, default=None)

    @property
    def by_average(self) -> bool:
        """Whether the averaged weights have the better figure."""
        return self.best != self.mean

    @property
    def complete(self) -> bool:
        """Whether the figure is finished and can be compared."""
        return bool(self.values) and self.share >= 1 and self.verdict != verdict.OTHER


@dataclass(frozen=True)
class Results:
    """Runs and measurements in a directory, by preset.

    The runs of a preset differ from it in the same settings, if in any. ``others`` are those that cannot be set beside
    them, and those of no preset.
    """

    runs: dict[str, list[Run]]
    timings: dict[str, dict[str, Any]]
    missing: dict[str, str]
    remarks: dict[str, str]
    others: list[Run]
    sweeps: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Records of sweeps by name, as they stand in their files."""

    @property
    def smoke(self) -> bool:
        """True if networks or problems were smaller than the paper's."""
        configs = [(run.config, name) for name, runs in self.runs.items() for run in runs]
        configs += [(mapping(timed.get("config")), name) for name, timed in self.timings.items()]
        return any(match.is_reduced(config, presets()[name]) for config, name in configs)

    def numbers(self, item: Item, *, beyond: bool = False) -> list[Number]:
        """Every measure of every row of an item, in order, those without a value too; or of the rows beyond it."""
        names = item.beyond if beyond else item.presets
        return [number for name in names for number in self._row(item, presets()[name])]

    def _row(self, item: Item, preset: Preset) -> list[Number]:
        published = [p for p in preset.published if p.item == item.name]
        if item.kind == "timing":
            return [self._timing(preset, published[0])]
        runs = self.runs.get(preset.name, [])
        share = min((_share(run, item, preset) for run in runs), default=0.0)
        parameters = [finite(run.summary.get("parameters")) for run in runs] or [preset.parameters]
        rows = []
        by_metric: dict[tuple[str, str], Published] = {(said.metric, said.split): said for said in published}
        for measure in _MEASURES[item.name]:
            values = tuple(v for v in (measure.of(run, "raw") for run in runs) if v is not None)
            averages = (measure.of(run, "average") for run in runs if run.has_average)
            averaged = tuple(v for v in averages if v is not None)
            said = by_metric.get((measure.metric, measure.split)) if measure.published else None
            found = _verdict(said, runs, preset, values, averaged, share) if said else ""
            budget = self.budget(item, preset)
            figures = values, averaged, said, budget, found, share
            rows.append(Number(item.name, preset, measure.name, *figures, parameters[0]))
        return rows

    def _timing(self, preset: Preset, published: Published) -> Number:
        minutes, budget, found = (), "", verdict.NOT_RUN  # type: tuple[float, ...], str, str
        parameters: float | None = preset.parameters
        if timed := self.timings.get(preset.name):
            config, minutes = mapping(timed.get("config")), (minutes_per_epoch(timed),)
            parameters = finite(timed.get("parameters"))
            budget = f"{timed['steps']:,} steps timed, scaled to 1,100"
            if match.is_reduced(config, preset):
                budget, found = "smoke: " + ", ".join([budget, *match.sizes(config)]), verdict.OTHER
            else:
                budget = ", ".join([budget, *match.differences(config, preset)])
                found = judge(published, [], minutes, (), 1.0)
        measure = "minutes per epoch"
        return Number("table-timing", preset, measure, minutes, (), published, budget, found, 1.0, parameters)

    def budget(self, item: Item, preset: Preset) -> str:
        """The scale of a row, its length, what it sets otherwise than its preset, and its seeds."""
        runs = self.runs.get(preset.name, [])
        if not runs:
            return ""
        said = "; ".join(dict.fromkeys(_budget(run, item, preset) for run in runs))
        seeds = [str(run.config.get("seed")) for run in runs]
        return f"{said}; {'seeds' if len(seeds) > 1 else 'seed'} {', '.join(seeds)}"

    def label(self, preset: Preset, *, problem: bool = False) -> str:
        """The model as the paper writes it, with the size that was run; with the problem where an item has several."""
        runs = self.runs.get(preset.name, [])
        task = preset.config["task"]
        said = [label(preset, next((run.hidden for run in runs if run.hidden), None))]
        if problem and "length" in task:
            lengths = {mapping(run.config.get("task")).get("length") for run in runs} or {task["length"]}
            said += [f"T = {length}" for length in lengths]
        if problem and task["name"] == "mnist":
            said.append("permuted" if task["permuted"] else "in order")
        return ", ".join(said)


def _budget(run: Run, item: Item, preset: Preset) -> str:
    unfinished = [] if run.finished else ["not finished"]
    steps = run.summary.get("steps")
    made = f"{steps:,} iterations" if isinstance(steps, int) else ""
    if match.is_reduced(run.config, preset):
        return "smoke: " + ", ".join([made, *match.sizes(run.config), *unfinished])
    if item.kind != "gradients":
        made = match.length(run.summary, preset)
    different = match.differences(run.config, preset)
    scale = "short" if " of " in made else "beyond" if different or preset.beyond else "paper"
    return f"{scale}: " + ", ".join([made, *different, *unfinished])


def _share(run: Run, item: Item, preset: Preset) -> float:
    if item.kind == "gradients":
        return 1.0 if (finite(run.summary.get("steps")) or 0) >= GRADIENT_STEPS else 0.0
    return match.share_made(run.summary, preset)


def _verdict(said: Published, runs: Sequence[Run], preset: Preset, *figures: Any) -> str:
    """``figures`` are the values, the averaged ones and the share of the protocol."""
    if not figures[0]:
        return verdict.NOT_RUN
    different = {text for run in runs for text in match.differences(run.config, preset)}
    if said.metric == "orthogonality":  # W has no test samples
        different = {text for text in different if not text.startswith(setting_name("task.test_size"))}
    return verdict.OTHER if different else judge(said, runs, *figures)


def collect(directory: Path) -> Results:
    """Read what is in a directory of runs: ``OUT`` of ``scornn reproduce``, or the committed results."""
    if not directory.is_dir():
        raise DataError(f"{directory}: expected a directory of results, found nothing")
    try:
        paths = [path for path in find([directory]) if path.relative_to(directory).parts[:1] != ("sweeps",)]
        found = list(map(read, paths))
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
    in_order = {}
    for name in (name for name in presets() if name in by_preset):
        in_order[name] = _alike(by_preset[name], presets()[name])
        others += [run for run in by_preset[name] if run not in in_order[name]]
    others.sort(key=lambda run: (run.task, finite(mapping(run.config.get("task")).get("length")) or 0.0))
    timings = {}
    for path in sorted(directory.glob("timing/*.json")):
        timed = durable.read_object(path)
        known = all(finite(timed.get(key)) is not None for key in ("seconds_per_step", "steps"))
        if known and timed.get("preset") in presets():
            timings[str(timed["preset"])] = timed
    remarks = {str(k): str(v) for k, v in durable.read_object(directory / "remarks.json").items()}
    missing = {str(k): str(v) for k, v in durable.read_object(directory / "missing.json").items()}
    sweeps = {path.stem: durable.read_object(path) for path in sorted(directory.glob("sweeps/*.json"))}
    return Results(in_order, timings, missing, remarks, others, sweeps)


def _alike(runs: Sequence[Run], preset: Preset) -> list[Run]:
    """Of a preset's runs those that its row is made of: as it is set, or else the most that differ from it alike."""
    groups: dict[tuple[str, ...], list[Run]] = {}
    for run in runs:
        groups.setdefault(tuple(match.differences(run.config, preset)), []).append(run)
    return groups.get(()) or max(groups.values(), key=len)


def label(preset: Preset, hidden: int | None = None) -> str:
    """The model with its size: the paper's, and beside it what was run where that is another."""
    model = preset.config["model"]
    n = model["hidden"]
    size = f"n={n}" if hidden in (None, n) else f"n={hidden} in place of {n}"
    return f"{look(model['name']).label} {size}"


def spread(values: Sequence[float]) -> str | None:
    """The value; of several seeds their mean and standard deviation, to the first digit of the deviation."""
    if not values:
        return None
    mean = statistics.fmean(values)
    if len(values) == 1:
        return number(mean)
    deviation = statistics.stdev(values)
    if deviation == 0:
        return f"{number(mean)} ± 0"
    decimals = max(0, -math.floor(math.log10(deviation)))
    if decimals <= 4:
        return f"{mean:.{decimals}f} ± {deviation:.{decimals}f}"
    power = math.floor(math.log10(abs(mean))) if mean else -decimals
    decimals = max(0, decimals + power)
    return f"({mean / 10**power:.{decimals}f} ± {deviation / 10**power:.{decimals}f})e{power}"


@dataclass(frozen=True)
class _Measure:
    """A figure of a run: its name, what is read, and whether it answers the published figure of its metric and split.

    ``at`` is the place in a series over epochs or over time.
    """

    name: str
    read: Literal["final", "best", "chosen", "at chosen", "audio", "drift", "gradient"]
    metric: str = ""
    split: str = "test"
    at: int = 0
    published: bool = False

    def of(self, run: Run, weights: str) -> float | None:
        match self.read:
            case "final":
                return run.final(self.split, self.metric, weights)
            case "best":
                return run.best(weights)
            case "chosen":
                return run.chosen(weights)
            case "at chosen":
                return run.at_chosen(self.split, self.metric, weights)
        if weights != "raw":
            return None
        match self.read:
            case "audio":
                return audio_mean(run, self.metric)
            case "drift":
                series = orthogonality(run)[1].tolist()
            case _:
                series = gradient_norms(run, self.metric)
        return float(series[self.at]) if series else None


_START, _TRAINED = "gradient norm, start", "gradient norm, trained"
_MEASURES = {
    "fig-copying": (
        _Measure("cross-entropy", "final", "loss", published=True),
        _Measure("recall", "final", "recall"),
    ),
    "fig-adding": (
        _Measure("MSE", "final", "mse", published=True),
        _Measure("best MSE", "best"),
    ),
    "table-mnist": (
        _Measure("accuracy", "best", "accuracy", published=True),
        _Measure("chosen on validation", "chosen"),
    ),
    "table-timit": (
        _Measure("valid MSE (padded)", "at chosen", "mse_padded", "valid", published=True),
        _Measure("eval MSE (padded)", "at chosen", "mse_padded", published=True),
        _Measure("eval MSE (not padded)", "at chosen", "mse"),
        _Measure("SegSNR", "audio", "segsnr"),
        _Measure("STOI", "audio", "stoi"),
        _Measure("PESQ", "audio", "pesq"),
    ),
    "fig-orthogonality": (
        _Measure("first", "drift", "orthogonality", published=True),
        _Measure("last", "drift", at=-1),
    ),
    "fig-gradients": (
        _Measure("start, t = 1", "gradient", _START, published=True),
        _Measure("start, t = T", "gradient", _START, at=-1),
        _Measure("trained, t = 1", "gradient", _TRAINED, published=True),
        _Measure("trained, t = T", "gradient", _TRAINED, at=-1),
    ),
}
