"""The paper's figures in the paper's arrangement, from the runs that make their curves."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure as Drawing

from scornn.nn.catalogue import look
from scornn.program import durable
from scornn.program.paper import match
from scornn.program.paper.items import ITEMS, Item
from scornn.program.paper.results import Number, Results, label
from scornn.program.paper.verdict import ENOUGH, MET, gradient_moments, orthogonality
from scornn.program.recipes.presets import presets
from scornn.program.report import curves, figures, style
from scornn.program.report.curves import Curve, Line, Panel
from scornn.program.report.page import number
from scornn.program.report.runs import Run, finite, mapping

_TITLES = {"mnist": "Unpermuted", "pmnist": "Permuted"}
_NARROW = (4.25, 3.0)
"""Inches of a panel of the README."""
AVERAGED = ", averaged weights"
Reader = Callable[[Run, str], list[Any]]
Variants = dict[str, dict[str, int]]
"""The number of each setting of a model, by the setting's label."""


def pictured(results: Results) -> dict[str, list[tuple[str, Panel]]]:
    """The README's figures, panel by panel, each with the name of its file and a title that says all.

    Of runs that have a say: of an epoch of seventy there is nothing to see.
    """
    results = replace(results, runs={name: _with_a_say(name, runs) for name, runs in results.runs.items()})
    found = {
        "fig-copying": _without_averages(panels(ITEMS["fig-copying"], results)),
        "table-mnist": panels(ITEMS["table-mnist"], results),
        PARAMETERS: by_parameters(results),
    }
    named: dict[str, list[tuple[str, Panel]]] = {}
    for name, drawn in found.items():
        item = ITEMS.get(name, ITEMS["table-mnist"])
        for k, panel in enumerate(curves.agreed(drawn), 1):
            title = f"{item.title}, {panel.title if '=' in panel.title else panel.title.lower()}"
            named.setdefault(name, []).append((f"{name}-{k}.svg", replace(panel, title=title)))
    return named


def _with_a_say(name: str, runs: Iterable[Run]) -> list[Run]:
    return [run for run in runs if match.share_made(run.summary, presets()[name]) >= ENOUGH]


def write_pictured(results: Results, out: Path) -> list[Path]:
    """Each panel of the README as a file: a wide page shows two in a row, a phone one, and their text is legible."""
    written = []
    for panels in pictured(results).values():
        drawn = [curves.draw(panel, size=_NARROW) for _, panel in panels]
        height = max(figure.get_figheight() for figure in drawn)
        for (name, panel), figure in zip(panels, drawn, strict=True):
            figure.set_figheight(height)  # neighbours, whose legends differ
            written.append(durable.make_directory(out) / name)
            durable.write_text(written[-1], style.svg(figure, alt=curves.describe(panel), themed=False))
    return written


def _without_averages(panels: Iterable[Panel]) -> list[Panel]:
    """The panels that have curves of raw weights, with these alone."""
    kept = [replace(panel, curves=[c for c in panel.curves if not c.line.average]) for panel in panels]
    return [panel for panel in kept if panel.curves]


def panels(item: Item, results: Results) -> list[Panel]:
    """An item's pairs of axes; settings beyond the paper, where they were run, are drawn with the others."""
    names = (*item.presets, *item.beyond)
    match item.name:
        case "fig-copying" | "fig-adding":
            lengths = dict.fromkeys(presets()[name].config["task"]["length"] for name in item.presets)
            ylabel = "cross-entropy" if item.name == "fig-copying" else "test MSE"
            return [_loss(names, results, T, ylabel) for T in lengths]
        case "table-mnist":
            return _accuracy(names, results)
        case "fig-orthogonality":
            drawn = _curves(names, results, lambda run, weights: [orthogonality(run)] if weights == "raw" else [])
            sizes = [run.hidden for name in names for run in results.runs.get(name, []) if run.hidden]
            return [curves.orthogonality(drawn, sizes, "epoch")]
        case "fig-gradients":
            return _gradients(item, results)
    return []


