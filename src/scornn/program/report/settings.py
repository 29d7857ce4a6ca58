"""Which runs belong together: problems, settings within a problem, and the seeds of a setting.

A problem is what runs can be compared on (a task at one length, one data set). A setting is everything else
but the seed. Colour and marker are the model's; settings that share them are told apart by their dash.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from scornn.nn.catalogue import look
from scornn.program.report.curves import Line
from scornn.program.report.runs import Run, finite, mapping
from scornn.program.tasks.catalogue import entry_of, label_and_about
from scornn.program.train.identity import Identity
from scornn.program.train.tables import set_values

_PROBLEM = ("length", "permuted", "dataset", "corpus")
_NOT_A_SETTING = (
    *("format", "seed", "name", "threads"),
    *("eval_every", "checkpoint_every", "log_every", "stop_when"),
)
_PLACES = ("data", "plugins")
_NAMES = {
    "optimizer.rest.lr": "rate",
    "optimizer.recurrent.lr": "rate of A",
    "optimizer.bias": "rate of b",
    "optimizer.rest.kind": "optimizer",
    "optimizer.recurrent.kind": "optimizer of A",
    "optimizer.schedule.kind": "schedule",
    "optimizer.schedule.hold": "held share of the run",
    "optimizer.average.decay": "decay of the average",
    "model.name": "model",
    "model.hidden": "n",
    "model.readout.width": "readout width",
    "model.readout.depth": "readout depth",
    "model.readout.norm": "readout norm",
    "model.readout.dropout": "readout dropout",
    "model.input_dropout": "input dropout",
    "model.read": "read",
    "task.length": "T",
    "task.corpus": "corpus",
    "task.train_size": "training samples",
    "task.test_size": "test samples",
    "task.batch": "batch",
}


def setting_name(key: str) -> str:
    """A dotted config key as people say it: which rate is which."""
    return _NAMES.get(key, key.removeprefix("model.options."))


@dataclass(frozen=True)
class Setting:
    """Runs that differ in nothing but their seed."""

    label: str
    runs: tuple[Run, ...]
    line: Line


@dataclass(frozen=True)
class Problem:
    """Settings that can be compared with one another."""

    title: str
    settings: tuple[Setting, ...]

    @property
    def runs(self) -> list[Run]:
        return [run for setting in self.settings for run in setting.runs]


def problems(runs: Sequence[Run]) -> list[Problem]:
    """Group runs: problems in the order in which their tasks first appear, and of one task by length."""
    by_title: dict[str, dict[str, list[Run]]] = {}
    tasks: dict[str, int] = {}
    known = {(_title(run), str(run.config.get("data"))): run.summary["data"] for run in runs if "data" in run.summary}
    code = {str(run.config.get("plugins")): digest for run in runs if (digest := _digest(run))}
    told = _told(runs)
    for run in runs:
        tasks.setdefault(run.task, len(tasks))
        title = _title(run)
        data = run.summary.get("data", known.get((title, str(run.config.get("data")))))
        identity = _identity(run, data, _digest(run) or code.get(str(run.config.get("plugins"))))
        by_title.setdefault(title, {}).setdefault(identity, []).append(replace(run, told=told[title]))

    def order(title: str) -> tuple[int, float]:
        run = next(iter(by_title[title].values()))[0]
        return tasks[run.task], finite(mapping(run.config.get("task")).get("length")) or 0.0

    return [
        Problem(title, _settings([part for group in by_title[title].values() for part in _by_data(group)]))
        for title in sorted(by_title, key=order)
    ]


def _told(runs: Sequence[Run]) -> dict[str, dict[str, Any]]:
    """Of each problem what any of its runs says: the metric that people compare, the split; a baseline if all agree."""
    found: dict[str, dict[str, Any]] = {}
    baselines: dict[str, list[Any]] = {}
    for run in runs:
        facts = found.setdefault(_title(run), {})
        for key in ("headline", "goal"):
            if key in run.summary:
                facts.setdefault(key, run.summary[key])
        if "baseline" in run.summary:
            baselines.setdefault(_title(run), []).append(run.summary["baseline"])
        if run.evaluation != "train":
            facts.setdefault("evaluation", run.evaluation)
    for title, said in baselines.items():
        if all(baseline == said[0] for baseline in said):
            found[title]["baseline"] = said[0]
    return found


def _by_data(group: list[Run]) -> list[list[Run]]:
    """The group, or where one seed ran on different data a group for each: then nobody knows which data others had."""
    known = [(json.dumps(run.config.get("seed")), json.dumps(run.summary.get("data"))) for run in group]
    told = {pair for pair in known if pair[1] != "null"}
    if len(told) == len({seed for seed, _ in told}):
        return [group]
    parts: dict[str, list[Run]] = {}
    for run in group:
        parts.setdefault(json.dumps(run.summary.get("data")), []).append(run)
    return list(parts.values())


def _settings(groups: list[list[Run]]) -> tuple[Setting, ...]:
    labels, seen = _labels([group[0] for group in groups]), Counter[tuple[int, str]]()
    settings = []
    for label, group in zip(labels, groups, strict=True):
        drawn = look(group[0].model)
        alike = (drawn.colour, drawn.marker)
        settings.append(Setting(label, tuple(group), Line.of(drawn, seen[alike])))
        seen[alike] += 1
    return tuple(settings)


def _labels(runs: Sequence[Run]) -> list[str]:
    """Model and size; where that is the same for two settings, what differs; then the run's name."""
    labels = [look(r.model).label + (f" n={r.hidden}" if r.hidden else "") if r.config else r.name for r in runs]
    for extend in (_what_differs, lambda same: [run.name for run in same]):
        for label in dict.fromkeys(labels):
            same = [k for k, other in enumerate(labels) if other == label]
            if len(same) > 1:
                for k, more in zip(same, extend([runs[k] for k in same]), strict=True):
                    labels[k] += f", {more}" if more else ""
    return labels


