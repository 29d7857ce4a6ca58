"""The page of ``scornn sweep report``: the best runs, what mattered, and how every trial went."""

import warnings
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

from scornn.errors import DataError
from scornn.report import figures
from scornn.report.page import (
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
    render,
    words,
)
from scornn.report.runs import Run, Series, read
from scornn.report.settings import differing
from scornn.report.style import svg
from scornn.sweep import charts
from scornn.sweep import plan as plans
from scornn.sweep.charts import Point, Scale
from scornn.sweep.progress import outcome, settings, short_names
from scornn.sweep.study import Trials
from scornn.train.run import label

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

_BEST = 5
_MOST_EARLY = 30
_MOST_PAIRS = 10
_FEWEST_FOR_IMPORTANCE = 4
_NOT_NAMED = ("name", "data", "threads")


def page(trials: Trials) -> str:
    """The page as text, from the study and the run directories that can be seen from here."""
    with trials.errors():
        every = [trial for trial in trials.all() if trial.state.name != "WAITING"]
        best = trials.best(_BEST)
    base = plans.config(trials.plan, {})
    title = f"Sweep: {label(base).removesuffix(f'-s{base.seed}')}"
    runs = {trial.number: run for trial in every if (run := _run(trials.run_path(trial))) is not None}
    sections: list[Section] = [Cards(_cards(trials, every, best)), Prose([_objective(trials)])]
    sections += _notes(trials, every, runs)
    if not every:
        return render(title, [*sections, Prose(["No trial has begun yet."], "note")])
    points = [_point(trial) for trial in every if set(trial.params) >= {axis.key for axis in trials.axes}]
    if best:
        sections.append(_best_table(trials, best, runs))
        sections += _over(trials, points)
    sections += _curves(trials, every, best, runs)
    sections.append(_all_table(trials, every, runs))
    commands = [f"scornn sweep resume {trials.directory}", f"scornn train --config {trials.directory / 'best.json'}"]
    sections.append(Details("Commands", "\n".join(commands)))
    return render(title, sections, lead=_lead(trials, every))


def _run(path: Path) -> Run | None:
    try:
        return read(path)
    except DataError:
        return None


def _point(trial: "FrozenTrial") -> Point:
    return Point(trial.number, trial.params, trial.value if trial.state.name == "COMPLETE" else None)


def _lead(trials: Trials, every: Sequence["FrozenTrial"]) -> str:
    spans = [t.duration.total_seconds() for t in every if t.duration is not None]
    over = ", ".join(trials.plan.over)
    return f"{len(every)} of {trials.plan.trials} trials over {over}; {duration(sum(spans))} in all."


def _cards(trials: Trials, every: Sequence["FrozenTrial"], best: Sequence["FrozenTrial"]) -> list[Card]:
    metric = words(trials.plan.objective.metric)
    counts = [
        ("done", sum(t.state.name == "COMPLETE" for t in every)),
        ("pruned", sum(t.state.name == "PRUNED" and not _diverged(t) for t in every)),
        ("diverged", sum(_diverged(t) for t in every)),
        ("failed", sum(t.state.name == "FAIL" for t in every)),
        ("running", sum(t.state.name == "RUNNING" for t in every)),
        ("waiting", trials.plan.trials - len(every)),
    ]
    names = short_names([axis.key for axis in trials.axes])
    cards = [Card("Trials", str(trials.plan.trials), "", [f"{count} {word}" for word, count in counts if count])]
    for place, trial in enumerate(best[:3]):
        test = trial.user_attrs.get("test")
        lines = [f"{names[key]} = {_shown(trial.params[key])}" for key in names]
        if trials.plan.objective.split == "valid" and test is not None:
            lines.append(f"test {metric} {number(test)}")
        name = "Best" if place == 0 else f"Place {place + 1}"
        unit = f"{trials.plan.objective.split} {metric}"
        cards.append(Card(f"{name}: trial {trial.number}", number(trial.value), unit, lines, charts.trial_line(place)))
    return cards


