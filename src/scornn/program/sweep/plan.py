"""A sweep as it was asked for: ``sweep.json``, and the config of each of its trials."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

import msgspec
from msgspec import Meta, Struct

from scornn.errors import ScornnError, UsageError
from scornn.program import durable, plugins
from scornn.program.recipes.presets import resolve
from scornn.program.sweep import rho
from scornn.program.sweep.space import Axis, Value, grid, parse
from scornn.program.tasks import Level, Task
from scornn.program.tasks.catalogue import find, name_of
from scornn.program.tasks.contract import fingerprint
from scornn.program.train.config import Config, to_table
from scornn.program.train.distributed import default_threads
from scornn.program.train.engine import Engine, build_model, make_task
from scornn.program.train.figures import Weights
from scornn.program.train.identity import Identity, in_words, level
from scornn.program.train.identity import differences as differ
from scornn.program.train.program import check_device
from scornn.program.train.tables import Table, assign, merge, read
from scornn.program.train.validate import convert

FILE = "sweep.json"
JOURNAL = "journal.log"
SAMPLED_TRIALS = 20
"""Where ``--trials`` does not say."""
_EVALUATIONS = 8
"""Of a run that may be pruned on its validation split, where the settings do not say."""


class Objective(NamedTuple):
    """What decides: a metric, in which direction, and on which split; ``prunes_on`` says what ends a trial early."""

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

    @property
    def prunes_on(self) -> str:
        return f"valid {self.metric}" if self.split == "valid" else "training loss, never on the test split"

    def rank(self, trial: Any) -> tuple[float, int]:
        """What sorts trials with a value, the best first and then by number."""
        return (-trial.value if self.goal == "max" else trial.value), trial.number

    def words(self, weights: Weights = "raw") -> str:
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
    storage: str = JOURNAL
    jobs: Annotated[int, Meta(ge=1, le=1024)] = 1
    threads: Annotated[int, Meta(ge=1, le=1024)] | None = None


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
    _check(plan, base, task)
    return _evaluated(plan, base, task)


def load(directory: Path, files: Sequence[str] = ()) -> Plan:
    """The plan of a sweep that is there. Its plugins are loaded: ``files``, or those that it names."""
    if not (directory / FILE).is_file():
        what = "no such directory" if not directory.exists() else f"it has no {FILE}"
        raise UsageError(
            f"{directory} is not a sweep: {what}; `scornn sweep TASK --over … --out {directory}` makes one"
        )
    plan = convert(read(directory / FILE), Plan)
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


def identity(plan: Plan) -> dict[str, Any]:
    """What makes two plans one study: flat, so that a difference has a name."""
    settings = Identity.of(resolve(plan.settings)[0]).at("study")
    own = {"--over": sorted(plan.over), "--sampler": plan.sampler, "--prune": plan.prune, "--weights": plan.weights}
    return {**settings, **own}


def data_identity(plan: Plan) -> dict[str, Any]:
    """What else makes two plans one study where the data alone make the problem: the content of its files."""
    base = resolve(plan.settings)[0]
    if not find(name_of(base.task)).by_folder:
        return {}
    return {f"data.{name}": digest for name, digest in fingerprint(make_task(base)).items()}


def differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """In words the first of the keys in which two identities differ; empty where they are one study."""
    own = (Level.NAME, Level.MACHINE)  # an identity that version 0.2.0 stored has these too
    found = {key: pair for key, pair in differ(there, here).items() if level(key) not in own}
    return "; ".join(in_words(found)[:3])


def check_here(config: Config) -> None:
    """Refuse a config that no trial could have, or none on this machine."""
    if config.start is not None:
        raise UsageError(f"start = {config.start}: the trials of a sweep begin with their seed; leave it out")
    check_device(config)


def _check(plan: Plan, base: Config, task: Task) -> None:
    """Refuse what no trial could run: each value of each key, beside the settings of the others."""
    varied = axes(plan)
    for axis in varied:
        for value in _ends(axis):
            auto = (axis.key, value) == (rho.KEY, rho.AUTO)
            try:
                changed = config(plan, {axis.key: "n/2" if auto else value})
                check_here(changed)
                own = task if changed.task == base.task else make_task(changed)
                _check_objective(own, plan.objective)
                if auto:
                    rho.lengths(changed, own)
                if axis.key.startswith("model."):
                    build_model(changed.model, own, changed.backend)
            except ScornnError as error:
                raise type(error)(f"--over {axis.text}: {error}") from None
    first = {axis.key: _ends(axis)[0] for axis in varied}
    trials = ({**first, axis.key: value} for axis in varied for value in _ends(axis))
    if plan.weights == "average" and not any(_averages(plan, values, base, task) for values in trials):
        raise UsageError(
            f"--weights average: {base.model.name} with these settings averages nothing; "
            "give --set optimizer.average.decay=0.999, or another model"
        )


def _ends(axis: Axis) -> tuple[Value, ...]:
    """The values of a list, or the ends of a range."""
    return axis.choices or (axis.low, axis.high)


def _averages(plan: Plan, values: Mapping[str, Value], base: Config, task: Task) -> bool:
    """Whether a trial with these values has averaged weights. One that cannot be is left to say so itself."""
    auto = values.get(rho.KEY) == rho.AUTO
    try:
        own = config(plan, {**values, rho.KEY: "n/2"} if auto else values)
        return Engine(own, task if own.task == base.task else make_task(own)).average is not None
    except ScornnError:
        return True


def _check_objective(task: Task, objective: Objective) -> None:
    """Refuse trials that cannot be compared."""
    own = Objective.of(task)
    if own != objective:
        raise UsageError(
            f"{task.name} is judged by {own.direction}, and the sweep by {objective.direction}; expected one measure"
        )


def _evaluated(plan: Plan, base: Config, task: Task) -> Plan:
    """The plan with evaluations set where its trials are to be pruned by them."""
    per_epoch = task.num_batches("train")
    total = base.length(per_epoch)
    few = total // (base.eval_every or per_epoch) < _EVALUATIONS // 2
    if plan.prune != "none" and plan.objective.split == "valid" and few and "eval_every" not in plan.settings:
        settings = merge(plan.settings, {"eval_every": max(1, -(-total // _EVALUATIONS))})
        plan = msgspec.structs.replace(plan, settings=settings)
    return plan
