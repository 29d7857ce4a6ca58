"""Which preset a run belongs to, and in words how it differs from it."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from scornn.program.recipes.experiments import Preset
from scornn.program.recipes.presets import presets
from scornn.program.report.settings import setting_name
from scornn.program.tasks.base import Level
from scornn.program.train.config import build, to_table
from scornn.program.train.identity import Differences, Identity, in_words, level
from scornn.program.train.identity import differences as differ
from scornn.program.train.tables import Table, flat, merge


def preset_of(config: Mapping[str, Any]) -> Preset | None:
    """The preset that a run is of: the one it is named after, or the one with its task, model and optimizer.

    Of several that differ in their length alone it is the one of the run's length, or else the first.
    """
    named = presets().get(str(config.get("name")).removesuffix(f"-s{config.get('seed')}"))
    if named is not None:
        return named
    own = _identity(config)
    alike = [preset for preset in presets().values() if _identity_of(preset.name) == own]
    length = [preset for preset in alike if whole(preset.name)["epochs"] == config.get("epochs")]
    return next(iter([*length, *alike]), None)


def differences(config: Mapping[str, Any], preset: Preset) -> list[str]:
    """What the run sets otherwise than its preset, its length left aside: "T 40 instead of 1,000"."""

    def counted(table: Mapping[str, Any]) -> Table:
        identity = Identity.of(table)
        sizes = {key: value for key, value in identity.values.items() if key.startswith("task.")}
        return identity.at("experiment") | {key: v for key, v in sizes.items() if level(key) is not Level.MACHINE}

    return _in_words(differ(counted(whole(preset.name)), counted(config)))


def unlike(config: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """What makes a run another experiment than the other: "rate 0.05 instead of 0.001"."""
    return _in_words(differ(_identity(other), _identity(config)))


def _in_words(found: Differences) -> list[str]:
    return in_words(found, setting_name, _number)


def share_made(summary: Mapping[str, Any], preset: Preset) -> float:
    """The share of the paper's length that a run has made; 0 if its summary does not say."""
    made, whole_length, _ = _lengths(summary, preset)
    return made / whole_length if isinstance(made, int | float) else 0.0


def length(summary: Mapping[str, Any], preset: Preset) -> str:
    """The length of a run beside the paper's: "4,000 of 10,000 iterations", "70 epochs"."""
    made, whole_length, unit = _lengths(summary, preset)
    if not isinstance(made, int | float):
        return f"unknown part of {whole_length:,} {unit}"
    if made >= whole_length:
        made_in_words = f"{made:,.6g} {unit if made != 1 else unit.removesuffix('s')}"
        return made_in_words if made == whole_length else f"{made_in_words}, published {whole_length:,}"
    return f"{made:,.3g} of {whole_length:,} {unit}" if unit == "epochs" else f"{made:,} of {whole_length:,} {unit}"


def _lengths(summary: Mapping[str, Any], preset: Preset) -> tuple[Any, Any, str]:
    """The length of a run, the paper's, and their unit."""
    if preset.config.get("steps"):
        return summary.get("steps"), preset.config["steps"], "iterations"
    return summary.get("epochs"), preset.config.get("epochs"), "epochs"


def sizes(config: Mapping[str, Any]) -> list[str]:
    """The sizes of a reduced run in words: "n 8", "T 20"."""
    here = flat(config)
    keys = ("model.hidden", "task.length", "task.batch", "task.train_size", "task.corpus")
    return [f"{setting_name(key)} {_number(here[key])}" for key in keys if key in here]


def is_reduced(config: Mapping[str, Any], preset: Preset) -> bool:
    """True if the state size or the length is not the preset's, as in a smoke run."""
    here, there = flat(config), flat(whole(preset.name))
    return any(here.get(key) != there.get(key) for key in ("model.hidden", "task.length"))


@cache
def whole(name: str) -> Table:
    """A preset's config with every default in it, and its start as it is for every seed."""
    preset = presets()[name]
    start = f"{preset.start}-averaged" if preset.start else None
    return {**to_table(build(merge({"threads": 1}, preset.config))), "start": start}


@cache
def _identity_of(preset: str) -> Table:
    return _identity(whole(preset))


def _identity(config: Mapping[str, Any]) -> Table:
    """What makes a run the one of its preset; one on an open corpus is of it too, and said to be on another."""
    return {key: value for key, value in Identity.of(config).at("experiment").items() if key != "task.corpus"}


def _number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