def _diverged(trial: "FrozenTrial") -> bool:
    return str(trial.user_attrs.get("outcome", "")).startswith("diverged")


def _shown(value: object) -> str:
    return number(value) if isinstance(value, float) else str(value)


def _objective(trials: Trials) -> str:
    plan = trials.plan
    pruned = (
        "" if plan.prune == "none" else f" Poor trials were ended by {plan.prune} on the {plan.objective.prunes_on}."
    )
    return f"Drawn by {plan.sampler}; chosen by the {plan.objective.words(plan.weights)}.{pruned}"


def _notes(trials: Trials, every: Sequence["FrozenTrial"], runs: dict[int, Run]) -> list[Section]:
    notes = []
    unseen = [t.number for t in every if t.number not in runs and "as trial" not in str(t.user_attrs.get("outcome"))]
    if unseen:
        notes.append(f"Run directories that cannot be seen from here, of trials {', '.join(map(str, unseen))}.")
    swept = {axis.key for axis in trials.axes}
    other = [key for key in differing(list(runs.values())) if key not in swept and key not in _NOT_NAMED]
    if other:
        notes.append(f"Settings that differ besides those of the sweep: {', '.join(other)}.")
    return [Prose(notes, "note")] if notes else []


def _best_table(trials: Trials, best: Sequence["FrozenTrial"], runs: dict[int, Run]) -> Table:
    names = short_names([axis.key for axis in trials.axes])
    metric = f"{trials.plan.objective.split} {words(trials.plan.objective.metric)}"
    valid = trials.plan.objective.split == "valid"
    columns = ["trial", metric, *(["test"] if valid else []), *names.values(), "steps", "time", "run"]
    rows = []
    for trial in best:
        run = runs.get(trial.number)
        test = [trial.user_attrs.get("test")] if valid else []
        steps = run.last("steps") if run else None
        seconds = run.last("seconds") if run else None
        values = [_shown(trial.params[key]) for key in names]
        path = trials.run_path(trial)
        rows.append([str(trial.number), trial.value, *test, *values, steps, duration(seconds), str(path)])
    return Table(columns, rows, "Best runs", ["run"])


def _over(trials: Trials, points: Sequence[Point]) -> list[Section]:
    metric, goal = words(trials.plan.objective.metric), trials.plan.objective.goal
    names = short_names([axis.key for axis in trials.axes])
    scales = [Scale(axis, names[axis.key]) for axis in trials.axes]
    early = " Crosses: trials that were pruned, diverged or failed." if any(p.value is None for p in points) else ""
    alt = f"{metric} of each trial and the best so far; the best is {_best_of(points, goal)}"
    drawn = [Figure(svg(charts.history(points, metric, goal), alt=alt), "The line: the best so far.")]
    weights = _importance(trials)
    if weights:
        bars = figures.bars(list(weights), {"importance": list(weights.values())}, xlabel="share")
        said = ", ".join(f"{name} {share:.2f}" for name, share in weights.items())
        caption = "Share of each key in what sets the better trials apart (PED-ANOVA)."
        drawn.append(Figure(svg(bars, alt=f"Importance: {said}"), caption))
    else:
        early += f" Importance needs {_FEWEST_FOR_IMPORTANCE} finished trials that differ."
    sections: list[Section] = [
        Heading("Over trials, and what mattered", 2, "trials"),
        Figures(drawn, caption=early.strip()),
        Heading("Over each key", 2, "keys"),
        Figures(
            [Figure(svg(charts.slice_of(points, s, metric), alt=_slice_words(points, s, metric, goal))) for s in scales]
        ),
    ]
    pairs = list(combinations(scales, 2))
    if pairs:
        maps = [
            Figure(svg(charts.heat_map(points, x, y, metric, goal), alt=f"Best {metric} over {x.name} and {y.name}"))
            for x, y in pairs[:_MOST_PAIRS]
        ]
        more = f" The first {_MOST_PAIRS} pairs of {len(pairs)}." if len(pairs) > _MOST_PAIRS else ""
        caption = f"The best {metric} in each cell; open cells have no finished trial.{more}"
        sections += [Heading("Over each pair of keys", 2, "pairs"), Figures(maps, caption=caption)]
    return sections


