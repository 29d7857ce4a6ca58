"""Which runs belong together: problems, settings within a problem, and the seeds of a setting.

:mod:`scornn.program.train.identity` says what a problem and a setting are. Colour and marker are the model's; settings
that share them are told apart by their dash.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scornn.nn.catalogue import look
from scornn.program.report.curves import Line
from scornn.program.report.runs import Run, finite, mapping
from scornn.program.tasks.base import Level
from scornn.program.tasks.catalogue import label_and_about
from scornn.program.train.identity import Identity, level
from scornn.program.train.tables import set_values

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

    @property
    def reference(self) -> Run:
        """The run that says which metric counts: the first that has a summary."""
        return next((run for run in self.runs if run.summary), self.runs[0])


def problems(runs: Sequence[Run]) -> list[Problem]:
    """Group runs: problems in the order in which their tasks first appear, and of one task by length."""
    groups: dict[str, dict[str, list[Run]]] = {}
    # an earlier version wrote no fingerprint of the data: that of another run on the data in the same place is its own
    known = {(_title(run), str(run.config.get("data"))): run.summary["data"] for run in runs if "data" in run.summary}
    for run in runs:
        title = _title(run)
        data = run.summary.get("data", known.get((title, str(run.config.get("data")))))
        code = mapping(run.summary.get("numerics")).get("plugins")
        identity = Identity.of(run.config, mapping(data) or None, code and str(code)).digest("setting")
        own = groups.setdefault(title, {})
        own.setdefault(identity if run.config else f"run {run.path}", []).append(run)
    tasks = list(dict.fromkeys(run.task for run in runs))

    def order(title: str) -> tuple[int, float]:
        run = next(iter(groups[title].values()))[0]
        return tasks.index(run.task), finite(mapping(run.config.get("task")).get("length")) or 0.0

    return [Problem(title, _settings(list(groups[title].values()))) for title in sorted(groups, key=order)]


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
    """In at most three values; where files lay is said where nothing else differs."""
    keys = [key for key in differing(runs) if level(key) not in (Level.SAMPLE, Level.MACHINE) and key != "name"]
    keys = [key for key in keys if level(key) is not Level.NAME] or keys
    tables = [flatten(run.config) for run in runs]
    return [", ".join(f"{setting_name(key)} {table[key]}" for key in keys[:3] if key in table) for table in tables]


def differing(runs: Sequence[Run]) -> list[str]:
    """Dotted config keys whose value is not the same in all runs."""
    configs = [flatten(run.config) for run in runs]
    keys = dict.fromkeys(key for config in configs for key in config)
    return [key for key in keys if len({config.get(key, "") for config in configs}) > 1]


def flatten(config: dict[str, Any]) -> dict[str, str]:
    """``{"model": {"hidden": 190}}`` as ``{"model.hidden": "190"}``; what is not set is left out."""
    values = set_values(config).items()
    return {k: v if isinstance(v, str) else json.dumps(v, ensure_ascii=False) for k, v in values}


def _title(run: Run) -> str:
    """The task, and what else makes the problem another one; what a task's label says already is left out."""
    task = {"name": run.task, **mapping(run.config.get("task"))}
    values = Identity.of({**run.config, "task": task}).at("problem")
    label = label_and_about(task)[0]
    if "MNIST" in label and values.pop("task.dataset", "mnist") == "fashion":
        label = label.replace("MNIST", "Fashion-MNIST")
    if folder := values.pop("data", None):
        label += f" of {folder}"
    said = {key: v for key, v in values.items() if isinstance(v, int | str) and not isinstance(v, bool)}
    said.pop("task.name", None)
    return label[:1].upper() + label[1:] + "".join(f", {'T = ' * (key == 'task.length')}{v}" for key, v in said.items())


def explain(run: Run, *, length: bool = True) -> str:
    """A sentence or two on the task of a run, with its length; empty for a task that says nothing of itself."""
    task = {"name": run.task, **mapping(run.config.get("task"))}
    steps = f"{task['length']:,} " if length and isinstance(task.get("length"), int) else ""
    return label_and_about(task)[1].replace("{steps}", steps)
