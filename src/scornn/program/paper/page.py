"""The reproduction's page: each table and figure of the paper with what came out here beside it."""

import textwrap
from collections import Counter
from collections.abc import Sequence

from scornn.nn.catalogue import look
from scornn.program.paper import match, verdict
from scornn.program.paper.figures import bars, panels
from scornn.program.paper.items import ITEMS, MAIN, Item
from scornn.program.paper.results import Number, Results, label, spread
from scornn.program.paper.verdict import gradient_moments
from scornn.program.recipes.experiments import Preset
from scornn.program.recipes.presets import choose, presets
from scornn.program.report import page, style
from scornn.program.report.page import (
    Cell,
    Details,
    Figure,
    Heading,
    Prose,
    Section,
    Table,
    Value,
    duration,
    number,
    words,
)
from scornn.program.report.runs import Run, finite, mapping
from scornn.program.report.settings import explain

_TITLE = "Orthogonal recurrent networks with the scaled Cayley transform: published and here"


def render(results: Results, items: Sequence[Item] = tuple(ITEMS.values())) -> str:
    """The page as text."""
    sections: list[Section] = [_verdicts(results, items)]
    for item in items:
        sections += [Heading(f"{item.title} ({item.source})", 2, item.name), *_item(item, results)]
    sections += [*_others(results), *_provenance(results)]
    smoke = "Smoke: small networks, trained for a few steps to see that everything runs. Its figures mean nothing. "
    lead = smoke * results.smoke + (
        f"{counted(results, items)} A verdict is derived from the runs alone: what they reached, and in how much of "
        "the paper's protocol. Figures in bold are finished and can be compared, the better of two."
    )
    return page.render(_TITLE, sections, lead=lead)


def counted(results: Results, items: Sequence[Item] = tuple(ITEMS.values())) -> str:
    """How many of the published figures have which verdict, in a sentence for each kind of them."""
    by_kind: dict[str, list[Number]] = {}
    for item in items:
        kind = "minutes per epoch" if item.kind == "timing" else "curves of W and of gradients"
        kind = "losses and accuracies" if item.name in MAIN else kind
        by_kind.setdefault(kind, []).extend(n for n in results.numbers(item) if n.published)
    sentences = []
    for kind, numbers in by_kind.items():
        counts = Counter(n.verdict for n in numbers)
        said = ", ".join(f"{word} {counts[word]}" for word in verdict.VERDICTS if counts[word])
        absent = [n.preset.config["task"] for n in numbers if n.verdict == verdict.NOT_RUN]
        licensed = sum(task.get("corpus") == "timit" for task in absent)
        why = f" ({licensed} of them on TIMIT, which is licensed)" if licensed else ""
        sentences += [f"Of {len(numbers)} published {kind}: {said}{why}."] * bool(numbers)
    return " ".join(sentences)


def _verdicts(results: Results, items: Sequence[Item]) -> Table:
    rows: list[dict[str, Value]] = []
    for item in items:
        counts = Counter(n.verdict for n in results.numbers(item) if n.published)
        row: dict[str, Value] = {"item": f"{item.title} ({item.source})"}
        rows.append(row | {word: counts[word] or None for word in verdict.VERDICTS})
    return page.table("Verdicts on the published figures", rows)


def _item(item: Item, results: Results) -> list[Section]:
    numbers = results.numbers(item)
    runs = [run for name in item.presets for run in results.runs.get(name, [])]
    about = explain(runs[0], length=False) if runs and item.name in MAIN else ""
    sections: list[Section] = [Prose([text for text in (item.caption, about) if text])]
    drawn = panels(item, results)
    if any(panel.curves for panel in drawn):
        sections.append(page.panels(drawn))
    elif item.kind == "timing" and (timed := bars(numbers)):
        sections.append(Figure(style.svg(timed[0], alt=timed[1])))
    sections += [*_table(item, results, numbers), *_more_of_speech(item, numbers), *_beyond(item, results)]
    sections += [*_remarks(item, results, numbers), *_not_run(item, results, numbers)]
    sections.append(Details("How each row is set, and where programs and text differ", _notes(item)))
    return sections


