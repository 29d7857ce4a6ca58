"""A sweep as plain values: what its page is made from. As a file it is small enough to be kept and handed on."""

import warnings
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct

from scornn.errors import DataError, UsageError
from scornn.program import plugins
from scornn.program.report.runs import Run, Series, finite, mapping
from scornn.program.report.runs import read as read_run
from scornn.program.sweep.plan import FILE, Plan, axes, with_plugins
from scornn.program.sweep.program import open_sweep
from scornn.program.sweep.space import Value
from scornn.program.sweep.storage import DATABASE, storage_errors
from scornn.program.sweep.study import Trials, ended, interrupted
from scornn.program.train.tables import read as read_table
from scornn.program.train.validate import convert

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

_POINTS = 60
"""Of a curve in a file."""
_FEWEST_FOR_IMPORTANCE = 4
Points = tuple[tuple[float, float], ...]


class Entry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A trial that has begun. ``value`` is None where it did not come to its end, ``outcome`` says how it ended."""

    number: int
    values: dict[str, Value]
    state: Literal["complete", "pruned", "fail", "running"]
    outcome: str
    value: float | None = None
    test: float | None = None
    steps: float | None = None
    seconds: float | None = None
    run: str = ""
    loss: Points = ()
    metric: Points = ()

    @property
    def diverged(self) -> bool:
        return self.outcome.startswith("diverged")


class Record(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A plan and its trials, how much each key mattered, and what made them."""

    format: Literal[1] = 1
    plan: Plan
    trials: tuple[Entry, ...]
    importance: dict[str, float] = {}
    notes: tuple[str, ...] = ()
    code: str = ""
    machine: str = ""
    directory: str = ""

    def best(self, count: int | None = None) -> list[Entry]:
        """Of the trials that ran to their end, best first."""
        done = [trial for trial in self.trials if trial.value is not None]
        return sorted(done, key=lambda trial: self.plan.objective.rank(trial.value or 0.0, trial.number))[:count]


def find(path: Path, storage: str | None = None, plugins: Sequence[str] = ()) -> Record:
    """Of a sweep's directory, or of a file of :func:`to_json`."""
    return read(path, plugins) if path.is_file() else of(open_sweep(path, storage, plugins))


def of(trials: Trials) -> Record:
    """From the study, and the run directories that can be seen from here."""
    with storage_errors(trials.plan.storage):
        begun = [trial for trial in trials.all() if trial.state.name != "WAITING" or "run" in trial.user_attrs]
        importance = _importance(trials)
        made = trials.plugin_code()
    runs: dict[int, Run] = {}
    for trial in begun:
        with suppress(DataError):
            runs[trial.user_attrs["ticket"]] = read_run(trials.run_path(trial))
    summary: dict[str, Any] = next((run.summary for run in runs.values() if run.summary), {})
    return Record(
        plan=trials.plan,
        trials=tuple(_entry(trials, trial, runs.get(trial.user_attrs["ticket"])) for trial in begun),
        importance=importance,
        notes=tuple(_notes(begun, runs, made)),
        code=str(mapping(summary.get("versions")).get("scornn", "")),
        machine=str(mapping(summary.get("machine")).get("processor", "")),
        directory=str(trials.directory),
    )


def to_json(record: Record) -> str:
    """As a file: curves of few points, and nothing of where it was made."""
    table = msgspec.to_builtins(record)
    table["plan"] |= {"storage": DATABASE, "jobs": 1, "threads": None}
    table["plan"]["settings"] = plugins.without_places(table["plan"]["settings"])
    del table["directory"]
    for trial in table["trials"]:
        del trial["run"]
        for name in ("loss", "metric"):
            trial[name] = [[step, float(f"{value:.4g}")] for step, value in _thinned(trial[name])]
        trial["seconds"] = None if trial["seconds"] is None else round(trial["seconds"], 1)
    rows = ",\n".join("  " + msgspec.json.encode(trial).decode() for trial in table.pop("trials"))
    head = msgspec.json.format(msgspec.json.encode(table), indent=2).decode().removesuffix("\n}")
    return f'{head},\n  "trials": [\n{rows}\n  ]\n}}\n'


