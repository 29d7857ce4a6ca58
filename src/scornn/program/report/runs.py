"""Run directories, read from their files alone.

Whatever is missing or damaged becomes a note for the page; only a path that holds no run at all is an error.
"""

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scornn.errors import DataError, DivergedError
from scornn.program import durable
from scornn.program.train.tables import of_today

Series = tuple[NDArray[np.float64], NDArray[np.float64]]

_LARGEST = 1e100
_FILES = ("config.json", "metrics.jsonl", "summary.json")


@dataclass(frozen=True)
class Run:
    """One run directory: what its files say, and ``notes`` on what they do not."""

    path: Path
    config: dict[str, Any]
    summary: dict[str, Any]
    rows: list[dict[str, Any]] = field(repr=False)
    notes: tuple[str, ...] = ()
    told: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """What runs of the same problem say of it, for one that has no summary yet."""

    @property
    def name(self) -> str:
        return self.path.resolve().name

    @property
    def task(self) -> str:
        return str(self._section("task").get("name") or self.summary.get("task") or "unknown task")

    @property
    def model(self) -> str:
        return str(self._section("model").get("name") or self.summary.get("model") or "unknown model")

    @property
    def hidden(self) -> int | None:
        hidden = self._section("model").get("hidden")
        return hidden if isinstance(hidden, int) and (finite(hidden) or 0) > 0 else None

    @property
    def headline(self) -> str:
        return str(self._of_the_problem("headline") or "loss")

    @property
    def goal(self) -> str:
        return "max" if self._of_the_problem("goal") == "max" else "min"

    @property
    def baseline(self) -> float | None:
        return finite(self._of_the_problem("baseline"))

    @property
    def finished(self) -> bool:
        return self.summary.get("finished") is True

    @cached_property
    def gone_on(self) -> bool:
        """Whether the lines have gone past the summary, which is as old as the last checkpoint."""
        newest = max((finite(row.get("step")) or 0 for row in self.rows), default=0)
        return not self.finished and newest > (finite(self.summary.get("steps")) or 0)

    @property
    def steps(self) -> float | None:
        """How far it went."""
        return self.last("step") if self.gone_on else self.last("steps") or self.last("step")

    @property
    def evaluation(self) -> str:
        """The split that the run is judged on: test, or valid where there is no test."""
        present = {row.get("split") for row in self.rows} | set(self._final())
        found = next((split for split in ("test", "valid") if split in present), None)
        return found or str(self.told.get("evaluation", "train"))

    def _of_the_problem(self, key: str) -> Any:
        return self.summary.get(key, self.told.get(key))

    @property
    def has_average(self) -> bool:
        """Whether averaged weights were evaluated beside the raw ones."""
        return bool(self.summary.get("average")) or any(row.get("weights") == "average" for row in self.rows)

    @property
    def epochs(self) -> float | None:
        return finite(self.summary.get("epochs"))

    def series(self, split: str, key: str, weights: str = "raw") -> Series:
        """Steps and finite values of one metric, of raw or averaged weights; of a step written twice, the later one."""
        points: dict[float, float] = {}
        for row in self.rows:
            step, value = finite(row.get("step")), finite(row.get(key))
            own = row.get("split") == split and row.get("weights", "raw") == weights
            if own and step is not None and value is not None:
                points[step] = value
        steps = sorted(points)
        return np.array(steps, dtype=float), np.array([points[s] for s in steps], dtype=float)

    def final(self, split: str, key: str, weights: str = "raw") -> float | None:
        """The last value: the summary's, or where there is none or the run has gone on the last line's."""
        value = finite(mapping(mapping(self._figures(weights).get("final")).get(split)).get(key))
        if value is None or self.gone_on:
            values = self.series(split, key, weights)[1]
            value = float(values[-1]) if values.size else value
        return value

    def metrics(self, split: str) -> list[str]:
        """What the summary's last evaluation measured."""
        return [key for key, value in mapping(self._final().get(split)).items() if finite(value) is not None]

    def best(self, weights: str = "raw") -> float | None:
        """The best value of the headline metric on the evaluation split."""
        value = finite(mapping(self._figures(weights).get("best")).get("value"))
        if value is None or self.gone_on:
            values = self.series(self.evaluation, self.headline, weights)[1]
            value = float(values.max() if self.goal == "max" else values.min()) if values.size else value
        return value

    def chosen(self, weights: str = "raw") -> float | None:
        """The headline metric on test at the epoch chosen on validation, where the run has a validation split."""
        if self.gone_on:
            return self.at_chosen("test", self.headline, weights)
        return finite(mapping(self._figures(weights).get("best_by_valid")).get("value"))

    def at_chosen(self, split: str, metric: str, weights: str = "raw") -> float | None:
        """A metric at the evaluation that was best on validation."""
        step = finite(mapping(self._figures(weights).get("best_by_valid")).get("step"))
        measured, valid = self.series("valid", self.headline, weights)
        if self.gone_on and valid.size:
            step = float(measured[valid.argmax() if self.goal == "max" else valid.argmin()])
        steps, values = self.series(split, metric, weights)
        at = values[steps == step] if step is not None else values[:0]
        return float(at[-1]) if at.size else None

    def last(self, key: str) -> float | None:
        """The newest finite value of a key in any split, of the raw weights, the summary first as in `final`."""
        value = finite(self.summary.get(key))
        if value is None or self.gone_on:
            values = (finite(row.get(key)) for row in reversed(self.rows) if row.get("weights", "raw") == "raw")
            value = next((v for v in values if v is not None), value)
        return value

    def _section(self, key: str) -> dict[str, Any]:
        return mapping(self.config.get(key))

    def _figures(self, weights: str) -> dict[str, Any]:
        """The part of the summary that holds the figures of raw or of averaged weights."""
        return self.summary if weights == "raw" else mapping(self.summary.get(weights))

    def _final(self) -> dict[str, Any]:
        return mapping(self.summary.get("final"))


