"""The same rows at three scales.

``paper``: the preset as it stands. ``short``: about an hour for an item, shared by its runs; what a step and an
evaluation cost here decides how many there are. ``smoke``: small networks on short problems for a few steps, to see
that everything runs; its figures say nothing about the models.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from scornn.program.paper.experiments import SEED, Preset
from scornn.program.paper.items import GRADIENT_STEPS, Item
from scornn.program.tasks.catalogue import entry_of
from scornn.program.train.config import Config, build
from scornn.program.train.distributed import default_threads
from scornn.program.train.tables import Table, merge

Scale = Literal["smoke", "short", "paper"]
SHORT_SECONDS = 3600.0
SMOKE_STEPS = 4
_SMOKE_HIDDEN = 8
_EVALUATIONS = 20
_SHARE = 0.3
"""The most of a run's time that its evaluations may take."""


class Cost(Struct, frozen=True, kw_only=True):
    """Seconds, measured on the machine that runs."""

    step: float
    evaluation: float


@dataclass(frozen=True)
class Request:
    """What was asked for. ``minutes`` and ``iterations`` limit each run at any scale; ``only`` names presets."""

    out: Path
    scale: Scale = "smoke"
    seeds: tuple[int, ...] = (SEED,)
    only: tuple[str, ...] = ()
    minutes: float | None = None
    iterations: int | None = None
    corpus: str | None = None
    allow_partial: bool = False
    data: Path | None = None
    quiet: bool = False


def settings(preset: Preset, item: Item, seed: int, request: Request) -> Config:
    """The config of one run, before a time limit."""
    table: Table = {"threads": 1 if request.scale == "smoke" else default_threads(), "seed": seed}
    table |= {"name": f"{preset.name}-s{seed}", "data": str(request.data) if request.data else None}
    if item.kind == "gradients":
        table["steps"] = GRADIENT_STEPS
    table = merge(preset.config, table)
    if table["task"]["name"] == "speech":
        if request.corpus is not None:
            table["task"]["corpus"] = request.corpus
        if request.allow_partial:
            table["task"]["allow_partial"] = True
    return build(merge(table, smoke(table["task"]))) if request.scale == "smoke" else build(table)


def within(config: Config, seconds: float, cost: Cost, planned: int) -> Config:
    """The config cut to a time: at most the ``planned`` steps, and evaluations that take three tenths of it at most.

    Where even a few evaluations would take more, they are made on fewer test samples.
    """
    task, evaluation = config.task, cost.evaluation
    allowed = seconds * _SHARE
    size: int | None = getattr(task, "test_size", None)
    if size is not None and evaluation * 4 > allowed:
        fewer = max(20, int(size * allowed / 4 / evaluation))
        evaluation *= min(1.0, fewer / size)
        task = msgspec.structs.replace(task, test_size=min(size, fewer))
    count = max(1, min(_EVALUATIONS, int(allowed / evaluation)))
    steps = max(1, min(planned, int((seconds - count * evaluation) / cost.step)))
    every = max(1, steps // count)
    return msgspec.structs.replace(
        config,
        task=task,
        steps=steps,
        epochs=None,
        eval_every=every,
        log_every=min(config.log_every, max(1, steps // 20)),
        checkpoint_every=min(config.checkpoint_every, max(1, steps // 4)),
    )


def smoke(task: Table) -> Table:
    """What is smaller than in the paper."""
    entry = entry_of(task)
    return {
        "task": dict(entry.smoke) if entry else {},
        "model": {"hidden": _SMOKE_HIDDEN},
        "steps": SMOKE_STEPS,
        "eval_every": SMOKE_STEPS // 2,
        "log_every": 1,
        "checkpoint_every": SMOKE_STEPS,
    }
