"""The paper's figures in the paper's arrangement, from the runs that make their curves."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure as Drawing

from scornn import durable
from scornn.paper.items import ITEMS, Item
from scornn.paper.presets import presets
from scornn.report import figures
from scornn.report.figures import Curve, Panel
from scornn.report.page import number
from scornn.report.results import MODEL_NAMES, Number, Results, gradient_moments, label, orthogonality
from scornn.report.runs import Run, finite, mapping

_COLOURS = list(MODEL_NAMES)


def write_figures(results: Results, out: Path, items: Sequence[Item] = tuple(ITEMS.values())) -> list[Path]:
    """Each figure that has a curve, in the paper's arrangement, as ``ITEM.svg`` and ``ITEM.png``."""
    written = []
    for item in items:
        drawn = drawing(item, results)
        if drawn is None:
            continue
        durable.make_directory(out)
        figure, alt = drawn
        durable.write_text(out / f"{item.name}.svg", figures.svg(figure, alt=alt, themed=False))
        durable.write_bytes(out / f"{item.name}.png", figures.png(figure))
        written += [out / f"{item.name}.svg", out / f"{item.name}.png"]
    return written


def drawing(item: Item, results: Results) -> tuple[Drawing, str] | None:
    """An item's figure as one drawing, and its description; None where nothing is there to draw."""
    if item.kind == "timing":
        return bars(results.numbers(item))
    drawn = [panel for panel in panels(item, results) if panel.curves]
    if not drawn:
        return None
    columns = 1 if item.name == "fig-adding" else 2
    return figures.curves(drawn, columns=columns), " ".join(figures.describe(panel) for panel in drawn)


def panels(item: Item, results: Results) -> list[Panel]:
    """An item's pairs of axes."""
    match item.name:
        case "fig-copying":
            return [_loss(item, results, T, "cross-entropy") for T in (1000, 2000)]
        case "fig-adding":
            return [_loss(item, results, T, "test MSE") for T in (200, 400, 750)]
        case "table-mnist":
            return _accuracy(item, results)
        case "fig-orthogonality":
            curves = _curves(item.presets, results, lambda run: [orthogonality(run)])
            sizes = [run.hidden for name in item.presets for run in results.runs.get(name, []) if run.hidden]
            return [figures.orthogonality(curves, sizes, "epoch")]
        case "fig-gradients":
            return _gradients(item, results)
    return []


def _loss(item: Item, results: Results, T: int, ylabel: str) -> Panel:
    names = [name for name in item.presets if presets()[name].config["task"]["length"] == T]
    curves = _curves(names, results, lambda run: [run.series("test", "loss")])
    runs = [run for name in names for run in results.runs.get(name, [])]
    marks = [("baseline", run.baseline) for run in runs if run.baseline is not None][:1]
    length = mapping(runs[0].config.get("task")).get("length") if runs else T
    title = f"T = {T}" if length == T else f"T = {length} (smoke, in place of {T})"
    return Panel(title, curves, "iteration", ylabel, None, marks)


def _accuracy(item: Item, results: Results) -> list[Panel]:
    """All sizes of scoRNN, and of each other model the best, as in the paper's figure."""
    by_title: dict[str, list[Curve]] = {}
    for task, title in (("mnist", "Unpermuted"), ("pmnist", "Permuted")):
        own = [name for name in item.presets if name.startswith(f"{task}-") and results.runs.get(name)]
        shown: list[str] = []
        for model in MODEL_NAMES:
            of_model = [name for name in own if presets()[name].config["model"]["name"] == model]
            ranked = sorted(of_model, key=lambda name: -max((r.best() or 0.0) for r in results.runs[name]))
            shown += of_model if model == "scornn" else ranked[:1]
        by_title[title] = _curves(shown, results, _accuracy_series)
    values = [np.max(y) for curves in by_title.values() for c in curves for _, y in c.members if np.size(y)]
    return figures.accuracy(by_title, (0.8, 1.0) if values and max(values) > 0.8 else (0.0, 1.0))


def _accuracy_series(run: Run) -> list[Any]:
    steps, epochs = finite(run.summary.get("steps")), finite(run.summary.get("epochs"))
    x, y = run.series("test", "accuracy")
    return [(x * (epochs / steps) if steps and epochs else x, y)]


def _gradients(item: Item, results: Results) -> list[Panel]:
    by_title: dict[str, list[Curve]] = {}
    for moment, when in enumerate(("at the start", "trained")):
        steps: set[int] = set()

        def norms(run: Run, moment: int = moment, steps: set[int] = steps) -> list[Any]:
            moments = gradient_moments(run)[moment : moment + 1]
            steps |= {step for step, _ in moments}
            return [(np.arange(1, len(values) + 1), values) for _, values in moments]

        curves = _curves(item.presets, results, norms)
        title = when if moment == 0 or not steps else f"after {max(steps)} iterations"
        by_title[title[0].upper() + title[1:]] = curves
    return figures.gradients(by_title)


def _curves(names: Sequence[str], results: Results, series: Any) -> list[Curve]:
    """A curve for each preset that has runs; a model keeps its colour, its sizes differ by dash."""
    curves, seen = [], dict.fromkeys(_COLOURS, 0)
    for name in names:
        preset = presets()[name]
        model = preset.config["model"]["name"]
        colour = _COLOURS.index(model) + len(figures.LIGHT) * seen[model]
        members = [(x, y) for run in results.runs.get(name, []) for x, y in series(run) if np.size(x)]
        if members:
            seen[model] += 1
            sizes = {run.hidden for run in results.runs[name]} - {preset.config["model"]["hidden"]}
            here = "".join(f", {size} here" for size in sizes if size is not None)
            curves.append(Curve(label(preset) + here, members, colour))
    return curves


def bars(numbers: list[Number]) -> tuple[Drawing, str] | None:
    """Minutes per epoch, published and here, of the rows that were timed."""
    known = [n for n in numbers if n.values]
    if not known:
        return None
    published = [n.published.value if n.published else None for n in known]
    here = [n.mean for n in known]
    columns = {"published, GTX 1080": published, "here": here}
    smoke = all(n.budget.startswith("smoke") for n in known)
    title = "smoke: networks of 8 units here" if smoke else ""
    names = [label(n.preset) for n in known]
    drawn = figures.bars(names, columns, xlabel="minutes per epoch", title=title, log=True)
    said = (f"{label(n.preset)} {number(n.mean)}, published {number(p)}" for n, p in zip(known, published, strict=True))
    return drawn, "Minutes per epoch: " + "; ".join(said)


def points(results: Results, items: Sequence[Item]) -> list[list[Any]]:
    """Every point of every curve: item, panel, curve, member, x, y."""
    rows: list[list[Any]] = []
    for item in items:
        for panel in panels(item, results):
            for curve in panel.curves:
                for k, (x, y) in enumerate(curve.members):
                    points = zip(np.asarray(x).tolist(), np.asarray(y).tolist(), strict=True)
                    rows += [[item.name, panel.title, curve.label, k, a, b] for a, b in points]
    return rows