def find(paths: Iterable[str | os.PathLike[str]]) -> list[Path]:
    """Run directories among ``paths`` and below them, links followed, each once, in order."""
    found: dict[Path, Path] = {}
    for path in map(Path, paths):
        if not path.is_dir():
            what = "a file" if path.exists() else "nothing"
            raise DataError(f"{path}: expected a run directory or a directory of runs, found {what}")
        below, seen = [], set()
        for directory, children, files in os.walk(path, followlinks=True):
            if any(name in files for name in _FILES):
                below.append(Path(directory))
                children.clear()
            if (real := os.path.realpath(directory)) in seen:  # links may lead in a circle
                children.clear()
            seen.add(real)
            children.sort()
        if not below:
            raise DataError(
                f"{path}: no run here: expected {', '.join(_FILES)} in it or in a directory below; "
                "`scornn train … --out RUN` makes one"
            )
        for run in below:
            found.setdefault(run.resolve(), run)
    return list(found.values())


def read(path: str | os.PathLike[str]) -> Run:
    """Read one run directory."""
    path = Path(path)
    if not any((path / name).is_file() for name in _FILES):
        raise DataError(f"{path}: expected a run directory with {', '.join(_FILES)}, found none of them")
    notes: list[str] = []
    config = of_today(durable.read_object(path / "config.json", notes))
    rows = _read_lines(path / "metrics.jsonl", notes)
    summary = durable.read_object(path / "summary.json", notes)
    if summary and summary.get("finished") is not True:
        notes.append("the run is not finished: figures are the latest so far")
    if said := _divergence(path / "log.txt"):
        notes.append(f"it diverged: {said}")
    unbounded = sum("loss" in row and finite(row["loss"]) is None for row in rows)
    if unbounded:
        notes.append(f"{unbounded} measured losses are not finite and not drawn")
    return Run(path, config, summary, rows, tuple(notes))


def distinct(runs: Iterable[Run]) -> list[Run]:
    """Each run once: of copies the first, with a note that names the others."""
    kept: dict[str, Run] = {}
    for run in runs:
        said = json.dumps([run.config, run.summary, run.rows], sort_keys=True) if run.rows else str(run.path)
        first = kept.setdefault(said, run)
        if first is not run:
            kept[said] = replace(first, notes=(*first.notes, f"{run.path} is a copy of it and is left out"))
    return list(kept.values())


def _read_lines(path: Path, notes: list[str]) -> list[dict[str, Any]]:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        notes.append(f"no {path.name}: there are no curves")
        return []
    rows, damaged = [], []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if isinstance(row, dict) and isinstance(row.get("split", ""), str):
            rows.append(row)
        else:
            damaged.append(number)
    if damaged:
        which = ", ".join(map(str, damaged[:5])) + (", …" if len(damaged) > 5 else "")
        count = "1 damaged line" if len(damaged) == 1 else f"{len(damaged)} damaged lines"
        notes.append(f"{path.name}: {count} left out (line {which})")
    if not rows:
        notes.append(f"{path.name} holds no measurement yet")
    return rows


def _divergence(log: Path) -> str:
    """What the log ends with, if that is that the run diverged."""
    try:
        last = log.read_text(encoding="utf-8", errors="replace").rstrip().rpartition("\n")[2]
    except OSError:
        return ""
    return last.partition(f" {DivergedError.__name__}: ")[2]


def finite(value: object) -> float | None:
    """The number, or None for whatever is not a finite number that axes can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) <= _LARGEST else None


def mapping(value: object) -> dict[str, Any]:
    """The object, or an empty one for whatever is not an object."""
    return dict(value) if isinstance(value, Mapping) else {}
