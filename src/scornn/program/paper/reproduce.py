"""Runs what an item of the paper needs, each run once, and goes on where it stopped.

``OUT/runs/PRESET-sSEED`` are run directories of the trainer, ``OUT/timing/PRESET.json`` measurements,
``OUT/plan.json`` the scale and the items asked for, ``OUT/missing.json`` what could not be run, and why. The scale
``paper`` is the preset as it stands; ``smoke`` are small networks on short problems for a few steps, to see that
everything runs.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

from scornn.errors import DataError, DivergedError, UsageError
from scornn.program import durable, tasks
from scornn.program.analysis import gradients
from scornn.program.analysis.timing import EPOCH, seconds_per_step
from scornn.program.metrics.reconstruct import evaluate_audio
from scornn.program.paper import match
from scornn.program.paper.items import GRADIENT_STEPS, ITEMS, Item
from scornn.program.paper.progress import Overview
from scornn.program.recipes.experiments import SEED, Preset
from scornn.program.recipes.presets import presets
from scornn.program.tasks.base import Level
from scornn.program.tasks.catalogue import entry_of
from scornn.program.train import begin, program
from scornn.program.train.config import Config, build, to_table
from scornn.program.train.distributed import default_threads
from scornn.program.train.figures import Weights
from scornn.program.train.identity import Identity, level
from scornn.program.train.run import read_config
from scornn.program.train.tables import Table, merge
from scornn.program.train.weights import find

_SMOKE_HIDDEN, _SMOKE_STEPS, _SMOKE_TIMED = 8, 4, 3
_SHOWN_UTTERANCES = 3


@dataclass(frozen=True)
class Request:
    """What was asked for: ``iterations`` is the length of each run in place of its own, ``only`` names presets."""

    out: Path
    scale: Literal["smoke", "paper"] = "smoke"
    seeds: tuple[int, ...] = (SEED,)
    only: tuple[str, ...] = ()
    iterations: int | None = None
    corpus: str | None = None
    allow_partial: bool = False
    data: Path | None = None
    quiet: bool = False


@dataclass
class Outcome:
    """The end of a reproduction: the signal that stopped it (0: none), and why some presets have no result.

    ``items`` names all that were ever asked for in this directory, in the paper's order: its page shows them.
    """

    items: list[str]
    signal: int = 0
    missing: dict[str, str] = field(default_factory=dict)
    diverged: dict[str, str] = field(default_factory=dict)
    """Of those the ones whose data were there, by the name of the run."""


@dataclass(frozen=True)
class _Job:
    preset: Preset
    item: Item
    config: Config

    @property
    def name(self) -> str:
        return str(self.config.name)

    @property
    def shown(self) -> str:
        """What a line of progress calls it: a smoke run is not of the preset's size."""
        table, name = to_table(self.config), self.name
        if match.is_reduced(table, self.preset):
            name = f"smoke of {name} ({', '.join(match.sizes(table)[:2])})"
        return f"{name}, timing" if self.item.kind == "timing" else name

    @property
    def begins_as(self) -> str:
        """The name of the run whose averaged weights it begins with; empty where it is drawn from its seed."""
        return f"{self.preset.start}-s{self.config.seed}" if self.preset.start else ""


def reproduce(items: list[Item], request: Request) -> Outcome:
    """Run everything that the items need and that is not there yet."""
    jobs = _jobs(items, request)
    outcome = Outcome(open_plan(request, items))
    absent: dict[str, str] = {}
    ran: set[str] = set()
    with Overview(", ".join(i.name for i in items), len(jobs), request.quiet) as overview:
        for job in jobs:
            overview.start(job.shown)
            try:
                if _needs(job) in absent:
                    raise DataError(absent[_needs(job)])
                if (first := job.begins_as) in outcome.diverged:
                    raise DivergedError(f"{first}, as which it begins, diverged")
                work = _time if job.item.kind == "timing" else _train
                word, outcome.signal = work(job, request, overview)
            except DataError as error:
                word = "missing, as before" if _needs(job) in absent else f"missing: {error}"
                absent[_needs(job)] = outcome.missing[job.preset.name] = str(error)
            except DivergedError as error:
                outcome.missing[job.preset.name] = word = f"diverged: {error}"
                outcome.diverged[job.name] = str(error)
            if outcome.signal:
                overview.say(f"{job.shown}: {word}")
                break
            ran.add(job.preset.name)
            overview.end(word)
    known = durable.read_object(request.out / "missing.json")
    kept = {name: reason for name, reason in known.items() if name not in ran}
    durable.write_json(request.out / "missing.json", {**kept, **outcome.missing})
    return outcome


def _jobs(items: list[Item], request: Request) -> list[_Job]:
    """Each run once: a preset may stand in several items."""
    known = {name for item in items for name in (*item.presets, *item.beyond)}
    for name in request.only:
        if name not in known:
            few = ", ".join(sorted(known)[:6]) + (", …" if len(known) > 6 else "")
            raise UsageError(f"--only {name}: no such preset in {', '.join(i.name for i in items)}; it has {few}")
    found: dict[str, _Job] = {}
    for item in items:
        every = (*item.presets, *item.beyond)
        asked = [presets()[name] for name in every if name in (request.only or item.presets)]
        first = [presets()[preset.start] for preset in asked if preset.start]
        chosen = [*first, *(preset for preset in asked if preset not in first)]
        seeds = request.seeds[:1] if item.kind == "timing" else request.seeds
        for preset in chosen:
            for seed in seeds:
                job = _Job(preset, item, settings(preset, item, seed, request))
                found.setdefault(f"{item.kind == 'timing'} {job.name}", job)
    return list(found.values())


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
        table = merge(table, _smoke(table["task"]))
    if request.iterations is not None and item.kind == "training":
        table = merge(table, {"steps": request.iterations})
    return build(table)