def made(path: Path, results: Path) -> dict[Path, str]:
    """Of a sweep its file ``results/sweeps/NAME.json``, to be written; of anything else nothing."""
    if not (path / FILE).is_file():
        return {}
    record = of(open_sweep(path))
    if not record.best():
        raise UsageError(f"{path}: no trial has come to its end yet")
    done = tuple(trial for trial in record.trials if trial.state != "running")
    file = results / "sweeps" / f"{path.resolve().name}.json"
    return {file: to_json(msgspec.structs.replace(record, trials=done))}


def read(path: Path, files: Sequence[str] = ()) -> Record:
    """From a file of :func:`to_json`; ``files`` are the plugins of which a record keeps no more than the names."""
    loaded, missing = plugins.load(files), ""
    try:
        record = convert(read_table(path), Record)
        if loaded:
            record = msgspec.structs.replace(record, plan=with_plugins(record.plan, loaded))
        else:
            missing = ", ".join(map(str, record.plan.settings.get("plugins") or ()))
        axes(record.plan)
    except UsageError as error:
        if missing:
            raise UsageError(f"{path} was made with {missing}: pass --plugin with where that is") from None
        raise UsageError(f"{path} is no record of a sweep: {error}") from None
    return record


def _thinned(points: Points) -> Points:
    """Evenly chosen ones, the last among them."""
    every = -(-len(points) // _POINTS) if points else 1
    return points[::-1][::every][::-1]


def _entry(trials: Trials, trial: "FrozenTrial", run: Run | None) -> Entry:
    objective, weights, state = trials.plan.objective, trials.plan.weights, trial.state.name.lower()
    stopped = trial.state.name == "WAITING" or interrupted(trial)
    word = "interrupted" if stopped or (not ended(trial) and trials.is_dead(trial)) else "running"
    seconds = finite(run.summary.get("seconds_with_evaluation")) if run else None  # through stops
    if seconds is None and trial.duration is not None:
        seconds = trial.duration.total_seconds()
    return Entry(
        number=trial.user_attrs["ticket"],
        values=dict(trial.params),
        state=state if ended(trial) else "running",  # type: ignore[arg-type]
        outcome=str(trial.user_attrs["outcome"]) if ended(trial) else word,
        value=trial.value if trial.state.name == "COMPLETE" else None,
        test=trial.user_attrs.get("test"),
        steps=run.steps if run else None,
        seconds=seconds,
        run=str(trials.run_path(trial)) if run else "",
        loss=_points(run.series("train", "loss")) if run else (),
        metric=_points(run.series(objective.split, objective.metric, weights)) if run else (),
    )


def _points(series: Series) -> Points:
    return tuple(zip(*(values.tolist() for values in series), strict=True))


def _notes(begun: list["FrozenTrial"], runs: dict[int, Run], made: dict[str, list[int]]) -> list[str]:
    notes = []
    alone = [t.user_attrs["ticket"] for t in begun if "as trial" not in str(t.user_attrs.get("outcome"))]
    unseen = [number for number in alone if number not in runs]
    if unseen:
        notes.append(f"Run directories that cannot be seen from here, of trials {', '.join(map(str, unseen))}.")
    if len(made) > 1:
        by_code = "; ".join(f"trials {', '.join(map(str, numbers))} with {code}" for code, numbers in made.items())
        notes.append(f"Made with other code of the plugins, so that their figures may not compare: {by_code}.")
    return notes


def _importance(trials: Trials) -> dict[str, float]:
    """Of each key, by PED-ANOVA; empty where too few trials came to their end, or all to the same."""
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

    done = [trial.value for trial in trials.all() if trial.state.name == "COMPLETE"]
    if len(done) < _FEWEST_FOR_IMPORTANCE or len(set(done)) < 2:
        return {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = get_param_importances(trials.study, evaluator=PedAnovaImportanceEvaluator())
    keys = {axis.key for axis in trials.axes}
    return {key: share for key, share in found.items() if key in keys}
