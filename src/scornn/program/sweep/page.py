"""The page of ``scornn sweep report``: the best runs, what mattered, and how every trial went."""

import shlex
from collections.abc import Sequence
from itertools import combinations

from scornn.program.report import figures
from scornn.program.report.curves import Axis, Curve, Line, Panel
from scornn.program.report.page import (
    Card,
    Cards,
    Details,
    Figure,
    Figures,
    Heading,
    Prose,
    Section,
    Table,
    duration,
    number,
    panels,
    render,
    words,
)
from scornn.program.report.settings import setting_name
from scornn.program.report.style import svg
from scornn.program.sweep import charts
from scornn.program.sweep import plan as plans
from scornn.program.sweep.charts import Scale
from scornn.program.sweep.progress import outcome, settings
from scornn.program.sweep.record import Entry, Points, Record
from scornn.program.train.run import label

_BEST = 5
_MOST_EARLY = 30


def page(record: Record) -> str:
    """The page as text."""
    base = plans.config(record.plan, {})
    title = f"Sweep: {label(base).removesuffix(f'-s{base.seed}')}"
    plan, objective = record.plan, record.plan.objective
    how = f"Drawn by {plan.sampler}; chosen by the {objective.words(plan.weights)}."
    if plan.prune != "none":
        how += f" Poor trials were ended by {plan.prune} on the {plan.prunes_on}."
    sections: list[Section] = [Cards(_cards(record)), Prose([how])]
    if record.notes:
        sections.append(Prose(record.notes, "note"))
    if not record.trials:
        return render(title, [*sections, Prose(["No trial has begun yet."], "note")])
    if record.best(1):
        sections += [_best_table(record), *_over(record)]
    sections += [*_curves(record), _all_table(record)]
    if record.directory:
        here, best = (shlex.quote(str(path)) for path in (record.directory, f"{record.directory}/best.json"))
        commands = [f"scornn sweep resume {here}", *[f"scornn train --config {best}"] * bool(record.best(1))]
        sections.append(Details("Commands", "\n".join(commands)))
    if record.code:
        sections.append(Prose([f"Made with scornn {record.code}{f' on {record.machine}' * bool(record.machine)}."]))
    spent = duration(sum(trial.seconds or 0.0 for trial in record.trials))
    lead = f"{len(record.trials)} of {plan.trials} trials over {', '.join(plan.over)}; {spent} in all."
    return render(title, sections, lead=lead)


def _names(record: Record) -> dict[str, str]:
    return {axis.key: setting_name(axis.key) for axis in plans.axes(record.plan)}


def _cards(record: Record) -> list[Card]:
    every, objective = record.trials, record.plan.objective
    counts = [
        ("done", sum(t.state == "complete" for t in every)),
        ("pruned", sum(t.state == "pruned" and not t.diverged for t in every)),
        ("diverged", sum(t.diverged for t in every)),
        ("failed", sum(t.state == "fail" for t in every)),
        ("running", sum(t.outcome == "running" for t in every)),
        ("interrupted", sum(t.outcome == "interrupted" for t in every)),
        ("waiting", record.plan.trials - len(every)),
    ]
    names = _names(record)
    cards = [Card("Trials", str(record.plan.trials), "", [f"{count} {word}" for word, count in counts if count])]
    for place, trial in enumerate(record.best(3)):
        lines = [f"{names[key]} = {_shown(trial.values[key])}" for key in names]
        if objective.split == "valid" and trial.test is not None:
            lines.append(f"test {words(objective.metric)} {number(trial.test)}")
        name = "Best" if place == 0 else f"Place {place + 1}"
        unit = f"{objective.split} {words(objective.metric)}"
        cards.append(Card(f"{name}: trial {trial.number}", number(trial.value), unit, lines, charts.trial_line(place)))
    return cards


def _shown(value: object) -> str:
    return number(value) if isinstance(value, float) else str(value)


def _best_table(record: Record) -> Table:
    names, objective = _names(record), record.plan.objective
    valid, here = objective.split == "valid", bool(record.directory)
    metric = f"{objective.split} {words(objective.metric)}"
    columns = ["trial", metric, *["test"] * valid, *names.values(), "steps", "time", *["run"] * here]
    rows = [
        [
            *(str(t.number), t.value, *[t.test] * valid, *(_shown(t.values[key]) for key in names)),
            *(t.steps, duration(t.seconds), *[t.run or None] * here),
        ]
        for t in record.best(_BEST)
    ]
    return Table(columns, rows, "Best runs", ["run"])


