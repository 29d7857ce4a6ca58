"""The reproduction's page and files: each table and figure of the paper with what came out here beside it."""

import csv
import io
import json
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scornn import durable
from scornn.paper.experiments import Preset
from scornn.paper.items import ITEMS, Item
from scornn.paper.presets import presets
from scornn.report import figures, page
from scornn.report.page import Details, Figure, Heading, Prose, Section, Table, duration, number
from scornn.report.paper_figures import bars, panels, points, write_figures
from scornn.report.results import MODEL_NAMES, Number, Results, label, records
from scornn.report.runs import finite, mapping

MISSING = "missing"
_ORDERS = {"mnist": "MNIST", "pmnist": "permuted"}
_TITLE = "Orthogonal recurrent networks with the scaled Cayley transform: published and here"


def render(results: Results, items: Sequence[Item] = tuple(ITEMS.values())) -> str:
    """The page as text."""
    sections: list[Section] = []
    have = total = 0
    for item in items:
        numbers = results.numbers(item)
        total += len(item.presets)
        have += len({n.preset.name for n in numbers if n.values})
        sections += [Heading(f"{item.title} ({item.source})", 2, item.name), *_item(item, results, numbers)]
    sections += [*_others(results), *_provenance(results)]
    lead = (
        f"{have} of the {total} rows and curves have a result here; the others are said to be missing. Every row says "
        "at what scale it was made: a row that ran shorter than the paper's, or smaller, is not expected to reach the "
        "published figure."
    )
    return page.render(_TITLE, sections, lead=lead)


def write(results: Results, out: Path, items: Sequence[Item] = tuple(ITEMS.values())) -> list[Path]:
    """``page.html``, ``numbers.csv`` and ``.json``, ``curves.csv``, and ``figures/`` as SVG and PNG."""
    durable.make_directory(out)
    found = records(results, items)
    durable.write_text(out / "page.html", render(results, items))
    durable.write_json(out / "numbers.json", found)
    flat = [{**record, "values": " ".join(map(repr, record["values"]))} for record in found]
    durable.write_text(out / "numbers.csv", _csv(list(flat[0]) if flat else [], [list(row.values()) for row in flat]))
    columns = ["item", "panel", "curve", "member", "x", "y"]
    durable.write_text(out / "curves.csv", _csv(columns, points(results, items)))
    return [out / "page.html", *write_figures(results, out / "figures", items)]


def _item(item: Item, results: Results, numbers: list[Number]) -> list[Section]:
    sections: list[Section] = [Prose([item.caption])]
    drawn = panels(item, results)
    if any(panel.curves for panel in drawn):
        sections.append(page.panels(drawn))
    elif item.kind == "timing" and (timed := bars(numbers)):
        sections.append(Figure(figures.svg(timed[0], alt=timed[1])))
    match item.name:
        case "table-mnist":
            sections += _mnist_tables(item, results)
        case "fig-gradients":
            sections.append(_gradients_table(item, numbers))
        case "table-timit":
            sections += _timit_tables(item, results, numbers)
        case _:
            sections.append(_table(item, results, numbers))
    absent = [name for name in item.presets if not any(n.values for n in numbers if n.preset.name == name)]
    reasons = dict.fromkeys(results.missing[name] for name in absent if name in results.missing)
    remarks = [f"{label(presets()[name])}: {results.remarks[name]}" for name in item.presets if name in results.remarks]
    said = [f"Missing: {len(absent)} of {len(item.presets)}.", *reasons] if absent else []
    runs = [run for name in item.presets for run in results.runs.get(name, [])]
    others = {str(mapping(run.config.get("task")).get("corpus", "timit")) for run in runs} - {"timit"}
    for corpus in sorted(others):
        said.append(f"On the corpus {corpus}, not on TIMIT: these figures cannot be compared with the published ones.")
    if said or remarks:
        sections.append(Prose([*said, *remarks], "note"))
    sections.append(Details("How each row is set, and where programs and text differ", _notes(item)))
    return sections


def _table(item: Item, results: Results, numbers: list[Number]) -> Table:
    rows: list[dict[str, str | float | None]] = []
    for name in item.presets:
        own = [n for n in numbers if n.preset.name == name]
        preset = own[0].preset
        row: dict[str, str | float | None] = {
            "model": label(preset, size=False),
            "n": preset.config["model"]["hidden"],
        }
        if "length" in preset.config["task"] and item.kind == "training":
            row["T"] = preset.config["task"]["length"]
        row["parameters"] = preset.parameters
        answered = [n for n in own if n.published]
        for n in answered:
            said = n.published.value if n.published and n.published.value is not None else None
            column = "published" if len(answered) == 1 else f"{n.measure}, published"
            row[column] = said if said is not None else n.published.text if n.published else None
            row["here" if len(own) == 1 else f"{n.measure} here"] = spread(n)
        for n in own:
            if not n.published:
                row[f"{n.measure} here"] = spread(n)
        if item.name in ("fig-copying", "fig-adding"):
            row["baseline"] = next((run.baseline for run in results.runs.get(name, [])), None)
        row["scale and budget"] = own[0].budget
        rows.append(row)
    texts = [column for column in rows[0] if "published" in column and isinstance(rows[0][column], str)]
    return page.published_table(f"{item.source}: {item.title}", rows, text=["model", *texts, "scale and budget"])