def _loss(names: Sequence[str], results: Results, T: int, ylabel: str) -> Panel:
    own = [name for name in names if presets()[name].config["task"]["length"] == T]
    drawn = _curves(own, results, lambda run, weights: [run.series("test", "loss", weights)])
    runs = [run for name in own for run in results.runs.get(name, [])]
    marks = [("baseline", run.baseline) for run in runs if run.baseline is not None][:1]
    length = mapping(runs[0].config.get("task")).get("length") if runs else T
    title = f"T = {T}" if length == T else f"T = {length} (smoke, in place of {T})"
    return Panel(title, drawn, "iteration", ylabel, None, marks)


def _accuracy(names: Sequence[str], results: Results) -> list[Panel]:
    """The paper's settings of scoRNN, of those beyond it the best of each network, and of each other model the best.

    Averaged weights are drawn of the paper's settings: of the others the table has them. Beside runs that went far
    enough to say something, the others are left to the table too.
    """
    telling = {name: kept for name, runs in results.runs.items() if (kept := _with_a_say(name, runs))}
    if any(name in telling for name in names):
        results = replace(results, runs=telling)
    panels = []
    variants: Variants = {}
    for task, title in _TITLES.items():
        shown: list[str] = []
        for model, own in _by_model(task, names, results).items():
            if model != "scornn":
                shown += _best(own, results)
                continue
            shown += [name for name in own if not presets()[name].beyond]
            networks: dict[int | None, list[str]] = {}  # by their number of parameters
            for name in own:
                if presets()[name].beyond:
                    networks.setdefault(presets()[name].parameters, []).append(name)
            shown += [name for alike in networks.values() for name in _best(alike, results)]
        drawn = _curves(shown, results, _accuracy_series, variants)
        of_paper = {results.label(presets()[name]) for name in shown if not presets()[name].beyond}
        drawn = [c for c in drawn if not c.line.average or c.label.removesuffix(AVERAGED) in of_paper]
        panels.append(Panel(title, drawn, "epoch", "test accuracy", "share", across="log"))
    return [panel for panel in panels if panel.curves]


def _by_model(task: str, names: Iterable[str], results: Results) -> dict[str, list[str]]:
    """The settings of a task that were run."""
    found: dict[str, list[str]] = {}
    for name in names:
        if name.startswith(f"{task}-") and results.runs.get(name):
            found.setdefault(presets()[name].config["model"]["name"], []).append(name)
    return found


def _best(names: Sequence[str], results: Results) -> list[str]:
    """The setting with the best run, where there is one."""
    return sorted(names, key=lambda name: -max((run.best() or 0.0) for run in results.runs[name]))[:1]


def _accuracy_series(run: Run, weights: str) -> list[Any]:
    """By epochs, those of the run included that it began as."""
    steps = finite(run.summary.get("steps"))
    x, y = run.series("test", "accuracy", weights)
    preset = match.preset_of(run.config)
    before = presets()[preset.start].config["epochs"] if preset and preset.start else 0
    return [(before + x * (run.epochs / steps) if steps and run.epochs else x, y)]


PARAMETERS = "accuracy-over-parameters"


