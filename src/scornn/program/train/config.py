"""The configuration of a run: frozen, validated, and written out whole beside its results.

A config is plain nested tables (TOML or JSON) until :func:`build` turns it into a :class:`Config`. Every
refusal names the key, what was found and what is allowed. Numbers may be written as a fraction of the
state size, ``rho = "7n/10"``; :func:`build` replaces them by the integer.
"""

import math
import operator
import re
from collections.abc import Mapping
from functools import cache, reduce
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from scornn.errors import UsageError
from scornn.program import durable
from scornn.program.tasks import TASKS, Level, TaskConfig
from scornn.program.train.tables import Table, lookup, merge, of_today
from scornn.program.train.validate import convert

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_FRACTION = re.compile(r"(\d{0,9})\s*n(?:\s*/\s*([1-9]\d{0,8}))?")


class ReadoutConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A readout with ``depth`` hidden layers of ``width`` units with GELU, in place of the paper's linear one.

    With ``norm`` they are batch-normalised, for tasks that are read once.
    """

    width: Annotated[int, Meta(ge=1, le=1 << 20)]
    depth: Annotated[int, Meta(ge=1, le=100)] | None = None
    norm: bool | None = None
    dropout: Annotated[float, Meta(ge=0, lt=1)] = 0.0


class ModelConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which layer, its state size n, and its keyword arguments (``rho``, ``num_layers``, ``dropout``, …).

    The ``readout`` is linear, as in the paper, unless it is given. Where a task reads the ``last``
    output, ``read`` = "mean" reads the mean of all. ``input_dropout`` is that of the inputs in training.
    """

    name: str
    hidden: Annotated[int, Meta(ge=1, le=1 << 20)]
    options: dict[str, bool | int | float | str] = {}
    readout: ReadoutConfig | None = None
    read: Literal["last", "mean"] | None = None
    input_dropout: Annotated[float, Meta(ge=0, lt=1)] | None = None


class StepRule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How one group of parameters is stepped; ``decay`` and ``eps`` default to the rule's own.

    ``stiefel`` moves a unitary W along its manifold by a Cayley step of length ``lr``; ``stiefel-rms`` divides the
    gradient by its root mean square first. Both are for the recurrent group of ``full-urnn`` alone.
    """

    kind: Literal["rmsprop", "adam", "adamw", "sgd", "stiefel", "stiefel-rms"]
    lr: Annotated[float, Meta(gt=0, le=10)]
    flavour: Literal["tf1", "theano", "torch"] = "tf1"
    decay: Annotated[float, Meta(ge=0, lt=1)] | None = None
    eps: Annotated[float, Meta(ge=0, le=1)] | None = None
    weight_decay: Annotated[float, Meta(ge=0, le=1)] | None = None


_MOMENTS = ("rmsprop", "adam", "adamw", "stiefel-rms")
_TAKEN_BY = {"flavour": ("rmsprop",), "decay": _MOMENTS, "eps": _MOMENTS, "weight_decay": ("adam", "adamw")}
"""The rules that a setting of a rule is for; others would pass it over."""
_PLAIN = StepRule(kind="sgd", lr=1)
"""Its settings are as good as none: a config.json has them for every rule."""


class Average(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An exponential average of the parameters, kept beside the run and evaluated beside it; the run does not see it.

    After t updates the share of the old average is ``decay``, or (1 + t) / (``warmup`` + t) while that is smaller.
    """

    decay: Annotated[float, Meta(ge=0, lt=1)] = 0.999
    warmup: Annotated[int, Meta(ge=1, le=1 << 40)] = 10


