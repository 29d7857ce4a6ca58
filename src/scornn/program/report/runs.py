"""Run directories, read from their files alone.

Whatever is missing or damaged becomes a note for the page; only a path that holds no run at all is an error.
"""

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from scornn.errors import DataError, DivergedError
from scornn.program import durable
from scornn.program.train.figures import Weights, figures
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

    @property
    def name(self) -> str:
        return self.path.resolve().name

    @property
    def task(self) -> str:
        return str(mapping(self.config.get("task")).get("name") or self.summary.get("task") or "unknown task")

    @property
    def model(self) -> str:
        return str(mapping(self.config.get("model")).get("name") or self.summary.get("model") or "unknown model")

    @property
    def hidden(self) -> int | None:
        hidden = mapping(self.config.get("model")).get("hidden")
        return hidden if isinstance(hidden, int) and (finite(hidden) or 0) > 0 else None

    @property
    def headline(self) -> str:
        return str(self.summary.get("headline") or "loss")

    @property
    def goal(self) -> str:
        return "max" if self.summary.get("goal") == "max" else "min"

    @property
    def baseline(self) -> float | None:
        return finite(self.summary.get("baseline"))

    @property
    def finished(self) -> bool:
        return self.summary.get("finished") is True

    @cached_property
    def steps(self) -> float | None:
        """How far it went."""
        if self.finished and (steps := finite(self.summary.get("steps"))):
            return steps
        known = (finite(value) for value in (self.summary.get("steps"), *(row.get("step") for row in self.rows)))
        return max((step for step in known if step is not None), default=None)

    @property
    def summary_is_stale(self) -> bool:
        """Whether lines were added since the summary, which is as old as the last checkpoint."""
        return not self.finished and (self.steps or 0) > (finite(self.summary.get("steps")) or 0)

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
        """The value of the last evaluation."""
        return finite(mapping(mapping(self._figures(weights).get("final")).get(split)).get(key))

    def metrics(self, split: str) -> list[str]:
        """What the last evaluation measured."""
        final = mapping(mapping(self._figures("raw").get("final")).get(split))
        return [key for key, value in final.items() if finite(value) is not None]

    def best(self, weights: str = "raw") -> float | None:
        """The best value of the headline metric on test."""
        return finite(mapping(self._figures(weights).get("best")).get("value"))

    def chosen(self, weights: str = "raw") -> float | None:
        """The headline metric on test at the epoch chosen on validation, where the run has a validation split."""
        return finite(mapping(self._figures(weights).get("best_by_valid")).get("value"))

    def at_chosen(self, split: str, metric: str, weights: str = "raw") -> float | None:
        """A metric at the evaluation that was best on validation."""
        step = finite(mapping(self._figures(weights).get("best_by_valid")).get("step"))
        steps, values = self.series(split, metric, weights)
        at = values[steps == step] if step is not None else values[:0]
        return float(at[-1]) if at.size else None

    def last(self, key: str) -> float | None:
        """The newest finite value of a key in any split, of the raw weights."""
        values = (finite(row.get(key)) for row in reversed(self.rows) if row.get("weights", "raw") == "raw")
        candidates = [finite(self.summary.get(key)), next((v for v in values if v is not None), None)]
        newest_first = candidates[::-1] if self.summary_is_stale else candidates
        return next((v for v in newest_first if v is not None), None)

    def _figures(self, weights: str) -> dict[str, Any]:
        """The figures of raw or averaged weights: the summary's, or those of the lines where it is stale."""
        told = self.summary if weights == "raw" else mapping(self.summary.get(weights))
        return {**told, **self._of_lines[weights]} if self.summary_is_stale else told

    @cached_property
    def _of_lines(self) -> dict[str, dict[str, Any]]:
        """By kind of weights, what the lines say whose numbers are finite."""
        numbers = ("step", "epoch", self.headline)
        whole = [row for row in self.rows if all(finite(row[key]) is not None for key in numbers if key in row)]
        found = {weights: figures(whole, self.headline, self.goal, weights) for weights in get_args(Weights)}
        return {weights: {k: v for k, v in asdict(of).items() if v} for weights, of in found.items()}


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
