"""The committed record: small copies of real runs, and what is made from them for people.

``results/RUN`` holds ``config.json``, ``metrics.jsonl`` (every evaluation, and training lines as far as they fit),
``summary.json``, and where there are any ``spectrum.json``, ``gradients.json`` and ``audio/scores.json``.
``results/timing/PRESET.json`` are measurements. All of it is written by this module, as are ``results/README.md``,
``results/figures`` and the table between two marks in the project's README. Weights are put beside a run by
``scornn export``; they go when another run takes its place.
"""

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from scornn.errors import DataError, UsageError
from scornn.program import durable, plugins
from scornn.program.paper import match
from scornn.program.paper.figures import write_pictured
from scornn.program.paper.results import collect
from scornn.program.paper.tables import summary, table
from scornn.program.progress import log
from scornn.program.recipes.presets import presets
from scornn.program.report import spectrum
from scornn.program.report.runs import finite, mapping
from scornn.program.report.runs import read as read_run
from scornn.program.tasks import catalogue

LARGEST = 200_000
"""Bytes of the largest file of metrics."""
BEGIN, END = "<!-- results: written by `scornn reproduce record` -->", "<!-- end of results -->"
_MEASURED = ("gradients.json", "audio/scores.json")


@dataclass(frozen=True)
class _Entry:
    """A run as the record will have it: its directory there, and its files."""

    target: Path
    files: dict[str, bytes]

    def write(self) -> Path:
        """In place of an older run of the same settings, of which nothing is left, its weights neither."""
        before = durable.read_object(self.target / "summary.json")
        if before and before != json.loads(self.files["summary.json"]):
            shutil.rmtree(self.target)
        for file, content in self.files.items():
            durable.write_bytes(durable.make_directory((self.target / file).parent) / Path(file).name, content)
        return self.target


def _entry(run: Path, results: Path) -> _Entry:
    """What is to be copied of a run, or an error that says why it is no result."""
    read = read_run(run)
    with suppress(UsageError):  # a task or a model whose file is not there is called by its name
        plugins.of_config(read.config)
    if not read.config or not read.summary or not read.rows:
        raise DataError(
            f"{run}: expected a run with config.json, metrics.jsonl and summary.json: "
            + ("; ".join(read.notes) or "one of them is empty")
        )
    preset = match.preset_of(read.config)
    if preset is not None and match.is_reduced(read.config, preset):
        raise UsageError(f"{run} is a smoke run of {preset.name}, with another n or T: it is no result")
    target = results / name_of(read.config)
    there = durable.read_object(target / "config.json")
    differ = match.unlike(read.config, there) if there else []
    kind = catalogue.entry_of(mapping(read.config.get("task")))
    if there and kind is not None and kind.by_folder:
        data = durable.read_object(target / "summary.json").get("data")
        differ += ["other data"] * (data != read.summary.get("data"))
    if differ:
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
            log.warning(f"{run} is recorded without it: {reason}")
    return _Entry(target, files)


def _object(file: Path) -> dict[str, Any]:
    """The object in a JSON file that others rely on."""
    notes: list[str] = []
    found = durable.read_object(file, notes)
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
    name = f"{name}-s{seed}"
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*-s\d+", name):
        raise DataError(f"{name!r} is no name of a directory: expected a preset or a name, and an integer as the seed")
    return name


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


def files_of(path: Path) -> tuple[list[Path], list[Path]]:
    """Run directories and measurements in ``OUT`` of `scornn reproduce`, or the one run that the path is."""
    if (path / "config.json").is_file():
        return [path], []
    runs = sorted(p.parent for p in path.glob("runs/*/summary.json"))
    timings = sorted(path.glob("timing/*.json"))
    if not runs and not timings and not (path / "sweep.json").is_file():
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
