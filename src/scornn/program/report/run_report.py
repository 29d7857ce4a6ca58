"""The page of ``scornn report``: headlines, curves, results and settings, spectra and sound of some runs."""

import json
import os
import statistics
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from scornn.errors import UsageError
from scornn.program import plugins
from scornn.program.report import curves, figures, page, spectrum, speech, style
from scornn.program.report.curves import Axis, Curve, Panel
from scornn.program.report.page import Section, Value, duration, number, words
from scornn.program.report.runs import Run, find, finite, read
from scornn.program.report.settings import Problem, Setting, differing, explain, flatten, problems, setting_name

_MOST_SPECTRA = 12
_FIRST = ("model.name", "model.hidden")


def report(paths: Iterable[str | os.PathLike[str]], *, title: str = "", utterances: int = speech.UTTERANCES) -> str:
    """The page for run directories, or directories of them, as text."""
    runs = [read(path) for path in find(paths)]
    for run in runs:
        with suppress(UsageError):  # a task or a model whose file is not there is called by its name
            plugins.of_config(run.config)
    groups = problems(runs)
    sections: list[Section] = []
    for k, problem in enumerate(groups):
        if len(groups) > 1 or title:
            sections.append(page.Heading(problem.title, 2, f"problem-{k}"))
        sections += _problem(problem, utterances)
    if not title:
        title = groups[0].title if len(groups) == 1 else "Training runs"
    return page.render(title, sections, lead=_lead(runs))


def _lead(runs: Sequence[Run]) -> str:
    count = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
    unfinished = sum(not run.finished for run in runs)
    state = f"{unfinished} of them not finished. " if unfinished and len(runs) > 1 else ""
    seconds = sum(run.last("seconds") or 0.0 for run in runs)
    dashed = "Dashed: the loss of the naive baseline. " if any(run.baseline is not None for run in runs) else ""
    dotted = "Dotted: averaged weights." if any(run.has_average for run in runs) else ""
    return f"{count}, {duration(seconds)} of training. {state}{dashed}{dotted}".strip()


def _problem(problem: Problem, utterances: int) -> list[Section]:
    about = explain(problem.runs[0])
    sections: list[Section] = [page.Prose([about])] if about else []
    sections.append(page.Cards([_card(setting) for setting in problem.settings]))
    notes = [f"{run.name}: {'; '.join(run.notes)}." for run in problem.runs if run.notes]
    spectra, reasons = _spectra(problem)
    if notes or reasons:
        sections.append(page.Prose([*notes, *reasons], "note"))
    sections += [_curves(problem), *spectra, _results(problem), *_settings_table(problem)]
    labelled = [(_run_label(setting, run), run) for setting in problem.settings for run in setting.runs]
    sections += speech.scores([(label, run.path) for label, run in labelled])
    for label, run in labelled:
        sections += speech.examples(run.path, label, utterances=utterances)
    sections.append(page.Heading("Configuration and summary of each run", 3))
    for label, run in labelled:
        files = {"config.json": run.config, "summary.json": run.summary}
        text = "\n\n".join(f"{name}\n{json.dumps(v, indent=2, ensure_ascii=False)}" for name, v in files.items())
        sections.append(page.Details(f"{label} ({run.name})", text))
    return sections


