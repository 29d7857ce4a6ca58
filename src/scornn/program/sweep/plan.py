"""A sweep as it was asked for: ``sweep.json``, and the config of each of its trials."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

import msgspec
from msgspec import Meta, Struct

from scornn.errors import ScornnError, UsageError
from scornn.program import durable, plugins
from scornn.program.recipes.presets import resolve
from scornn.program.sweep.space import Axis, Value, grid, parse
from scornn.program.sweep.storage import DATABASE
from scornn.program.tasks import Task
from scornn.program.tasks.catalogue import find, name_of
from scornn.program.tasks.contract import fingerprint
from scornn.program.train.config import Config, to_table
from scornn.program.train.distributed import default_threads
from scornn.program.train.engine import Engine, make_task
from scornn.program.train.figures import Weights
from scornn.program.train.identity import Identity, differences, in_words
from scornn.program.train.program import check_device
from scornn.program.train.tables import Table, assign, merge, read
from scornn.program.train.validate import convert

FILE = "sweep.json"
SAMPLED_TRIALS = 20
"""Where ``--trials`` does not say."""
_EVALUATIONS = 10
"""Of a run that may end early, where the settings do not say."""


class Objective(NamedTuple):
    """What decides: a metric, in which direction, and on which split."""

    metric: str
    goal: Literal["max", "min"]
    split: Literal["valid", "test"]

    @classmethod
    def of(cls, task: Task) -> Self:
        """The task's own."""
        return cls(task.headline, task.goal, "valid" if "valid" in task.splits else "test")

    @property
    def direction(self) -> str:
        return f"the {self.split} {self.metric}, the {'more' if self.goal == 'max' else 'less'} the better"

    def rank(self, value: float, number: int) -> tuple[float, int]:
        """What sorts trials, the best first and then by number."""
        return (-value if self.goal == "max" else value), number

    def words(self, weights: Weights) -> str:
        """In a sentence."""
        averaged = " of the averaged weights" if weights == "average" else ""
        if self.split == "valid":
            return f"best valid {self.metric}{averaged}"
        return (
            f"last test {self.metric}{averaged}: the task has no validation split, so the best figure is of the data "
            "that chose it"
        )


