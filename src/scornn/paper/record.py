"""The committed record: small copies of real runs, and what is made from them for people.

``results/RUN`` holds ``config.json``, ``metrics.jsonl`` (every evaluation, and training lines as far as they fit),
``summary.json``, and where there are any ``spectrum.json``, ``gradients.json`` and ``audio/scores.json``.
``results/timing/PRESET.json`` are measurements. All of it is written by this module, as are ``results/README.md``,
``results/figures`` and the table between two marks in the project's README. Weights are put beside a run by
``scornn export``; they go when another run takes its place.
"""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from scornn import durable, plugins
from scornn.errors import DataError, UsageError
from scornn.paper import match
from scornn.paper.figures import pictured, write_pictured
from scornn.paper.items import ITEMS, MAIN
from scornn.paper.page import counted, difference
from scornn.paper.presets import presets
from scornn.paper.results import Number, Results, collect, label, spread
from scornn.paper.verdict import ENOUGH, OTHER
from scornn.report import spectrum
from scornn.report.models import label_and_about
from scornn.report.page import duration, number, words
from scornn.report.runs import finite, mapping, read_object
from scornn.report.runs import read as read_run
from scornn.tasks import catalogue
from scornn.train import weights as stored
from scornn.train.progress import warn

LARGEST = 200_000
"""Bytes of the largest file of metrics."""
BEGIN, END = "<!-- results: written by `scornn reproduce record` -->", "<!-- end of results -->"
_HOW_TO_READ = (
    "In bold: the whole protocol was run. Averaged weights are a second figure of the same run; the better is bold, "
    "and may meet the published one. How long the others ran, their seeds, further settings, what cannot be "
    "compared: [results](results/README.md)."
)
_BEYOND_IN_BRIEF = "Beyond the paper, on its problems, the best setting of each network:"
_NO_WORD = "No results are recorded yet: `scornn reproduce` obtains them."


_WEIGHTS = (stored.FILE, f"{stored.FILE}.md")
_MEASURED = ("gradients.json", "audio/scores.json")


@dataclass(frozen=True)
class _Entry:
    """A run as the record will have it: its directory there, and its files."""

    target: Path
    files: dict[str, bytes]

    def write(self) -> Path:
        """In place of an older run of the same settings, of which nothing is left."""
        durable.make_directory(self.target)
        before = read_object(self.target / "summary.json")
        if before and before != json.loads(self.files["summary.json"]):
            for file in {*_WEIGHTS, *_MEASURED, spectrum.FILE} - self.files.keys():
                (self.target / file).unlink(missing_ok=True)
        for file, content in self.files.items():
            durable.make_directory((self.target / file).parent)
            durable.write_bytes(self.target / file, content)
        return self.target


def _entry(run: Path, results: Path) -> _Entry:
    """What is to be copied of a run, or an error that says why it is no result."""
    read = read_run(run)
    with suppress(UsageError):  # a task or a model whose file is not there is called by its name
        plugins.load_remembered(read.config)
    if not read.config or not read.summary or not read.rows:
        raise DataError(
            f"{run}: expected a run with config.json, metrics.jsonl and summary.json: "
            + ("; ".join(read.notes) or "one of them is empty")
        )
    preset = match.preset_of(read.config)
    if preset is not None and match.is_reduced(read.config, preset):
        raise UsageError(f"{run} is a smoke run of {preset.name}, with another n or T: it is no result")
    target = results / name_of(read.config)
    there = read_object(target / "config.json")
    if differ := there and match.unlike(read.config, there):
        raise UsageError(
            f"{run} would take the place of {target}, a run of other settings: {', '.join(differ)}; give it a name of "
            f'its own ("name" in its config.json), or remove the other first'
        )
    files = {
        "config.json": _json(run / "config.json", plugins.without_places(read.config)),
        "summary.json": _json(run / "summary.json", read.summary),
        "metrics.jsonl": thinned((run / "metrics.jsonl").read_text(encoding="utf-8", errors="replace")).encode(),
    }
    for file in _MEASURED:
        if (run / file).is_file():
            files[file] = _json(run / file, _object(run / file))
    if read.last("orthogonality") is not None:
        found, reason = spectrum.read(run)
        if found:
            files[spectrum.FILE] = (json.dumps(spectrum.to_table(found)) + "\n").encode()
        elif reason:
            warn(f"{run} is recorded without it: {reason}")
    return _Entry(target, files)


def _object(file: Path) -> dict[str, Any]:
    """The object in a JSON file that others rely on."""
    notes: list[str] = []
    found = read_object(file, notes)
    if notes:
        raise DataError(f"{file}: expected a JSON object: {notes[0]}; make it again, or remove it")
    return found


def _json(file: Path, value: dict[str, Any]) -> bytes:
    try:
        return durable.json_bytes(value)
    except ValueError as error:  # NaN or infinity, which Python reads and JSON has not
        raise DataError(f"{file}: expected finite numbers: {error}") from None