def _what_differs(runs: Sequence[Run]) -> list[str]:
    known = [key for key in differing(runs) if key.split(".")[0] not in _NOT_A_SETTING]
    keys = ([key for key in known if key not in _PLACES] or known)[:3]
    return [
        ", ".join(f"{setting_name(key)} {flatten(r.config)[key]}" for key in keys if key in flatten(r.config))
        for r in runs
    ]


def differing(runs: Sequence[Run]) -> list[str]:
    """Dotted config keys whose value is not the same in all runs."""
    configs = [flatten(run.config) for run in runs]
    keys = dict.fromkeys(key for config in configs for key in config)
    return [key for key in keys if len({config.get(key, "") for config in configs}) > 1]


def flatten(config: dict[str, Any]) -> dict[str, str]:
    """``{"model": {"hidden": 190}}`` as ``{"model.hidden": "190"}``; what is not set is left out."""
    values = set_values(config).items()
    return {k: v if isinstance(v, str) else json.dumps(v, ensure_ascii=False) for k, v in values}


def _digest(run: Run) -> object:
    """What identifies the code of a run's plugins."""
    return mapping(run.summary.get("numerics")).get("plugins")


def _identity(run: Run, data: object, code: object) -> str:
    """All but the seed; for the places of data and plugins their fingerprint and digest, where these are known.

    A fingerprint of the first batches tells nothing here: with another seed they are others, of the same data.
    """
    if not run.config:
        return f"run {run.path}"
    known = {key: str(value) for key, value in data.items()} if isinstance(data, dict) else None
    return Identity.of(run.config, known, None if code is None else str(code)).digest("setting")


def _title(run: Run) -> str:
    task = {"name": run.task, **mapping(run.config.get("task"))}
    label, _ = label_and_about(task)
    if (entry := entry_of(task)) and entry.by_folder and isinstance(folder := run.config.get("data"), str):
        label += f" of {Path(folder).name}"
    if "MNIST" in label:  # whichever the data set, in place of its key
        return _capital(label.replace("MNIST", "Fashion-MNIST") if task.get("dataset") == "fashion" else label)
    return _capital(label) + "".join(
        f", {'T = ' if key == 'length' else ''}{task[key]}"
        for key in _PROBLEM
        if isinstance(task.get(key), int | str) and not isinstance(task.get(key), bool)
    )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def explain(run: Run, *, length: bool = True) -> str:
    """A sentence or two on the task of a run, with its length; empty for a task that says nothing of itself."""
    task = {"name": run.task, **mapping(run.config.get("task"))}
    steps = f"{task['length']:,} " if length and isinstance(task.get("length"), int) else ""
    return label_and_about(task)[1].replace("{steps}", steps)
