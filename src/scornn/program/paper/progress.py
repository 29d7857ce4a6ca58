"""How a reproduction goes: one bar for all runs and one for the present, or plain lines where there is no terminal."""

import time
from typing import Any

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from scornn.program.train.progress import Figures, Screen, Silent

_PLAIN_SECONDS = 30.0


class Overview(Screen):
    """Counts runs. :meth:`begin` opens one, :meth:`display` shows its steps, :meth:`end` closes it with a word."""

    def __init__(self, title: str, total: int, quiet: bool = False) -> None:
        super().__init__(quiet)
        self.total, self.done = total, 0
        self.name, self.steps, self._shown = "", 1, 0.0
        self._all: Any = self.bar and self.bar.add_task(title, total=total)
        self._one: Any = self.bar and self.bar.add_task("", total=1)

    def columns(self) -> list[ProgressColumn]:
        counts = [MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn()]
        return [TextColumn("{task.description}"), BarColumn(None), *counts]

    def begin(self, name: str) -> None:
        """A run or measurement starts; ``steps`` is set when its length is known."""
        self.name, self._shown = name, time.perf_counter()
        if self.bar:
            self.bar.reset(self._one, description=name)
        else:
            self.say(f"[{self.done + 1}/{self.total}] {name}")

    def stepped(self, step: int, text: str = "") -> None:
        """It stands at a step."""
        now = time.perf_counter()
        if self.bar:
            self.bar.update(self._one, completed=step, total=self.steps, description=f"{self.name} {text}".strip())
            self.bar.update(self._all, completed=self.done + min(1.0, step / self.steps))
        elif now - self._shown > _PLAIN_SECONDS:
            self._shown = now
            self.say(f"[{self.done + 1}/{self.total}] {self.name}: step {step}/{self.steps} {text}".rstrip())

    def end(self, word: str) -> None:
        """It ended."""
        self.done += 1
        if self.bar:
            self.bar.update(self._all, completed=self.done)
        self.say(f"[{self.done}/{self.total}] {self.name}: {word}")

    def display(self, figures: Figures) -> Silent:
        """The trainer's view of this."""
        return _Run(figures, self)


class _Run(Silent):
    def __init__(self, figures: Figures, overview: Overview) -> None:
        super().__init__(figures)
        self._overview = overview

    def begin(self, step: int) -> None:
        super().begin(step)
        self._overview.steps = max(1, self.figures.total)
        if step:
            self._overview.say(f"{self._overview.name}: going on from step {step}")

    def stepped(self, step: int, loss: float, seconds: float) -> None:
        super().stepped(step, loss, seconds)
        self._overview.stepped(step, f"loss {loss:.4g}")