def name_of(config: Mapping[str, Any]) -> str:
    """A run's directory in the record: its preset and seed, or what sets it apart."""
    task, model = mapping(config.get("task")), mapping(config.get("model"))
    preset, seed = match.preset_of(config), config.get("seed")
    corpus = task.get("corpus", "timit")
    if preset is not None:
        name = preset.name if corpus == "timit" else preset.name.replace("timit", str(corpus), 1)
    elif config.get("name"):
        name = str(config["name"]).removesuffix(f"-s{seed}")
    else:
        kind = catalogue.name_of(task)
        parts = [kind, task.get("length"), model.get("name"), model.get("hidden")]
        name = "-".join(str(part) for part in parts if part is not None)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise DataError(f"{name!r} is no name of a directory")
    return f"{name}-s{seed}"


def _timing(file: Path, results: Path) -> tuple[Path, bytes]:
    """A measurement as the record will have it, or an error that says why it is no result."""
    timed = _object(file)
    preset = presets().get(str(timed.get("preset")))
    config, numbers = mapping(timed.get("config")), [finite(timed.get(key)) for key in ("seconds_per_step", "steps")]
    if preset is None or not config or None in numbers:
        raise DataError(f"{file}: expected a measurement of `scornn reproduce table-timing`")
    if match.is_reduced(config, preset):
        raise UsageError(f"{file} is a smoke run of {preset.name}, with another n or T: it is no result")
    timed["config"] = plugins.without_places(config)
    return results / "timing" / f"{preset.name}.json", _json(file, timed)


def thinned(text: str, largest: int = LARGEST) -> str:
    """Lines of metrics within a size: every evaluation, and of the training lines each k-th, k as small as can be."""
    rows = []
    for line in text.splitlines():
        with suppress(ValueError):  # the last one of a full disk is cut
            if isinstance(row := json.loads(line), dict):
                rows.append((line, row))
    training = [index for index, (_, row) in enumerate(rows) if row.get("split") == "train"]
    every = 1
    while True:
        kept = set(training[every - 1 :: every])
        lines = [line for index, (line, row) in enumerate(rows) if row.get("split") != "train" or index in kept]
        result = "".join(line + "\n" for line in lines)
        if len(result.encode()) <= largest or every > len(training):
            return result
        every += 1


def rebuild(results: Path, readme: Path | None = None) -> list[Path]:
    """Make ``README.md`` and ``figures/`` of the record anew, and the table of the project's README if it has one."""
    found = collect(durable.make_directory(results))
    durable.write_text(results / "README.md", summary(found))
    written = [results / "README.md", *write_pictured(found, results / "figures")]
    if readme is not None and (text := _with_a_place(readme)):
        durable.write_text(readme, with_table(text, table(found)))
        written.append(readme)
    return written


def _with_a_place(readme: Path) -> str:
    """The text of a README that has a place for the table; nothing of another."""
    if not readme.is_file():
        return ""
    try:
        text = readme.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{readme} is not UTF-8 text: {error.reason} at byte {error.start}") from None
    return with_table(text, "") and text if BEGIN in text else ""


