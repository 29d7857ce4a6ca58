"""How training goes, for people: a live bar in a terminal, plain lines elsewhere, nothing when asked for silence.

Warnings go to standard error, whatever was asked for. A stream that cannot be written to never costs a run.
"""

import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self, TextIO

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.progress import Progress, ProgressColumn

Evaluation = Mapping[str, Mapping[str, float]]
"""Every metric of every split."""

_PLAIN_SECONDS = 10.0
_LIVE_SECONDS = 0.1


@dataclass
class Figures:
    """What is shown: the loss against the baseline, the newest evaluation, speed, time left, orthogonality."""

    total: int
    baseline: float | None
    headline: str
    step: int = 0
    loss: float | None = None
    evaluation: Evaluation = field(default_factory=dict)
    average: Evaluation = field(default_factory=dict)
    orthogonality: float | None = None
    trained: float = 0.0
    _started: float = field(default_factory=time.perf_counter)
    _first_step: int | None = None

    def rates(self) -> tuple[float, float] | None:
        """Steps per second of training, and of all that passed since the start of this process, evaluations too."""
        made = self.step - (self._first_step or 0)
        passed = time.perf_counter() - self._started
        return (made / (self.trained or passed), made / passed) if made > 0 and passed > 0 else None

    def begin(self, step: int) -> None:
        """Training (re)starts at this step, now."""
        self.step = self._first_step = step
        self._started, self.trained = time.perf_counter(), 0.0

    def text(self) -> str:
        """The figures in one line."""
        parts = []
        if self.loss is not None:
            against = "" if self.baseline is None else f" (baseline {self.baseline:.4g})"
            parts.append(f"loss {self.loss:.4g}{against}")
        for split in ("valid", "test"):
            if self.headline in self.evaluation.get(split, {}):
                text = f"{split} {self.headline} {self.evaluation[split][self.headline]:.4g}"
                averaged = self.average.get(split, {}).get(self.headline)
                parts.append(text if averaged is None else f"{text} (averaged {averaged:.4g})")
        if rates := self.rates():
            parts.append(f"{rates[0]:.3g} steps/s")
            parts.append(f"{clock(time.perf_counter() - self._started)} elapsed")
            parts.append(f"{clock((self.total - self.step) / rates[1])} left")
        if self.orthogonality is not None:
            parts.append(f"‖WᵀW−I‖ {self.orthogonality:.1e}")
        return " · ".join(parts)


class Silent:
    """Shows nothing: the base of the others, and what every process but the first uses."""

    def __init__(self, figures: Figures) -> None:
        self.figures = figures

    def begin(self, step: int) -> None:
        """Training starts or goes on at this step."""
        self.figures.begin(step)

    def stepped(self, step: int, loss: float, seconds: float) -> None:
        """A step was made, in so many seconds."""
        self.figures.step, self.figures.loss = step, loss
        self.figures.trained += seconds

    def evaluated(self, metrics: Evaluation, orthogonality: float | None, average: Evaluation | None = None) -> None:
        """An evaluation was made, of the averaged weights too where there are any."""
        self.figures.evaluation, self.figures.orthogonality = metrics, orthogonality
        self.figures.average = average or {}

    def say(self, text: str) -> None:
        """A line for people."""

    def close(self) -> None:
        """Leave the terminal as it was."""


class Shown(Silent):
    """On standard output: in a terminal a bar and a line of figures under it, elsewhere lines, one at every evaluation
    and one every ten seconds.
    """

    def __init__(self, figures: Figures) -> None:
        super().__init__(figures)
        self._bar, self._last = None, time.perf_counter()
        if sys.stdout.isatty():
            from rich.progress import BarColumn, MofNCompleteColumn, TaskProgressColumn

            columns = (MofNCompleteColumn(), BarColumn(None), TaskProgressColumn())
            self._bar = make_bar(columns, lambda: [figures.text()])
            self._task = self._bar.add_task("", total=figures.total)

    def begin(self, step: int) -> None:
        super().begin(step)
        if self._bar:
            self._bar.update(self._task, completed=step)
            self._bar.start()

    def stepped(self, step: int, loss: float, seconds: float) -> None:
        super().stepped(step, loss, seconds)
        if time.perf_counter() - self._last > (_LIVE_SECONDS if self._bar else _PLAIN_SECONDS):
            self._show()

    def evaluated(self, metrics: Evaluation, orthogonality: float | None, average: Evaluation | None = None) -> None:
        super().evaluated(metrics, orthogonality, average)
        if not self._bar:
            self._show()

    def _show(self) -> None:
        self._last = time.perf_counter()
        if self._bar:
            self._bar.update(self._task, completed=self.figures.step)
        else:
            self.say(f"step {self.figures.step}/{self.figures.total} · {self.figures.text()}")

    def say(self, text: str) -> None:
        if self._bar:
            self._bar.console.print(text, markup=False, highlight=False)
        else:
            tell(text)

    def close(self) -> None:
        if self._bar:
            self._show()
            self._bar.stop()


def tell(text: str, stream: TextIO | None = None) -> None:
    """A line that may get lost: nobody may read it, the disk behind it may be full; the run's files have it all."""
    stream = stream or sys.stdout
    try:
        print(text, file=stream, flush=True)
    except OSError:
        with suppress(OSError, ValueError), open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), stream.fileno())  # what is still to be flushed goes there
    except UnicodeEncodeError:
        tell(text.encode("ascii", "replace").decode(), stream)
    except ValueError:  # closed
        pass


def warn(text: str) -> None:
    """What a person must hear, also from a quiet run."""
    tell(f"warning: {text}", sys.stderr)


class Screen:
    """Shows the work of several runs: a bar in a terminal, lines elsewhere, nothing if ``quiet``."""

    def __init__(self, quiet: bool) -> None:
        self.quiet = quiet
        self.bar = None if quiet or not sys.stdout.isatty() else make_bar(self.columns(), self.lines)

    def columns(self) -> "Iterable[ProgressColumn]":
        """Of the bar."""
        raise NotImplementedError

    def lines(self) -> list[str]:
        """What stands under the bar."""
        return []

    def say(self, text: str) -> None:
        """A line for people."""
        if self.bar:
            self.bar.console.print(text, markup=False, highlight=False)
        elif not self.quiet:
            tell(text)

    def __enter__(self) -> Self:
        if self.bar:
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar:
            self.bar.stop()


def clock(seconds: float) -> str:
    """``3725`` as "1:02:05"."""
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def make_bar(columns: "Iterable[ProgressColumn]", lines: Callable[[], Iterable[str]]) -> "Progress":
    """A live bar of these columns, and under it the lines as they are at the moment."""
    from rich.progress import Progress
    from rich.text import Text

    class Bar(Progress):
        def get_renderables(self) -> "Iterable[RenderableType]":
            yield self.make_tasks_table(self.tasks)
            yield from (Text(line, overflow="fold") for line in lines())

    return Bar(*columns, expand=True, refresh_per_second=4)
