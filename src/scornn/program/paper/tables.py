"""What the record says in Markdown: the table of the project's README, and ``results/README.md``."""

from collections.abc import Mapping, Sequence
from typing import Any

from scornn.errors import DataError
from scornn.program.paper.figures import pictured
from scornn.program.paper.items import ITEMS, MAIN
from scornn.program.paper.page import counted, difference, published
from scornn.program.paper.results import Number, Results, label, spread
from scornn.program.paper.verdict import AGREES, ENOUGH, OTHER
from scornn.program.report.page import duration, number, words
from scornn.program.report.runs import Run, finite, mapping
from scornn.program.tasks.catalogue import label_and_about

_HOW_TO_READ = (
    "Bold: the whole protocol was run, and this is the better of the two figures; either may meet the published one. "
    "Averaged weights are an exponential moving average of those of the same run. The other models, how long each ran, "
    "seeds, further settings, what cannot be compared: [results](results/README.md)."
)
_BEYOND_IN_BRIEF = "scoRNN with settings beyond the paper, the best of each size and readout:"
_OWN = "scornn"
"""The model of the paper: the README has its rows alone."""
_ABOUT = """\
Made by `scornn reproduce record`; nothing here is typed in. `scornn reproduce page --from results` makes the
page that sets these runs beside the paper, `scornn report results` one about the runs themselves, and
`scornn sweep report results/sweeps/NAME.json` one about a sweep. Of long runs `metrics.jsonl` has every
evaluation and each k-th training line, so that it stays under 200 kB."""
_OF_THIS_LIBRARY = "Of the models of this library, `rnn` among them; `torch.nn.RNN` is in benchmarks/README.md."
_NO_WORD = "No results are recorded yet: `scornn reproduce` obtains them."


def table(results: Results) -> str:
    """The README's part in Markdown: the paper's own model where it can be compared, and the count of verdicts."""
    shown = _shown(results)
    if not any(shown.values()):
        return _NO_WORD + "\n"
    blocks = []
    columns = ["problem", "model", "published", "here", "averaged weights", "verdict"]
    for beyond, numbers in shown.items():
        compared = [n for n in numbers if n.verdict != OTHER and n.preset.config["model"]["name"] == _OWN]
        if rows := [_brief_cells(n, results) for n in (_best_of_each(compared, results) if beyond else compared)]:
            blocks += [_BEYOND_IN_BRIEF] * beyond + [_markdown(columns, rows)]
    blocks += [_HOW_TO_READ, f"All models together: {counted(results)[0].lower()}{counted(results)[1:]}"]
    for name, panels in pictured(results).items():
        if name in ITEMS:  # the others stand where the README's author put them
            blocks.append(
                "\n".join(f"![{panel.title}: {panel.ylabel}](results/figures/{file})" for file, panel in panels)
            )
    return "\n\n".join(blocks) + "\n"


def _whole_tables(results: Results) -> list[str]:
    """The same rows, and those that cannot be compared, with all that there is to say of each."""
    titles = {False: "## The paper's figures", True: "## Beyond the paper"}
    columns = ["problem", "model", "figure", "published", "here", "averaged weights", "verdict", "how"]
    blocks = []
    for beyond, numbers in _shown(results).items():
        if numbers:
            named = columns + ["differs from the paper in"] * beyond
            blocks += [titles[beyond], _markdown(named, [_cells(n, results) for n in numbers])]
    return [counted(results), *blocks] if blocks else []


def _shown(results: Results) -> dict[bool, list[Number]]:
    """The rows of the paper that have a say, and those beyond it."""
    items = [ITEMS[name] for name in MAIN]
    said = {beyond: [n for item in items for n in results.numbers(item, beyond=beyond)] for beyond in (False, True)}
    return {beyond: [n for n in numbers if _has_a_say(n)] for beyond, numbers in said.items()}


def _best_of_each(numbers: Sequence[Number], results: Results) -> list[Number]:
    """Of the settings of one network on one problem the best."""
    found: dict[tuple[object, ...], Number] = {}
    for n in numbers:
        assert n.published is not None
        key = _problem(n, results), label(n.preset), n.preset.parameters
        choose = max if n.published.metric == "accuracy" else min
        found[key] = choose(found.get(key, n), n, key=lambda number: number.best or 0.0)
    return list(found.values())


def _has_a_say(n: Number) -> bool:
    """Runs under a third of their protocol are left to the page."""
    return bool(n.values) and n.published is not None and n.share >= ENOUGH and not n.budget.startswith("smoke")