def _card(setting: Setting) -> page.Card:
    run = setting.runs[0]
    values = [v for v in (r.final("test", run.headline) for r in setting.runs) if v is not None]
    lines = []
    if len(values) > 1:
        seeds = len({json.dumps(r.config.get("seed")) for r in setting.runs})
        deviation = f", standard deviation {number(statistics.stdev(values))}" if seeds > 1 else " of one seed"
        what = "seeds" if seeds == len(setting.runs) else f"runs, {seeds} seeds" if seeds > 1 else "runs"
        lines.append(f"mean of {len(values)} {what}{deviation}")
    for weights, said in (("raw", ""), ("average", "averaged weights: ")):
        best = [v for v in (r.best(weights) for r in setting.runs) if v is not None]
        if best:
            better = max(best) if run.goal == "max" else min(best)
            lines.append(f"{said}best{f' of {len(best)} runs' if len(best) > 1 else ''} {number(better)}")
    chosen = [v for v in (r.chosen() for r in setting.runs) if v is not None]
    if chosen:
        lines.append(f"{number(statistics.fmean(chosen))} at the epoch chosen on validation")
    losses = [v for v in (r.final("test", "loss") for r in setting.runs) if v is not None]
    if losses and run.baseline is not None:
        loss = "" if losses == values else f"loss {number(statistics.fmean(losses))}, "
        lines.append(f"{loss}baseline {number(run.baseline)}")
    steps = [s for s in (r.steps for r in setting.runs) if s is not None]
    if steps:
        span = number(steps[0]) if len(set(steps)) == 1 else f"{number(min(steps))} to {number(max(steps))}"
        unfinished = "" if all(r.finished for r in setting.runs) else ", not finished"
        seconds = [s for s in (r.last("seconds") for r in setting.runs) if s is not None]
        lines.append(f"{span} steps, {duration(statistics.fmean(seconds) if seconds else None)}{unfinished}")
    value = number(statistics.fmean(values)) if values else page.MISSING
    name = f"test {words(run.headline, run.task)}"
    return page.Card(setting.label, value, name, lines, setting.line)


def _curves(problem: Problem) -> page.Figures:
    headline, name = problem.reference.headline, words(problem.reference.headline, problem.reference.task)
    baselines = {number(r.baseline): r.baseline for r in problem.runs if r.baseline is not None}
    marks = [(f"baseline\n{said}", baseline) for said, baseline in baselines.items()]
    loss, figure_of = (_series(problem, "test", key) for key in ("loss", headline))
    same = _equal(loss, figure_of)
    panels = [Panel("Training loss", _series(problem, "train", "loss"), ylabel="loss", marks=marks)]
    if same:
        panels.append(Panel(f"Test {name}", figure_of, ylabel="loss", marks=marks))
    else:
        # What should grow, such as an accuracy, has no decades below it worth a look.
        axis: Axis | None = "linear" if problem.reference.goal == "max" else None
        panels.append(Panel("Test loss", loss, ylabel="loss", marks=marks))
        panels.append(Panel(f"Test {name}", figure_of, ylabel=name, axis=axis))
    sizes = [r.hidden for r in problem.runs if r.hidden and r.last("orthogonality") is not None]
    panels.append(curves.orthogonality(_series(problem, None, "orthogonality"), sizes))
    return page.panels(panels)


def _series(problem: Problem, split: str | None, key: str) -> list[Curve]:
    """A curve for each setting that has the metric, in the given split or in the first that has it; then averages."""
    drawn = []
    for weights in ("raw", "average"):
        for setting in problem.settings:
            splits = [split] if split else ["train", "test", "valid"]
            every = ([r.series(x, key, weights) for x in splits] for r in setting.runs)
            members = [next((s for s in of if s[0].size), None) for of in every]
            known = [m for m in members if m is not None]
            if known:
                average = weights == "average"
                line = replace(setting.line, average=average)
                drawn.append(Curve(setting.label + (", averaged weights" if average else ""), known, line))
    return drawn


def _equal(a: Sequence[Curve], b: Sequence[Curve]) -> bool:
    def values(curves: Sequence[Curve]) -> list[list[float]]:
        return [np.asarray(y, dtype=float).tolist() for curve in curves for _, y in curve.members]

    return bool(a) and values(a) == values(b)