def _table(item: Item, results: Results, numbers: list[Number]) -> list[Section]:
    """A row for each published figure: what came out first, then what was published, and how it was made."""
    several = len({n.measure for n in numbers if n.published}) > 1
    rows: list[dict[str, Value]] = []
    for n in (n for n in numbers if n.published and n.values):
        row: dict[str, Value] = {"row": results.label(n.preset, problem=item.kind == "training")}
        if several:
            row["figure"] = n.measure
        row |= _figures(n)
        if item.name != "table-timit":
            for more in (m for m in numbers if m.preset is n.preset and not m.published and _beside(m, n)):
                row[more.measure.replace("start, ", "").replace("trained, ", "")] = spread(more.values)
        if item.name in ("fig-copying", "fig-adding"):
            row["baseline"] = next((run.baseline for run in results.runs.get(n.preset.name, [])), None)
        rows.append(row | {"how": n.budget or None, "parameters": n.parameters})
    text = ["figure", "verdict", "how", *_words(rows)]
    return [page.table(f"{item.source}: {item.title}", rows, text=text)] if rows else []


def _words(rows: Sequence[dict[str, Value]]) -> list[str]:
    """The column of what was published, where that is words."""
    return ["published"] if any(isinstance(row["published"], str) for row in rows) else []


def _beside(more: Number, n: Number) -> bool:
    """Whether a measure belongs to the same moment as another; gradients have two."""
    return more.measure.partition(", t")[0] == n.measure.partition(", t")[0] or more.item != "fig-gradients"


def _figures(n: Number) -> dict[str, Value]:
    """What came out, the better of two in bold, what was published, and the verdict."""
    said = {"here": spread(n.values), "averaged weights": spread(n.averaged)}
    better = "averaged weights" if n.by_average else "here"
    cells: dict[str, Value] = {key: Cell(v) if n.complete and key == better else v for key, v in said.items()}
    return cells | {"published": published(n), "verdict": n.verdict}


def published(n: Number) -> str | float:
    """What was published: a number, or what a curve is said to do."""
    assert n.published is not None
    if n.published.value is None:
        return n.published.text
    if n.preset.beyond and n.published.text:  # another network's
        return f"{number(n.published.value)} ({n.published.text})"
    return n.published.value


def _more_of_speech(item: Item, numbers: list[Number]) -> list[Section]:
    """What the paper's table has not: the error on the frames that exist, and scores of the audio."""
    if item.name != "table-timit":
        return []
    rows: list[dict[str, Value]] = []
    for name in item.presets:
        own = [n for n in numbers if n.preset.name == name and not n.published and n.values]
        if own:
            rows.append({"row": label(own[0].preset), **{n.measure: spread(n.values) for n in own}})
    caption = "Beside it: the error on the frames that exist, and scores of the audio rebuilt from predictions"
    return [page.table(caption, rows)] if rows else []


def _beyond(item: Item, results: Results) -> list[Section]:
    """Settings that the paper has not, beside its figure for the same network and problem."""
    rows: list[dict[str, Value]] = []
    for n in results.numbers(item, beyond=True):
        if n.values and n.published:
            row: dict[str, Value] = {"row": results.label(n.preset, problem=True), **_figures(n)}
            rows.append(row | {"differs in": n.preset.beyond, "how": n.budget, "parameters": n.parameters})
    text = ["verdict", "differs in", "how", *_words(rows)]
    return [page.table("Beyond the paper: the same problem, set otherwise", rows, text=text)] if rows else []


def _remarks(item: Item, results: Results, numbers: list[Number]) -> list[Section]:
    absent = [n.preset.name for n in numbers if n.verdict == verdict.NOT_RUN]
    said = list(dict.fromkeys(results.missing[name] for name in absent if name in results.missing))
    runs = [run for name in item.presets for run in results.runs.get(name, [])]
    others = {str(mapping(run.config.get("task")).get("corpus", "timit")) for run in runs} - {"timit"}
    for corpus in sorted(others):
        said.append(f"On the corpus {corpus}, not on TIMIT: these figures cannot be compared with the published ones.")
    if item.kind == "gradients":
        said += _height(runs)
    remarked = [name for name in item.presets if name in results.remarks and item.kind != "timing"]  # of runs
    remarks = [f"{results.label(presets()[name], problem=True)}: {results.remarks[name]}" for name in remarked]
    return [Prose([*said, *remarks], "note")] if said or remarks else []