def with_table(text: str, made: str) -> str:
    """A README with its table between the marks replaced."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise UsageError(f"the README has no place for the table: expected the lines {BEGIN} and {END}")
    return f"{before}{begin}\n{made}{end}{after}"


def table(results: Results) -> str:
    """The README's part in Markdown: the count of verdicts, and of the rows with a say those that can be compared."""
    shown = _shown(results)
    if not any(shown.values()):
        return _NO_WORD + "\n"
    blocks = [counted(results)]
    columns = ["problem", "model", "published", "here", "averaged weights", "verdict"]
    for beyond, numbers in shown.items():
        compared = [n for n in numbers if n.verdict != OTHER]
        if rows := [_brief_cells(n, results) for n in (_best_of_each(compared, results) if beyond else compared)]:
            blocks += [_BEYOND_IN_BRIEF] * beyond + [_markdown(columns, rows)]
    blocks.append(_HOW_TO_READ)
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
    lines = [counted(results), ""]
    for beyond, numbers in _shown(results).items():
        if numbers:
            named = columns + ["differs from the paper in"] * beyond
            lines += [titles[beyond], "", _markdown(named, [_cells(n, results) for n in numbers]), ""]
    return lines if len(lines) > 2 else []


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
    published = number(n.published.value) if n.published.value is not None else n.published.text
    if n.preset.beyond and n.published.value is not None and n.published.text:
        published += f" ({n.published.text})"  # another network's
    if _task(n, results).get("corpus", "timit") != "timit":
        published += " on TIMIT"
    here, averaged = spread(n.values) or "", spread(n.averaged) or ""
    if n.complete:
        here, averaged = (here, f"**{averaged}**") if n.by_average else (f"**{here}**", averaged)
    if n.published.claim == "leaves the baseline":  # and comes back to it
        bests = [best for run in results.runs[n.preset.name] if (best := run.best()) is not None]
        here += f", at best {spread(bests)}"
    return {
        "problem": _problem(n, results),
        "model": label(n.preset),
        "figure": n.measure,
        "published": published,
        "here": here,
        "averaged weights": averaged,
        "verdict": n.verdict,
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
    published = cells["published"] if n.published.value is not None else n.published.claim
    return cells | {
        "problem": f"{cells['problem']}: {n.measure}",
        "model": cells["model"] + brief,
        "published": published,
    }


def _markdown(columns: Sequence[str], rows: Sequence[Mapping[str, str]]) -> str:
    lines = [[row[column] for column in columns] for row in rows]
    return "\n".join(["| " + " | ".join(line) + " |" for line in (columns, ["---"] * len(columns), *lines)])


def summary(results: Results) -> str:
    """``results/README.md``: every recorded run, and how the record is made."""
    lines = [
        "# Results",
        "",
        "Made by `scornn reproduce record`; nothing here is typed in. `scornn reproduce page --from results` makes the",
        "page that sets these runs beside the paper, `scornn report results` one about the runs themselves, and",
        "`scornn sweep report results/sweeps/NAME.json` one about a sweep. Of long runs `metrics.jsonl` has every",
        "evaluation and each k-th training line, so that it stays under 200 kB.",
        "",
    ]
    lines += _whole_tables(results)
    runs = [(name, run) for name, of in results.runs.items() for run in of] + [("", run) for run in results.others]
    if not runs and not results.timings and not results.sweeps:
        return "\n".join([*lines, _NO_WORD, ""])
    if runs:
        lines += ["## Runs", "", "| run | preset | best | averaged | steps | time | machine | code |", "|---" * 8 + "|"]
    for name, run in runs:
        machine = str(mapping(run.summary.get("machine")).get("processor", ""))
        best = f"{words(run.headline, run.task)} {number(run.best())}"
        averaged = number(run.best("average")) if run.has_average else ""
        steps, time = number(finite(run.summary.get("steps"))), duration(finite(run.summary.get("seconds")))
        code = str(mapping(run.summary.get("versions")).get("scornn", ""))
        of = name or f"beyond the paper: {difference(run)}"
        cells = (f"[{run.name}]({run.name})", of, best, averaged, steps, time, machine, code)
        lines.append("| " + " | ".join(cells) + " |")
    if results.timings:
        lines += [
            "",
            "## Seconds per step",
            "",
            "Of the models of this library, `rnn` among them; `torch.nn.RNN` is in benchmarks/README.md.",
            "",
            "| timing | seconds per step | steps timed | machine |",
            "|---|---|---|---|",
        ]
    for name, timed in results.timings.items():
        machine = str(mapping(timed.get("machine")).get("processor", ""))
        step, steps = number(timed["seconds_per_step"]), number(timed["steps"])
        lines.append(f"| [{name}](timing/{name}.json) | {step} | {steps} | {machine} |")
    if results.sweeps:
        lines += ["", "## Sweeps", "", "| sweep | trials | over | best |", "|---|---|---|---|"]
    for name, sweep in results.sweeps.items():
        try:
            lines.append(_sweep(name, sweep))
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"sweeps/{name}.json: expected the record of a sweep; record it again, or remove it: {error!r}"
            ) from None
    return "\n".join([*lines, ""])


def _sweep(name: str, sweep: Mapping[str, Any]) -> str:
    metric, goal, split = sweep["plan"]["objective"]
    values = [trial["value"] for trial in sweep["trials"] if trial["value"] is not None]
    best = f"{split} {words(metric)} {number((max if goal == 'max' else min)(values, default=None))}"
    over = "; ".join(sweep["plan"]["over"])
    return f"| [{name}](sweeps/{name}.json) | {len(sweep['trials'])} | {over} | {best} |"


def files_of(path: Path) -> tuple[list[Path], list[Path]]:
    """Run directories and measurements in ``OUT`` of `scornn reproduce`, or the one run that the path is."""
    if (path / "config.json").is_file():
        return [path], []
    runs = sorted(p.parent for p in path.glob("runs/*/summary.json"))
    timings = sorted(path.glob("timing/*.json"))
    if not runs and not timings and not [*path.glob("sweep.json"), *path.glob("sweeps/*/sweep.json")]:
        raise DataError(f"{path}: expected a run directory, or the --out of `scornn reproduce` with runs in it")
    return runs, timings


def record(
    paths: Sequence[Path], results: Path, readme: Path | None, also: Mapping[Path, str] = MappingProxyType({})
) -> list[Path]:
    """Add runs and ``also`` files to the record, and rebuild what is made from it.

    All is read before anything is written: where a run or a measurement is refused, or what is there already cannot be
    read, nothing is.
    """
    found = [files_of(path) for path in paths]
    entries = [_entry(run, results) for runs, _ in found for run in runs]
    timings = dict(_timing(file, results) for _, timings in found for file in timings)
    by_target = {entry.target: entry for entry in entries}
    for entry in entries:
        if by_target[entry.target] != entry:
            raise UsageError(f"two different runs would both be {entry.target}; record one of them")
    if readme is not None:
        _with_a_place(readme)
    if results.is_dir():
        summary(collect(results))
    added = [entry.write() for entry in entries]
    for file, content in ({file: text.encode() for file, text in also.items()} | timings).items():
        durable.write_bytes(durable.make_directory(file.parent) / file.name, content)
    rebuild(results, readme)
    return [*also, *added, *timings]
