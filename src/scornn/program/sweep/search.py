"""``search-copying`` of ``scornn reproduce``: the search for the settings of one row of the paper, as a sweep.

The paper says that it searched a grid, and not which. Here it is of rho and of the learning rate of A, the paper's own
values among them. ``OUT/sweeps/search-copying`` is a sweep like any other.
"""

from pathlib import Path

import msgspec

from scornn.errors import UsageError
from scornn.program.paper.items import Item
from scornn.program.paper.reproduce import open_plan
from scornn.program.paper.scale import Request, Scale, smoke
from scornn.program.recipes.experiments import SEED
from scornn.program.recipes.presets import presets, resolve
from scornn.program.report.page import Cell, Prose, Section, Table, number, words
from scornn.program.report.settings import setting_name
from scornn.program.sweep import page, plan, program, record, rho
from scornn.program.sweep.record import Entry, Record
from scornn.program.train import tables
from scornn.program.train.distributed import default_threads

ROW = "copying-1000-scornn-190"
RATE = "optimizer.recurrent.lr"
OVER = (f"{rho.KEY}=0,n/10,n/4,n/2,7n/10,n", f"{RATE}=1e-5,3e-5,1e-4,3e-4")
_SMOKE_TRIALS = 4


def run(item: Item, request: Request) -> program.Result:
    """Make the sweep, or go on with it."""
    given = settings(request.scale)
    if request.iterations is not None:
        given |= {"steps": request.iterations, "eval_every": max(1, request.iterations // 6)}
    open_plan(request, [item])
    made = plan.make(given, OVER, trials=_SMOKE_TRIALS if request.scale == "smoke" else None)
    jobs = 1 if request.scale == "smoke" else min(default_threads(), made.trials)
    made = msgspec.structs.replace(made, study=item.name, jobs=jobs, threads=1)
    return program.start(made, request.out / "sweeps" / item.name, quiet=request.quiet)


def settings(scale: Scale) -> tables.Table:
    """Of the row at a scale, before the values of a trial."""
    base: tables.Table = {"seed": SEED, "task": {"name": "copying", "length": presets()[ROW].config["task"]["length"]}}
    if scale == "paper":
        return base
    return tables.merge(base, smoke(presets()[ROW].config["task"]))


def sections(item: Item, directory: Path) -> list[Section]:
    """What the page of a reproduction, or of the committed results, says about the search."""
    kept, own = directory / "sweeps" / f"{item.name}.json", directory / "sweeps" / item.name
    if not kept.is_file() and not (own / plan.FILE).is_file():
        return []
    try:
        found = record.read(kept) if kept.is_file() else record.of(program.open_sweep(own))
    except UsageError as error:
        return [Prose([item.caption, str(error)])]
    if not found.best():
        return [Prose([item.caption, "No trial has ended yet."])]
    return [Prose([item.caption, _said(found)]), _by_rho(found), *page.over(found, level=3)]


def _said(found: Record) -> str:
    base = resolve(found.plan.settings)[0]
    ranked, metric = found.best(), words(found.plan.objective.metric)
    text = (
        f"{len(found.trials)} of {found.plan.trials} trials of {base.steps:,} iterations, n = {base.model.hidden}, "
        f"T = {getattr(base.task, 'length', '')}. Best here: {_words(ranked[0])}, {metric} {number(ranked[0].value)}."
    )
    config = presets()[ROW].config
    papers = config["model"]["options"]["rho"], config["optimizer"]["recurrent"]["lr"]
    place = next((k for k, t in enumerate(ranked, 1) if (t.values[rho.KEY], t.values[RATE]) == papers), None)
    if place is None:
        return text
    own = ranked[place - 1]
    return f"{text} The paper's setting, {_words(own)}, is in place {place} of {len(ranked)} with {number(own.value)}."


def _words(trial: Entry) -> str:
    return f"ρ = {trial.values[rho.KEY]} and a {setting_name(RATE)} of {number(trial.values[RATE])}"


def _by_rho(found: Record) -> Table:
    """The values of each rho, one column for each rate, its best in bold."""
    rhos, rates = (axis.choices for axis in plan.axes(found.plan))
    by_values = {(t.values[rho.KEY], t.values[RATE]): t.value for t in found.trials if t.value is not None}
    better = max if found.plan.objective.goal == "max" else min
    rows = []
    for r in rhos:
        values = [by_values.get((r, rate)) for rate in rates]
        best = better((value for value in values if value is not None), default=None)
        rows.append([f"ρ = {r}", *(Cell(v) if v is not None and v == best else v for v in values)])
    metric = words(found.plan.objective.metric)
    columns = ["", *(f"{setting_name(RATE)} {number(rate)}" for rate in rates)]
    return Table(columns, rows, f"Last test {metric} of each trial")