def by_parameters(results: Results) -> list[Panel]:
    """Best test accuracy on both MNISTs against the number of parameters, recorded here and published.

    Of each model the settings that no smaller one of it beats, each the mean of its seeds; the paper's are dotted.
    A run under way is there as soon as it has passed the published figure.
    """
    item = ITEMS["table-mnist"]
    rows = [n for beyond in (False, True) for n in results.numbers(item, beyond=beyond) if n.published]
    panels = []
    for task, title in _TITLES.items():
        here: dict[str, list[tuple[int, float]]] = {}
        published: dict[str, list[tuple[int, float]]] = {}
        for n in (n for n in rows if n.preset.name.startswith(f"{task}-")):
            model = n.preset.config["model"]["name"]
            if n.best is not None and (n.complete or n.verdict == MET):
                here.setdefault(model, []).append((n.preset.parameters, n.best))
            if not n.preset.beyond and n.published and n.published.value is not None:
                published.setdefault(model, []).append((n.preset.parameters, n.published.value))
        if not here:
            continue
        drawn = []
        for points, said in ((here, ""), (published, ", paper")):
            for model in sorted(points, key=lambda model: look(model).colour):
                line = Line.of(look(model), average=bool(said))
                name = look(model).label.removeprefix("restricted ") if said else look(model).label
                drawn.append(Curve(name + said, [_unbeaten(points[model])], line))
        panels.append(Panel(title, drawn, "parameters", "test accuracy", "share", across="log"))
    return panels


def _unbeaten(points: Iterable[tuple[int, float]]) -> tuple[Any, Any]:
    """Sizes and accuracies, without those that a smaller size equals."""
    kept: list[tuple[int, float]] = []
    for size, accuracy in sorted(points, key=lambda point: (point[0], -point[1])):
        if not kept or accuracy > kept[-1][1]:
            kept.append((size, accuracy))
    return np.array(kept).T[0], np.array(kept).T[1]


def _gradients(item: Item, results: Results) -> list[Panel]:
    panels = []
    for moment, when in enumerate(("at the start", "trained")):
        steps: set[int] = set()

        def norms(run: Run, weights: str, moment: int = moment, steps: set[int] = steps) -> list[Any]:
            moments = gradient_moments(run)[moment : moment + 1] if weights == "raw" else []
            steps |= {step for step, _ in moments}
            return [(np.arange(1, len(values) + 1), values) for _, values in moments]

        drawn = _curves(item.presets, results, norms)
        title = when if moment == 0 or not steps else f"after {max(steps)} iterations"
        panels.append(Panel(title[0].upper() + title[1:], drawn, "t", "‖∂L/∂hₜ‖", "log"))
    return panels


def _curves(names: Sequence[str], results: Results, read: Reader, variants: Variants | None = None) -> list[Curve]:
    """A curve for each preset that has runs, and a dotted one of its averaged weights where they were evaluated.

    Panels that share ``variants`` draw a setting alike.
    """
    drawn: list[Curve] = []
    averages: list[Curve] = []
    variants = {} if variants is None else variants
    for name in names:
        preset, runs = presets()[name], results.runs.get(name, [])
        model = preset.config["model"]["name"]
        said = results.label(preset) + (f", {preset.brief}" if preset.brief else "")
        for weights, into in (("raw", drawn), ("average", averages)):
            members = [(x, y) for run in runs for x, y in read(run, weights) if np.size(x)]
            if not members:
                continue
            settings = variants.setdefault(model, {})
            line = Line.of(look(model), settings.setdefault(said, len(settings)), average=weights == "average")
            into.append(Curve(f"{said}{AVERAGED}" if line.average else said, members, line))
    return [*drawn, *averages]


def bars(numbers: list[Number]) -> tuple[Drawing, str] | None:
    """Minutes per epoch, published and here, of the rows that were timed."""
    known = [n for n in numbers if n.values]
    if not known:
        return None
    published = [n.published.value if n.published else None for n in known]
    columns = {"published, GTX 1080": published, "here": [n.mean for n in known]}
    smoke = all(n.budget.startswith("smoke") for n in known)
    title = "smoke: networks of 8 units here" if smoke else ""
    names = [label(n.preset) for n in known]
    drawn = figures.bars(names, columns, xlabel="minutes per epoch", title=title, log=True)
    said = (f"{label(n.preset)} {number(n.mean)}, published {number(p)}" for n, p in zip(known, published, strict=True))
    return drawn, "Minutes per epoch: " + "; ".join(said)