def _mnist_tables(item: Item, results: Results) -> list[Section]:
    """One row for a model and size with both orders of the pixels, as in the paper; then the honest figures."""
    by_preset: dict[str, list[Number]] = {}
    for n in results.numbers(item):
        by_preset.setdefault(n.preset.name, []).append(n)
    rows: list[dict[str, str | float | None]] = []
    honest: list[list[str | float | None]] = []
    for model in dict.fromkeys(name.partition("-")[2] for name in item.presets):
        pairs = {
            title: by_preset.get(f"{task}-{model}") for title, task in (("MNIST", "mnist"), ("permuted", "pmnist"))
        }
        preset = next(pair[0].preset for pair in pairs.values() if pair)
        size = preset.config["model"]["hidden"]
        row: dict[str, str | float | None] = {"model": label(preset, size=False), "n": size}
        row["parameters"] = preset.parameters
        for title, pair in pairs.items():
            row[f"{title}, published"] = pair[0].published.value if pair and pair[0].published else None
            row[f"{title} here"] = spread(pair[0]) if pair else None
        budgets = {title: pair[0].budget for title, pair in pairs.items() if pair}
        same = len(set(budgets.values())) == 1
        said = next(iter(budgets.values())) if same else "; ".join(f"{k} {v}" for k, v in budgets.items())
        rows.append({**row, "scale and budget": said})
        honest.append(
            [label(preset, size=False), size, *(spread(pair[1]) if pair else None for pair in pairs.values())]
        )
    shown = page.published_table(f"{item.source}: {item.title}", rows, text=["model", "scale and budget"])
    caption = "The same at the epoch that is best on 5,000 images set aside; the paper has no such figure"
    return [shown, Table(["model", "n", "MNIST here", "permuted here"], honest, caption)]


def _gradients_table(item: Item, numbers: list[Number]) -> Table:
    """A row for each model and moment: the norm at the first and the last time step."""
    rows: list[dict[str, str | float | None]] = []
    for name in item.presets:
        first, last = ([n for n in numbers if n.preset.name == name and n.measure.endswith(t)] for t in ("= 1", "= T"))
        for a, b in zip(first, last, strict=True):
            rows.append(
                {
                    "model": label(a.preset),
                    "moment": a.measure.partition(",")[0],
                    "published": a.published.text if a.published else None,
                    "t = 1 here": spread(a),
                    "t = T here": spread(b),
                    "scale and budget": a.budget,
                }
            )
    text = ["model", "moment", "published", "scale and budget"]
    return page.published_table(f"{item.source}: {item.title}", rows, text=text)


def _timit_tables(item: Item, results: Results, numbers: list[Number]) -> list[Section]:
    """The paper's table, and what it has not: the error on the frames that exist, and scores of the audio."""
    shown = _table(item, results, [n for n in numbers if n.published])
    more = [n for n in numbers if not n.published]
    measures = list(dict.fromkeys(n.measure for n in more))
    rows = [
        [label(presets()[name]), *(spread(n) for n in more if n.preset.name == name)]
        for name in item.presets
        if any(n.values for n in more if n.preset.name == name)
    ]
    caption = "Beside it: the error on the frames that exist, and scores of the audio rebuilt from predictions"
    return [shown, *([Table(["model", *measures], rows, caption)] if rows else [])]


def spread(n: Number) -> str | float | None:
    """The value; of several seeds their mean and standard deviation; or that it is missing."""
    if n.mean is None:
        return MISSING
    if n.deviation is None:
        return n.mean
    return f"{number(n.mean)} ± {number(n.deviation)} ({len(n.values)} seeds)"


def _notes(item: Item) -> str:
    """The notes of the presets, those that say the same together."""
    by_note: dict[str, list[Preset]] = {}
    for name in item.presets:
        by_note.setdefault(" ".join(presets()[name].note.split()), []).append(presets()[name])
    blocks = []
    for note, of in by_note.items():
        title = textwrap.fill("; ".join(preset.title for preset in of), 96)
        blocks.append(f"{title}\n{textwrap.indent(textwrap.fill(note or 'As in the paper.', 92), '    ')}")
    return "\n\n".join(blocks)


def _others(results: Results) -> list[Section]:
    if not results.others:
        return []
    rows: list[list[str | float | None]] = []
    for run in results.others:
        task, model = mapping(run.config.get("task")), mapping(run.config.get("model"))
        name = str(model.get("name", ""))
        rows.append(
            [
                f"{MODEL_NAMES.get(name, name)} n={model.get('hidden')}",
                run.task,
                finite(task.get("length")),
                finite(run.config.get("seed")),
                f"{run.headline} {number(run.final(run.evaluation, run.headline))}",
                run.final(run.evaluation, "loss"),
                run.baseline,
                finite(run.summary.get("steps")),
                duration(finite(run.summary.get("seconds"))),
            ]
        )
    columns = ["model", "task", "T", "seed", "last test figure", "loss", "baseline", "iterations", "time"]
    text = ["task", "last test figure"]
    return [Heading("Beyond the paper", 2, "beyond"), Table(columns, rows, "Runs of settings that it has not", text)]


def _provenance(results: Results) -> list[Section]:
    runs = [run for of in results.runs.values() for run in of] + results.others
    if not runs:
        return []
    rows: list[list[str | float | None]] = []
    for run in runs:
        versions, machine = mapping(run.summary.get("versions")), mapping(run.summary.get("machine"))
        rows.append(
            [
                run.name,
                finite(run.config.get("seed")),
                finite(run.summary.get("steps")),
                duration(finite(run.summary.get("seconds"))),
                finite(run.summary.get("seconds_per_step")),
                str(machine.get("gpu") or machine.get("processor") or ""),
                str(versions.get("scornn", "")),
                str(versions.get("torch", "")),
            ]
        )
    columns = ["run", "seed", "steps", "time", "s/step", "machine", "code", "torch"]
    return [
        Heading("Runs behind these numbers", 2, "runs"),
        Table(columns, rows, "Where and with what each was made", ["machine", "code", "torch"]),
    ]


def _csv(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([json.dumps(v) if isinstance(v, list) else v for v in row] for row in rows)
    return file.getvalue()
