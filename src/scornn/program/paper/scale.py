"""The same rows at two scales.

``paper``: the preset as it stands. ``smoke``: small networks on short problems for a few steps, to see that everything
runs; its figures say nothing about the models.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from scornn.program.paper.items import GRADIENT_STEPS, Item
from scornn.program.recipes.experiments import SEED, Preset
from scornn.program.tasks.catalogue import entry_of
from scornn.program.train.config import Config, build
from scornn.program.train.distributed import default_threads
from scornn.program.train.tables import Table, merge

Scale = Literal["smoke", "paper"]
SMOKE_STEPS = 4
_SMOKE_HIDDEN = 8


@dataclass(frozen=True)
class Request:
    """What was asked for: ``iterations`` is the length of each run in place of its own, ``only`` names presets."""

    out: Path
    scale: Scale = "smoke"
    seeds: tuple[int, ...] = (SEED,)
    only: tuple[str, ...] = ()
    iterations: int | None = None
    corpus: str | None = None
    allow_partial: bool = False
    data: Path | None = None
    quiet: bool = False


def settings(preset: Preset, item: Item, seed: int, request: Request) -> Config:
    """The config of one run."""
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
    if request.scale == "smoke":
        table = merge(table, smoke(table["task"]))
    if request.iterations is not None and item.kind == "training":
        table = merge(table, {"steps": request.iterations})
    return build(table)


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