def _over(record: Record) -> list[Section]:
    """The figures over trials, over each key and over each pair of keys."""
    metric, goal = words(record.plan.objective.metric), record.plan.objective.goal
    names, axes = _names(record), plans.axes(record.plan)
    points = [trial for trial in record.trials if trial.values.keys() >= names.keys() and trial.state != "running"]
    scales = [Scale(axis, names[axis.key]) for axis in axes]
    early = " Crosses: trials that were pruned, diverged or failed." if any(p.value is None for p in points) else ""
    alt = f"{metric} of each trial and the best so far; the best is {_best_of(points, goal)}"
    drawn = [Figure(svg(charts.history(points, metric, goal), alt=alt), "The line: the best so far.")]
    weights = {names[key]: share for key, share in record.importance.items()}
    if len(weights) > 1:
        bars = figures.bars(list(weights), {"importance": list(weights.values())}, xlabel="share")
        said = ", ".join(f"{name} {share:.2f}" for name, share in weights.items())
        caption = "Share of each key in what sets the better trials apart (PED-ANOVA)."
        drawn.append(Figure(svg(bars, alt=f"Importance: {said}"), caption))
    elif len(axes) > 1:
        early += " Importance needs four finished trials that differ."
    sections: list[Section] = [
        Heading("Over trials" + ", and what mattered" * (len(axes) > 1), 2, "trials"),
        Figures(drawn, caption=early.strip()),
        Heading("Over each key", 2, "keys"),
        Figures(
            [
                Figure(svg(charts.slice_of(points, s, metric), alt=f"{metric} of each trial over {s.name}"))
                for s in scales
            ]
        ),
    ]
    maps = [
        Figure(svg(charts.heat_map(points, x, y, metric, goal), alt=f"Best {metric} over {x.name} and {y.name}"))
        for x, y in combinations(scales, 2)
    ]
    if maps:
        caption = f"The best {metric} in each cell; open cells have no finished trial."
        sections += [Heading("Over each pair of keys", 2, "pairs"), Figures(maps, caption=caption)]
    return sections


def _best_of(points: Sequence[Entry], goal: str) -> str:
    values = [p.value for p in points if p.value is not None]
    return number((max if goal == "max" else min)(values))


def _curves(record: Record) -> list[Section]:
    objective = record.plan.objective
    shown = record.best(_BEST)  # each in the colour of its place, also where one has no curve
    early = [t for t in record.trials if t.state == "pruned"][:_MOST_EARLY]

    def panel(title: str, ylabel: str, of: str, axis: Axis | None) -> Panel:
        drawn = [
            Curve(f"trial {t.number}, {settings(t.values)}", [_xy(getattr(t, of))], charts.trial_line(k))
            for k, t in enumerate(shown)
            if getattr(t, of)
        ]
        thin = [_xy(getattr(t, of)) for t in early if getattr(t, of)]
        return Panel(
            title,
            [*drawn, *([Curve("pruned or diverged", thin, Line(muted=True))] if thin else [])],
            ylabel=ylabel,
            axis=axis,
        )

    split, metric = "Validation" if objective.split == "valid" else "Test", words(objective.metric)
    axis: Axis | None = "linear" if objective.goal == "max" else None
    drawn = panels([panel("Training loss", "loss", "loss", None), panel(f"{split} {metric}", metric, "metric", axis)])
    return [Heading("Learning curves of the best", 2, "curves"), drawn] if drawn.figures else []


def _xy(points: Points) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]


def _all_table(record: Record) -> Table:
    names, metric = _names(record), words(record.plan.objective.metric)
    rows = [
        [
            *(str(t.number), *(_shown(t.values[key]) if key in t.values else None for key in names)),
            *(outcome(t.outcome, t.value, metric), t.steps, duration(t.seconds)),
        ]
        for t in record.trials
    ]
    return Table(["trial", *names.values(), "outcome", "steps", "time"], rows, "Every trial", ["outcome"])