class Schedule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``constant``, as in the paper; ``halving`` in ``every`` steps, smoothly; ``cosine`` or ``linear`` to zero.

    The last two end with the run: one that is given a later end goes on at the rates of the longer run. They begin to
    fall when the share ``hold`` of the run is done, or at once. ``warmup`` is a number of steps over which the factor
    first rises from zero, in a line.
    """

    kind: Literal["constant", "halving", "cosine", "linear"]
    warmup: Annotated[int, Meta(ge=0, le=1 << 40)] = 0
    every: Annotated[int, Meta(ge=1, le=1 << 40)] | None = None
    hold: Annotated[float, Meta(ge=0, lt=1)] | None = None

    @property
    def looks_at_the_end(self) -> bool:
        """Whether the factor depends on how long the run is."""
        return self.kind in ("cosine", "linear")

    def factor(self, step: int, total: int) -> float:
        """What multiplies the rates at ``step``, from 0, of a run of ``total`` steps."""
        if step < self.warmup:
            return (step + 1) / (self.warmup + 1)
        if self.kind == "halving":
            assert self.every is not None
            return float(0.5 ** ((step - self.warmup) / self.every))
        held = max(self.warmup, (self.hold or 0) * total)
        done = min(1.0, max(0.0, step - held) / max(1, total - held))
        if self.kind == "cosine":
            return 0.5 * (1 + math.cos(math.pi * done))
        return 1 - done if self.kind == "linear" else 1.0


class OptimizerConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rules for the free numbers of A (``recurrent``) and all the ``rest``; clipping comes first.

    ``bias`` names the rule that the bias b inside the recurrence follows, or is a rate of its own by the rule of the
    rest. The ``schedule`` multiplies all rates; the ``average`` of the parameters changes nothing of the run.
    """

    rest: StepRule
    recurrent: StepRule
    bias: Literal["recurrent", "rest"] | Annotated[float, Meta(gt=0, le=10)] = "rest"
    schedule: Schedule | None = None
    average: Annotated[Average | None, Level.VARIANT] = None
    clip_norm: Annotated[float, Meta(gt=0, le=1e9)] | None = None
    clip_value: Annotated[float, Meta(gt=0, le=1e9)] | None = None


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that decides the numbers of a run.

    The length is ``steps`` or ``epochs``, exactly one of them. ``eval_every`` and ``checkpoint_every``
    count steps; ``eval_every = 0`` evaluates at the end of each epoch. ``stop_when`` ends the run early at
    the first evaluation at which every named metric of the test split is at least as good as its value.
    ``start`` names the weights of another run that this one began with; without it they are drawn from the seed.
    ``plugins`` are the Python files that its task or model came from; see :mod:`scornn.program.plugins`.
    """

    format: Annotated[Literal[1], Level.MACHINE] = 1
    task: TaskConfig
    model: ModelConfig
    optimizer: OptimizerConfig
    seed: Annotated[int, Meta(ge=0, le=(1 << 32) - 1), Level.SAMPLE] = 5544
    start: str | None = None
    steps: Annotated[Annotated[int, Meta(ge=1, le=1 << 40)] | None, Level.LENGTH] = None
    epochs: Annotated[Annotated[int, Meta(ge=1, le=1 << 30)] | None, Level.LENGTH] = None
    eval_every: Annotated[int, Meta(ge=0, le=1 << 40), Level.SAMPLE] = 0
    log_every: Annotated[int, Meta(ge=1, le=1 << 40), Level.MACHINE] = 10
    checkpoint_every: Annotated[int, Meta(ge=1, le=1 << 40), Level.MACHINE] = 500
    stop_when: Annotated[dict[str, float], Level.LENGTH] = {}
    threads: Annotated[int, Meta(ge=1, le=1024), Level.MACHINE]
    device: Annotated[Literal["cpu", "cuda"], Level.MACHINE] = "cpu"
    backend: Annotated[str, Level.MACHINE] = "auto"
    name: Annotated[str | None, Level.NAME] = None
    data: Annotated[str | None, Level.NAME] = None
    plugins: Annotated[tuple[str, ...], Level.NAME] = ()

    def length(self, steps_per_epoch: int) -> int:
        """The steps of the whole run."""
        return self.steps or (self.epochs or 0) * steps_per_epoch


def config_type() -> type[Config]:
    """:class:`Config` as it is written in a file: its task is any that is in the catalogue now."""
    return _with_tasks(tuple(dict.fromkeys(entry.config for entry in TASKS.values())))


@cache
def _with_tasks(kinds: tuple[Any, ...]) -> type[Config]:
    task = reduce(operator.or_, kinds)
    made: type[Any] = msgspec.defstruct(
        "Config", [("task", task)], bases=(Config,), frozen=True, kw_only=True, forbid_unknown_fields=True
    )
    return made


def is_real(key: str) -> bool:
    """Whether a dotted key takes fractions, by its type."""
    kinds: list[Any] = [msgspec.inspect.type_info(config_type())]
    for part in key.split("."):
        fields = [field for kind in kinds for field in getattr(kind, "fields", ()) if field.name == part]
        kinds = [kind for field in fields for kind in getattr(field.type, "types", (field.type,))]
    return any(isinstance(kind, msgspec.inspect.FloatType) for kind in kinds)


def build(table: Table, task: type[TaskConfig] | None = None) -> Config:
    """Validate nested tables and make them a :class:`Config`, or raise :class:`UsageError` naming the key.

    The task is any of the catalogue, or of the type ``task``.
    """
    read = convert(_replace_fractions(of_today(table)), config_type() if task is None else _with_tasks((task,)))
    config = Config(**msgspec.structs.asdict(read))
    _check_together(config)
    return config


def to_table(config: Config) -> Table:
    """The config as plain tables: what ``config.json`` holds."""
    return msgspec.json.decode(msgspec.json.encode(config))  # lists, as a file gives them back


def to_json(config: Config) -> str:
    """The text of ``config.json``. :func:`read` and :func:`build` give the same config back, bit for bit."""
    return durable.json_bytes(to_table(config)).decode()


def fraction(text: Any, n: int) -> int | None:
    """The number that a fraction of n, such as ``7n/10``, stands for; None for all else."""
    match = _FRACTION.fullmatch(text) if isinstance(text, str) else None
    return int(match[1] or 1) * n // int(match[2] or 1) if match else None


def _replace_fractions(table: Table) -> Table:
    options, n = lookup(table, "model.options"), lookup(table, "model.hidden")
    if not isinstance(options, Mapping) or not isinstance(n, int):
        return table
    numbers = {key: number for key, value in options.items() if (number := fraction(value, n)) is not None}
    return merge(table, {"model": {"options": numbers}})


def _check_together(config: Config) -> None:
    """What one key's range cannot say."""
    if (config.steps is None) == (config.epochs is None):
        both = "both steps and epochs are" if config.steps else "neither steps nor epochs is"
        raise UsageError(f"{both} given: expected exactly one of them, an integer >= 1")
    rho = config.model.options.get("rho")
    n = config.model.hidden
    if rho is not None and (not isinstance(rho, int) or isinstance(rho, bool) or not 0 <= rho <= n):
        raise UsageError(
            f"model.options.rho = {rho!r}: expected an integer from 0 to {n} (model.hidden), "
            'or a fraction of it such as "n/2"'
        )
    for name, rule in (("rest", config.optimizer.rest), ("recurrent", config.optimizer.recurrent)):
        if rule.eps == 0 and rule.kind in ("adam", "adamw"):
            raise UsageError(
                f"optimizer.{name}.eps = 0: {rule.kind} divides by it where a gradient is zero; expected more than 0"
            )
        for key, kinds in _TAKEN_BY.items():
            value, unset = getattr(rule, key), getattr(_PLAIN, key) or 0
            if value and value != unset and rule.kind not in kinds:
                *others, last = kinds
                take = f"{', '.join(others)} and {last} take" if others else f"{last} takes"
                full = f"optimizer.{name}.{key}"
                raise UsageError(
                    f"{full} = {value}: only {take} it, not {rule.kind}; leave it out, or set it back: "
                    f"--set {full}={unset}"
                )
    if (schedule := config.optimizer.schedule) is not None:
        key = "optimizer.schedule.every"
        if schedule.kind == "halving" and schedule.every is None:
            raise UsageError(f"{key} is missing: halving needs the steps in which the rates fall to half")
        if schedule.kind != "halving" and schedule.every is not None:
            raise UsageError(f"{key} = {schedule.every}: only halving takes it, not {schedule.kind}")
        if not schedule.looks_at_the_end and schedule.hold is not None:
            raise UsageError(
                f"optimizer.schedule.hold = {schedule.hold}: only cosine and linear take it, not {schedule.kind}"
            )
    if config.name is not None and not NAME.fullmatch(config.name):
        raise UsageError(
            f"name = {config.name!r}: expected 1 to 100 letters, digits, dots, dashes or underscores, "
            "the first a letter or digit"
        )