def _cells(n: Number, results: Results) -> dict[str, str]:
    assert n.published is not None
    on = " on TIMIT" if _task(n, results).get("corpus", "timit") != "timit" else ""
    here, averaged = spread(n.values) or "", spread(n.averaged) or ""
    if n.complete:
        here, averaged = (here, f"**{averaged}**") if n.by_average else (f"**{here}**", averaged)
    if n.published.claim == "fails" and n.verdict == AGREES:
        here += ", at the baseline as published"
    if n.published.claim == "drops and jumps back":
        bests = [best for run in results.runs[n.preset.name] if (best := run.best()) is not None]
        here += f", at best {spread(bests)}"
    return {
        "problem": _problem(n, results),
        "model": label(n.preset),
        "figure": n.measure,
        "published": f"{number(published(n))}{on}",
        "here": here,
        "averaged weights": averaged,
        "verdict": n.judged,
        "how": n.budget,
        "differs from the paper in": n.preset.beyond,
    }


def _problem(n: Number, results: Results) -> str:
    task = _task(n, results)
    problem = label_and_about(task)[0]
    problem += f", T = {task['length']}" if "length" in task else ""
    return problem + (f" ({task['corpus']})" if "corpus" in task else "")


def _task(n: Number, results: Results) -> dict[str, Any]:
    """As it was run."""
    return {**n.preset.config["task"], **mapping(results.runs[n.preset.name][0].config.get("task"))}


def _brief_cells(n: Number, results: Results) -> dict[str, str]:
    assert n.published is not None
    cells = _cells(n, results)
    brief = f", {n.preset.brief}" if n.preset.brief else ""
    return cells | {
        "problem": f"{cells['problem']}: {n.measure}",
        "model": cells["model"] + brief,
        "published": cells["published"] if n.published.value is not None else n.published.claim,
    }


def _markdown(columns: Sequence[str], rows: Sequence[Mapping[str, str]]) -> str:
    lines = [[row[column] for column in columns] for row in rows]
    return "\n".join(["| " + " | ".join(line) + " |" for line in (columns, ["---"] * len(columns), *lines)])


def summary(results: Results) -> str:
    """``results/README.md``: every recorded run, and how the record is made."""
    runs = [_run(name, run) for name, of in results.runs.items() for run in of]
    runs += [_run("", run) for run in results.others]
    timings = [_timing(name, timed) for name, timed in results.timings.items()]
    sweeps = [_sweep(name, sweep) for name, sweep in results.sweeps.items()]
    blocks = ["# Results", _ABOUT, *_whole_tables(results)]
    for title, rows in (("Runs", runs), ("Seconds per step", timings), ("Sweeps", sweeps)):
        if rows:
            said = [_OF_THIS_LIBRARY] * (rows is timings)
            blocks += [f"## {title}", *said, _markdown(list(rows[0]), rows)]
    return "\n\n".join([*blocks, *([] if runs or timings or sweeps else [_NO_WORD])]) + "\n"


def _run(preset: str, run: Run) -> dict[str, str]:
    return {
        "run": f"[{run.name}]({run.name})",
        "preset": preset or f"beyond the paper: {difference(run)}",
        "best": f"{words(run.headline, run.task)} {number(run.best())}",
        "averaged": number(run.best("average")) if run.has_average else "",
        "steps": number(finite(run.summary.get("steps"))),
        "time of training": duration(finite(run.summary.get("seconds"))),
        "machine": str(mapping(run.summary.get("machine")).get("processor", "")),
        "code": str(mapping(run.summary.get("versions")).get("scornn", "")),
    }


def _timing(name: str, timed: Mapping[str, Any]) -> dict[str, str]:
    return {
        "timing": f"[{name}](timing/{name}.json)",
        "seconds per step": number(timed["seconds_per_step"]),
        "steps timed": number(timed["steps"]),
        "machine": str(mapping(timed.get("machine")).get("processor", "")),
    }


def _sweep(name: str, sweep: Mapping[str, Any]) -> dict[str, str]:
    try:
        metric, goal, split = sweep["plan"]["objective"]
        values = [trial["value"] for trial in sweep["trials"] if trial["value"] is not None]
        return {
            "sweep": f"[{name}](sweeps/{name}.json)",
            "trials": str(len(sweep["trials"])),
            "over": "; ".join(sweep["plan"]["over"]),
            "best": f"{split} {words(metric)} {number((max if goal == 'max' else min)(values, default=None))}",
        }
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"sweeps/{name}.json: expected the record of a sweep; record it again, or remove it: {error!r}"
        ) from None