def _best_of(points: Sequence[Point], goal: str) -> str:
    values = [p.value for p in points if p.value is not None]
    return number((max if goal == "max" else min)(values))


def _slice_words(points: Sequence[Point], scale: Scale, metric: str, goal: str) -> str:
    if not scale.axis.choices:
        return f"{metric} of each trial over {scale.name}"
    by_choice = [
        (c, [p for p in points if p.values[scale.axis.key] == c and p.value is not None]) for c in scale.axis.choices
    ]
    return f"Best {metric} by {scale.name}: " + ", ".join(f"{c} {_best_of(own, goal)}" for c, own in by_choice if own)


def _importance(trials: Trials) -> dict[str, float]:
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances

    values = {trial.value for trial in trials.best(1 << 30)}
    if len(trials.best(_FEWEST_FOR_IMPORTANCE)) < _FEWEST_FOR_IMPORTANCE or len(values) < 2:
        return {}
    with trials.errors(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = get_param_importances(trials.study, evaluator=PedAnovaImportanceEvaluator())
    names = short_names([axis.key for axis in trials.axes])
    return {names[key]: share for key, share in found.items() if key in names}


def _curves(
    trials: Trials, every: Sequence["FrozenTrial"], best: Sequence["FrozenTrial"], runs: dict[int, Run]
) -> list[Section]:
    shown = [trial for trial in best if trial.number in runs]
    early = [runs[t.number] for t in every if t.state.name == "PRUNED" and t.number in runs][:_MOST_EARLY]
    objective, weights = trials.plan.objective, trials.plan.weights
    wanted = [("train", "loss", "Training loss", "raw"), (objective.split, objective.metric, "", weights)]
    drawn = []
    for split, key, title, kind in wanted:
        curves = [runs[trial.number].series(split, key, kind) for trial in shown]
        thin = [run.series(split, key, kind) for run in early]
        title = title or f"{'Validation' if split == 'valid' else 'Test'} {words(key)}"
        if any(len(x) for x, _ in (*curves, *thin)):
            alt = f"{title} by training step; {_ends(shown, curves)}"
            drawn.append(Figure(svg(charts.learning(curves, thin, title, words(key)), alt=alt)))
    if not drawn:
        return []
    legend = [(f"trial {t.number}, {settings(t.params)}", charts.trial_line(k)) for k, t in enumerate(shown)]
    caption = "Grey: trials that were pruned or diverged." if early else ""
    return [Heading("Learning curves of the best", 2, "curves"), Figures(drawn, legend, caption)]


def _ends(shown: Sequence["FrozenTrial"], curves: Sequence[Series]) -> str:
    pairs = zip(shown, curves, strict=True)
    return ", ".join(f"trial {t.number} ends at {y[-1]:.3g}" for t, (_, y) in pairs if len(y)) or "no finished trial"


def _all_table(trials: Trials, every: Sequence["FrozenTrial"], runs: dict[int, Run]) -> Table:
    names = short_names([axis.key for axis in trials.axes])
    rows = []
    for trial in every:
        run = runs.get(trial.number)
        values = [_shown(trial.params[key]) if key in trial.params else None for key in names]
        spent = trial.duration.total_seconds() if trial.duration is not None else None
        steps = (run.last("steps") or run.last("step")) if run else None
        rows.append(
            [str(trial.number), *values, outcome(trial, words(trials.plan.objective.metric)), steps, duration(spent)]
        )
    return Table(["trial", *names.values(), "outcome", "steps", "time"], rows, "Every trial", ["outcome"])
