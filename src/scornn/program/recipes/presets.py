"""The paper's settings by name, and which of them a command means: what every run's config is made from.

A preset holds every setting that makes the run (``config``), the exact number of trained parameters, what was
published and where, and a note where the authors' program and the paper's text differ. ``config`` may write
numbers as a fraction of the state size (``rho = "7n/10"``), so they follow when ``--hidden`` changes it.
"""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from scornn.errors import UsageError, suggest
from scornn.nn.catalogue import MODELS
from scornn.nn.gates import GatedLayer
from scornn.program.recipes.experiments import EXPERIMENTS, Preset, read
from scornn.program.tasks.catalogue import TASKS, entry_of
from scornn.program.train.config import Config, build
from scornn.program.train.distributed import default_threads
from scornn.program.train.tables import Table, flat, lookup, merge

_PLAIN: Table = {
    "model": {"hidden": 128},
    "optimizer": {
        "rest": {"kind": "adam", "lr": 3e-3},
        "recurrent": {"kind": "rmsprop", "lr": 3e-4},
        "schedule": {"kind": "cosine"},
        "clip_norm": 1.0,
        "average": {},
    },
    "steps": 1500,
}
"""Where neither the paper nor the task says anything. Rates this high go with cosine and clipping, not alone."""
_PLAIN_OF: dict[str, Table] = {
    "scornn": {"model": {"options": {"rho": "n/10"}}, "optimizer": {"rest": {"kind": "rmsprop", "lr": 3e-3}}},
    "full-urnn": {"optimizer": {"recurrent": {"kind": "stiefel-rms"}}},
}
"""What some models need beside it: scoRNN the optimizer of its paper and few −1 in D, a start from which fewer seeds
fail; the full-capacity uRNN a Stiefel step, which alone leaves its W unitary."""


@cache
def presets() -> dict[str, Preset]:
    """Every preset by name: experiment by experiment, and in each the rows in the paper's order."""
    return {preset.name: preset for name in EXPERIMENTS for preset in read(name)}


def choose(task: Mapping[str, Any], model: str, hidden: Any = None) -> Preset | None:
    """The paper's preset of a model on a task: that of the given length and state size, else the default one.

    Where there is one of that length but none of that size, it is the one of that length.
    """
    own = entry_of(task)
    found = [preset for preset in presets().values() if not preset.beyond and preset.config["model"]["name"] == model]
    found = [preset for preset in found if entry_of(preset.config["task"]) is own]
    for key, value in (("task.length", task.get("length")), ("model.hidden", hidden)):
        if value is not None:
            found = [preset for preset in found if lookup(preset.config, key) == value] or found
    return min(found, key=lambda preset: not preset.default, default=None)


def resolve(table: Table) -> tuple[Config, str]:
    """A config from what the user gave, on top of a preset; and a line that says which.

    A table with a ``format`` is a whole config, such as a run's ``config.json``, and stands on its own; only the
    threads may be left to the machine.
    """
    table = _with_task(table)
    machine = {"threads": default_threads()}
    if "format" in table:
        return build(merge(machine, table)), "settings from the config file"
    task, model = table.get("task", {}), table.get("model", {})
    if not isinstance(task, Mapping) or not isinstance(model, Mapping):
        raise UsageError("task and model: expected tables, such as --set model.hidden=64")
    _check_names(task, model)
    name, hidden = model.get("name", "scornn"), model.get("hidden")
    if preset := choose(task, name, hidden):
        return build(merge(machine, preset.config, table)), _origin(preset, table)
    if scornn := choose(task, "scornn", hidden):
        below = merge(scornn.config, {"model": {"name": name}})
        del below["model"]["options"]
        said = f"the paper gives no setting of {name} for this task: taking scoRNN's (preset {scornn.name})"
        return build(_with_one_rule(merge(machine, below, table), table, name)), said
    entry = entry_of(task)
    given = merge({"model": {"name": name}}, entry.defaults if entry else {}, table)
    name = str(lookup(given, "model.name"))
    config = build(_with_one_rule(merge(machine, _PLAIN, _PLAIN_OF.get(name, {}), given), given, name))
    return config, f"no setting of the paper for this task: taking plain ones, {_settings(config)}"


def _with_task(table: Table) -> Table:
    """A task may have its name on the command line, such as pmnist: the table with what that stands for."""
    name = lookup(table, "task.name")
    if name in _tags() or str(name) not in TASKS:
        return table
    for key, value in TASKS[name].settings.items():
        if (given := lookup(table, f"task.{key}")) not in (None, value):
            raise UsageError(f"task.{key} = {json.dumps(given)}: task.name = {name} is for {json.dumps(value)}")
    return merge(table, {"task": TASKS[name].table()})


def _with_one_rule(whole: Table, given: Table, model: str) -> Table:
    """An LSTM and a GRU have no parameters of the recurrent group: its rule is that of the rest, unless it is given."""
    optimizer = whole["optimizer"]
    gated = issubclass(MODELS[model].layer, GatedLayer)
    if not gated or not isinstance(optimizer, Mapping) or lookup(given, "optimizer.recurrent") is not None:
        return whole
    return {**whole, "optimizer": {**optimizer, "recurrent": optimizer["rest"]}}


def _settings(config: Config) -> str:
    """What a run is, by the keys that change it."""
    rules = {"rest": config.optimizer.rest, "recurrent": config.optimizer.recurrent}
    said = [f"{config.model.name} with hidden {config.model.hidden}"]
    said += [f"rho {rho}" for rho in [config.model.options.get("rho")] if rho is not None]
    one = rules["rest"] == rules["recurrent"]
    said += [f"optimizer.{name} {rule.kind} {rule.lr:g}" for name, rule in rules.items() if name == "rest" or not one]
    return ", ".join([*said, f"epochs {config.epochs}" if config.epochs else f"steps {config.steps}"])


def _origin(preset: Preset, table: Table) -> str:
    below = flat(preset.config)
    changed = {key: value for key, value in flat(table).items() if key not in below or below[key] != value}
    changes = [f"{key} = {value}" for key, value in changed.items() if key not in ("data", "name")]
    if not changes:
        return f"{preset.title} (preset {preset.name})"
    return f"preset {preset.name} ({preset.title}) with {', '.join(changes)}"


def _tags() -> list[str]:
    return [entry.tag for entry in TASKS.values()]


def _check_names(task: Mapping[str, Any], model: Mapping[str, Any]) -> None:
    if (name := task.get("name")) is None:
        raise UsageError(f"task.name is missing: expected one of {', '.join(TASKS)}")
    if name not in _tags():
        raise UsageError(f"unknown task {name!r}{suggest(str(name), TASKS)}")
    name = model.get("name", "scornn")
    if str(name) not in MODELS:
        raise UsageError(f"unknown model {name!r}{suggest(str(name), MODELS)}")