class Plan(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What ``sweep.json`` holds. ``settings`` are those given, to be resolved with the values of each trial."""

    format: Literal[1] = 1
    settings: dict[str, Any]
    over: tuple[str, ...]
    trials: Annotated[int, Meta(ge=1, le=1_000_000)]
    sampler: Literal["grid", "random", "tpe"]
    prune: Literal["halving", "median", "none"] = "none"
    weights: Weights = "raw"
    seed: int = 0
    objective: Objective
    study: str = "sweep"
    storage: str = DATABASE
    jobs: Annotated[int, Meta(ge=1, le=1024)] = 1
    threads: Annotated[int, Meta(ge=1, le=1024)] | None = None

    @property
    def prunes_on(self) -> str:
        """What ends a trial early, in words."""
        valid = self.objective.split == "valid"
        return f"valid {self.objective.metric}" if valid else "training loss, never on the test split"


def make(settings: Table, over: Sequence[str], **given: Any) -> Plan:
    """A plan from what was given; where nothing is, the sampler, the total, the seed and the objective follow.

    What no trial could run is refused.
    """
    base = resolve(settings)[0]
    varied = parse(over, to_table(base))
    check_here(base)
    sampler = given.get("sampler") or ("grid" if all(axis.choices for axis in varied) else "tpe")
    trials = given.get("trials") or (len(grid(varied)) if sampler == "grid" else SAMPLED_TRIALS)
    task = make_task(base)
    own = {"settings": settings, "over": over, "seed": base.seed, "objective": Objective.of(task)}
    plan = convert({**given, **own, "sampler": sampler, "trials": trials}, Plan)
    _check(plan, base, task, varied)
    return _evaluated_often(plan, base, task, varied)


def load(directory: Path, files: Sequence[str] = ()) -> Plan:
    """The plan of a sweep that is there. Its plugins are loaded: ``files``, or those that it names."""
    if not (directory / FILE).is_file():
        what = "no such directory" if not directory.exists() else f"it has no {FILE}"
        raise UsageError(
            f"{directory} is not a sweep: {what}; `scornn sweep TASK --over … --out {directory}` makes one"
        )
    plan = convert(read(directory / FILE), Plan)
    if plan.storage == "journal.log":
        raise UsageError(f"{directory} is a sweep of scornn 0.2.0: go on with that version, or choose another --out")
    loaded = plugins.of_config(plan.settings, files)
    return with_plugins(plan, loaded) if loaded else plan


def with_plugins(plan: Plan, files: Sequence[str]) -> Plan:
    """The plan with other places of its plugins."""
    return msgspec.structs.replace(plan, settings={**plan.settings, "plugins": list(files)})


def save(plan: Plan, directory: Path) -> None:
    """Write ``sweep.json``."""
    durable.write_json(directory / FILE, msgspec.to_builtins(plan))


def axes(plan: Plan) -> tuple[Axis, ...]:
    """What the plan varies."""
    return parse(plan.over, to_table(resolve(plan.settings)[0]))


def config(plan: Plan, values: Mapping[str, Value]) -> Config:
    """The config of a trial: the settings with these values on top, as `scornn train` resolves them."""
    changed: Table = {}
    for key, value in values.items():
        assign(changed, key, value)
    threads = plan.threads or max(1, default_threads() // plan.jobs)
    return resolve(merge(plan.settings, {"threads": threads}, changed))[0]


def identity(plan: Plan) -> Table:
    """What makes two plans one study: their settings, and the content of data files that alone make the problem."""
    base = resolve(plan.settings)[0]
    data = fingerprint(make_task(base)) if find(name_of(base.task)).by_folder else None
    own = {"--over": sorted(plan.over), "--sampler": plan.sampler, "--prune": plan.prune, "--weights": plan.weights}
    return {**Identity.of(base, data).at("study"), **own}


def difference(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """In words the first of the keys in which two identities differ; empty where they are the same."""
    return "; ".join(in_words(differences(there, here))[:3])


def check_here(config: Config) -> None:
    """Refuse a config that no trial could have, or none on this machine."""
    if config.start is not None:
        raise UsageError(f"start = {config.start}: the trials of a sweep begin with their seed; leave it out")
    check_device(config)


def _check(plan: Plan, base: Config, task: Task, varied: Sequence[Axis]) -> None:
    """Refuse what no trial could run: each value of each key, beside the settings of the others."""
    averages = plan.weights == "raw" or Engine(base, task).average is not None
    for axis in varied:
        for value in axis.choices or (axis.low, axis.high):
            try:
                changed = config(plan, {axis.key: value})
                check_here(changed)
                own = task if changed.task == base.task else make_task(changed)
                if (judged := Objective.of(own)) != plan.objective:
                    raise UsageError(f"{own.name} is judged by {judged.direction}, and the sweep by {task.name}'s")
                if axis.key.startswith("model.") or not averages:
                    averages |= Engine(changed, own).average is not None
            except ScornnError as error:
                raise type(error)(f"--over {axis.text}: {error}") from None
    if not averages:
        raise UsageError(
            f"--weights average: {base.model.name} with these settings averages nothing; "
            "give --set optimizer.average.decay=0.999, or another model"
        )


def _evaluated_often(plan: Plan, base: Config, task: Task, varied: Sequence[Axis]) -> Plan:
    """The plan with ten evaluations of a trial that may end early by them; of several lengths, of the shortest."""
    pruned = plan.prune != "none" and plan.objective.split == "valid"
    until = base.stop_when or any(axis.key.startswith("stop_when.") for axis in varied)
    if "eval_every" in plan.settings or not (pruned or until):
        return plan
    per_epoch = task.num_batches("train")
    lengths = [axis.choices or (axis.low,) for axis in varied if axis.key == "steps"] or [(base.length(per_epoch),)]
    every = max(1, int(min(map(float, lengths[0]))) // _EVALUATIONS)
    if (base.eval_every or per_epoch) <= every:
        return plan
    return msgspec.structs.replace(plan, settings={**plan.settings, "eval_every": every})