def _spectra(problem: Problem) -> tuple[list[Section], list[str]]:
    drawn, reasons = [], []
    for setting in problem.settings:
        for run in [run for run in setting.runs if run.last("orthogonality") is not None][:1]:
            found, reason = spectrum.read(run.path)
            if reason:
                reasons.append(f"{run.name}: {reason}.")
            for moment in found:
                away = float(np.abs(np.abs(moment.eigenvalues) - 1).max(initial=0.0))
                at = " at the start" if moment.step == 0 else f" at step {number(moment.step)}" if moment.step else ""
                caption = f"{_run_label(setting, run)}{at}; farthest from the circle: {number(away)}"
                alt = f"{moment.eigenvalues.size} eigenvalues of W and the unit circle: {caption}"
                figure = figures.spectrum(moment.eigenvalues, setting.line.colour)
                drawn.append(page.Figure(style.svg(figure, alt=alt), caption, small=True))
    if not drawn:
        return [], reasons
    if len(drawn) > _MOST_SPECTRA:
        reasons.append(f"The first {_MOST_SPECTRA} of {len(drawn)} spectra are shown.")
    return [page.Heading("Eigenvalues of W on the unit circle", 3), page.Figures(drawn[:_MOST_SPECTRA])], reasons


def _results(problem: Problem) -> page.Table:
    """A row for each run: its figures first, then what they cost and where they come from."""
    headline, name = problem.reference.headline, words(problem.reference.headline, problem.reference.task)
    rows: list[dict[str, Value]] = []
    for setting in problem.settings:
        for run in setting.runs:
            final = run.final("test", headline)
            row: dict[str, Value] = {"run": setting.label}
            row[f"test {name}"] = page.Cell(final) if final is not None and run.finished else final
            row[f"best {name}"] = run.best()
            if run.has_average:
                row["averaged weights"] = run.final("test", headline, "average")
                row["best averaged"] = run.best("average")
            row["chosen on validation"] = run.chosen()
            for key in _metrics(problem):
                row[f"test {words(key)}"] = run.final("test", key)
            row |= {
                f"valid {name}": run.final("valid", headline),
                "parameters": finite(run.summary.get("parameters")),
                "steps": run.steps,
                "time": duration(run.last("seconds")),
                "s/step": finite(run.summary.get("seconds_per_step")),
                "‖WᵀW\N{NO-BREAK SPACE}−\N{NO-BREAK SPACE}I‖": run.last("orthogonality"),
                "seed": flatten(run.config).get("seed"),
                "state": "finished" if run.finished else "not finished",
            }
            rows.append(row)
    return page.table("Results", rows, text=["state"])


def _metrics(problem: Problem) -> list[str]:
    """Metrics of the last evaluation beside the headline; the loss only where it is another number."""
    keys = dict.fromkeys(key for run in problem.runs for key in run.metrics("test"))
    headline = problem.reference.headline
    same = all(run.final("test", "loss") == run.final("test", headline) for run in problem.runs)
    return [key for key in keys if key != headline and not (key == "loss" and same)]


def _settings_table(problem: Problem) -> list[Section]:
    """Settings that differ, one column each, and those that all runs share, folded."""
    runs = problem.runs
    if not any(run.config for run in runs):
        return []
    flat = [_without_unused_flavours(flatten(run.config)) for run in runs]
    differ = sorted(differing(runs), key=lambda key: (key not in _FIRST, key.startswith("task.")))
    sections: list[Section] = []
    if differ:
        labels = [setting.label for setting in problem.settings for _ in setting.runs]
        rows = [[label, *(config.get(key) for key in differ)] for label, config in zip(labels, flat, strict=True)]
        sections.append(page.Table(["run", *map(setting_name, differ)], rows, "Settings that differ"))
    shared = {key: value for config in flat for key, value in config.items() if key not in differ}
    if shared:
        text = "\n".join(f"{key} = {value}" for key, value in shared.items())
        sections.append(page.Details("Settings that all runs share" if len(runs) > 1 else "Settings", text))
    return sections


def _without_unused_flavours(config: dict[str, str]) -> dict[str, str]:
    """A config without ``flavour`` where the rule is not RMSprop, the only one that has flavours."""
    return {
        key: value
        for key, value in config.items()
        if not key.endswith(".flavour") or config.get(f"{key.removesuffix('flavour')}kind") == "rmsprop"
    }


def _run_label(setting: Setting, run: Run) -> str:
    seed = flatten(run.config).get("seed")
    return f"{setting.label}, seed {seed}" if seed is not None else setting.label