def _smoke(task: Table) -> Table:
    """What is smaller than in the paper."""
    entry = entry_of(task)
    return {
        "task": dict(entry.smoke) if entry else {},
        "model": {"hidden": _SMOKE_HIDDEN},
        "steps": _SMOKE_STEPS,
        "eval_every": _SMOKE_STEPS // 2,
        "log_every": 1,
        "checkpoint_every": _SMOKE_STEPS,
    }


def _needs(job: _Job) -> str:
    """The data set of a job, by a name: what is missing once is missing for all."""
    task = to_table(job.config)["task"]
    return str(task.get("dataset") or task.get("corpus") or task["name"])


def _train(job: _Job, request: Request, overview: Overview) -> tuple[str, int]:
    path, config = request.out / "runs" / job.name, job.config
    first = path.with_name(job.begins_as) if job.begins_as else None
    there = (path / "config.json").is_file()
    if there:
        start = begin.label(first, find(first, weights="average")) if first else None
        _check_same(msgspec.structs.replace(config, start=start), read_config(path), path)
    summary = durable.read_object(path / "summary.json")
    if there and summary.get("finished") is True and _reached(summary, config):
        word, signal = "already there", 0
    else:
        shown: dict[str, Any] = {"tensorboard": False, "display": overview.display}
        if there:
            result = program.resume(path, steps=config.steps, epochs=config.epochs, data=request.data, **shown)
        else:
            weights: Weights = "average" if first else "raw"
            result = program.start(config, path, start_from=first, start_weights=weights, **shown)
        word, signal = _said(result), result.signal
    if not signal:
        _afterwards(job, path, request)
    return word, signal


def _afterwards(job: _Job, path: Path, request: Request) -> None:
    """What is measured on trained weights."""
    if job.item.kind == "gradients" and not (path / gradients.FILE).is_file():
        gradients.of_run(path, data=request.data)
    first = job.preset.name == job.item.presets[0]
    if job.item.name == "table-timit" and (first or request.scale != "smoke"):
        steps = durable.read_object(path / "summary.json").get("steps")
        if durable.read_object(path / "audio" / "of.json").get("steps") != steps:
            task, engine, _ = program.load(path, best=True, data=request.data)
            assert isinstance(task, tasks.Speech)
            evaluate_audio(engine.model, task, path / "audio", progress=False, shown=_SHOWN_UTTERANCES)
            durable.write_json(path / "audio" / "of.json", {"steps": steps})


def _said(result: program.Result) -> str:
    summary = result.summary
    if result.signal:
        return f"stopped at step {summary['steps']}; the same command goes on"
    best = summary["best"]["value"]
    return f"best test {summary['headline']} {best:.4g}, {summary['steps']:,} steps in {summary['seconds']:.3g} s"


def _reached(summary: dict[str, Any], wanted: Config) -> bool:
    if wanted.steps is not None:
        return bool(summary["steps"] >= wanted.steps)
    return bool(summary["epochs"] >= (wanted.epochs or 0))


def _check_same(config: Config, there: Config, path: Path) -> None:
    """Refuse to go on with a run of other settings; its length, its machine and ``eval_every`` may differ."""
    found = Identity.of(config).differences(Identity.of(there), "course")
    changed = {key for key in found if level(key) is not Level.MACHINE and key != "eval_every"}
    if changed == {"start"}:
        raise UsageError(f"{path} began with {there.start}, which is {config.start} now: choose another --out")
    if changed:
        raise UsageError(f"{path} holds a run of other settings than {config.name} has now: choose another --out")


def _time(job: _Job, request: Request, overview: Overview) -> tuple[str, int]:
    path = request.out / "timing" / f"{job.preset.name}.json"
    if path.is_file():
        return "already there", 0
    task = tasks.make(job.config.task, job.config.seed, request.data)
    overview.steps = request.iterations or (_SMOKE_TIMED if request.scale == "smoke" else EPOCH)
    measured = seconds_per_step(job.config, task, steps=overview.steps, progress=overview.stepped)
    durable.make_directory(path.parent)
    durable.write_json(path, {"preset": job.preset.name, "config": to_table(job.config), **measured})
    return f"{measured['seconds_per_step']:.3g} s a step, {measured['steps']} timed", 0


def open_plan(request: Request, items: list[Item]) -> list[str]:
    """The names of the items that were ever asked for in a directory, whose runs are all of one scale."""
    durable.make_directory(request.out / "runs")
    plan = durable.read_object(request.out / "plan.json") or {"scale": request.scale}
    if plan.get("scale") != request.scale:
        raise UsageError(
            f"{request.out} holds runs of the scale {plan.get('scale')!r}, not {request.scale!r}: choose another --out"
        )
    asked = {*plan.get("items", []), *(item.name for item in items)}
    plan["items"] = [name for name in ITEMS if name in asked]
    durable.write_json(request.out / "plan.json", plan)
    return list(plan["items"])