def _not_run(item: Item, results: Results, numbers: list[Number]) -> list[Section]:
    """What was published and has nothing beside it, folded."""
    known = [n for n in numbers if n.published]
    absent = [n for n in known if n.verdict == verdict.NOT_RUN]
    several = len({n.measure for n in known}) > 1
    lines = []
    for n in absent:
        figure = f", {n.measure}" if several else ""
        lines.append(f"{results.label(n.preset, problem=item.kind == 'training')}{figure}: {number(published(n))}")
    return [Details(f"Not run: {len(absent)} of {len(known)} published figures", "\n".join(lines))] if lines else []


def _height(runs: Sequence[Run]) -> list[str]:
    """Why the norms of scoRNN start higher than the paper's: what the norm is taken of."""
    for run in runs:
        batch, moments = finite(mapping(run.config.get("task")).get("batch")), gradient_moments(run)
        if run.model == "scornn" and batch and moments and moments[0][1]:
            first = moments[0][1][-1]
            return [
                "Heights: at the start W carries the gradient back unchanged, so every norm is that of the last step, "
                f"{number(first)}, where the paper has about 1e-2. Here it is the norm, over all samples, of the "
                "gradient of the batch's mean loss: about an error times the norm of the output weights. The paper "
                f"does not say how it takes it; divided once more by the {batch:.0f} samples of the batch it is "
                f"{number(first / batch)}. That moves all curves by one factor and leaves their slopes, which are what "
                "the figure is about."
            ]
    return []


def _notes(item: Item) -> str:
    """The notes of the presets, those that say the same together."""
    by_note: dict[str, list[Preset]] = {}
    for name in (*item.presets, *item.beyond):
        by_note.setdefault(" ".join(presets()[name].note.split()), []).append(presets()[name])
    blocks = []
    for note, of in by_note.items():
        title = textwrap.fill("; ".join(preset.title for preset in of), 96)
        blocks.append(f"{title}\n{textwrap.indent(textwrap.fill(note or 'As in the paper.', 92), '    ')}")
    return "\n\n".join(blocks)


def difference(run: Run) -> str:
    """What a run sets otherwise than its preset, or if it is of none than the nearest one."""
    task, model = mapping(run.config.get("task")), mapping(run.config.get("model"))
    nearest = match.preset_of(run.config) or choose(task, str(model.get("name")), model.get("hidden"))
    if nearest is None:
        return "a model or task that the paper has not"
    return "; ".join(match.differences(run.config, nearest)) or "its start"


def _others(results: Results) -> list[Section]:
    rows: list[dict[str, Value]] = []
    for run in results.others:
        size = f" n={run.hidden}" if run.hidden else ""
        row: dict[str, Value] = {"run": f"{look(run.model).label}{size}, {run.name}"}
        row["last test figure"] = f"{words(run.headline, run.task)} {number(run.final('test', run.headline))}"
        row |= {"loss": run.final("test", "loss"), "baseline": run.baseline, "differs in": difference(run)}
        row |= {"iterations": finite(run.summary.get("steps")), "time": duration(finite(run.summary.get("seconds")))}
        rows.append(row | {"seed": str(run.config.get("seed"))})
    if not rows:
        return []
    caption = "Runs of settings that it has not"
    return [
        Heading("Beyond the paper", 2, "beyond"),
        page.table(caption, rows, text=["last test figure", "differs in"]),
    ]


def _provenance(results: Results) -> list[Section]:
    runs = [run for of in results.runs.values() for run in of] + results.others
    rows: list[dict[str, Value]] = []
    for run in runs:
        versions, machine = mapping(run.summary.get("versions")), mapping(run.summary.get("machine"))
        rows.append(
            {
                "run": run.name,
                "steps": finite(run.summary.get("steps")),
                "time": duration(finite(run.summary.get("seconds"))),
                "s/step": finite(run.summary.get("seconds_per_step")),
                "seed": str(run.config.get("seed")),
                "machine": str(machine.get("gpu") or machine.get("processor") or ""),
                "code": str(versions.get("scornn", "")),
                "torch": str(versions.get("torch", "")),
            }
        )
    if not rows:
        return []
    made = page.table("Where and with what each was made", rows, text=["machine", "code", "torch"])
    return [Heading("Runs behind these numbers", 2, "runs"), made]
