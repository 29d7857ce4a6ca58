"""How a sweep goes: trials done, the best so far with its values, trials and time left."""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from scornn.program.progress import Bar, clock
from scornn.program.sweep.study import Trials

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

_PLAIN_SECONDS = 30.0
_MOST_RUNNING = 4


def settings(values: Mapping[str, Any]) -> str:
    """Values by the names that people say.

    >>> settings({"optimizer.rest.lr": 0.001, "optimizer.recurrent.lr": 1e-05, "model.options.rho": "n/2"})
    'rate = 0.001, rate of A = 1e-05, rho = n/2'
    """
    from scornn.program.report.settings import setting_name  # with matplotlib, when the first trial has ended

    said = {key: f"{value:.4g}" if isinstance(value, float) else value for key, value in values.items()}
    return ", ".join(f"{setting_name(key)} = {value}" for key, value in said.items())


def outcome(word: str, value: float | None, metric: str) -> str:
    """How a trial ended, in words."""
    return word if value is None else f"{metric} {value:.4g}{'' if word == 'done' else f' ({word})'}"


class Overview(Bar):
    """Shows a sweep: a bar in a terminal, a line for each trial elsewhere, nothing if ``quiet``."""

    def __init__(self, trials: Trials, quiet: bool = False) -> None:
        self._trials = trials
        self._known: set[int] | None = None
        self._best, self._left, self._mean = "", 0, 0.0
        self._running: dict[int, tuple[int, int]] = {}
        self._own: int | None = None
        self._began = (0.0, 0)
        self._shown = time.monotonic()
        self.at = (0, 0)
        """The step of the trial that this process runs, and how many it has."""
        super().__init__(every=_PLAIN_SECONDS, shown=not quiet)

    def __enter__(self) -> Self:
        self.refresh()
        return super().__enter__()

    def lines(self) -> list[str]:
        """What stands under the bar: the best so far, what is left, and where the running trials stand."""
        parts = [self._best, f"{self._left} {'trial' if self._left == 1 else 'trials'} left", self._time_left()]
        running = [f"trial {number}: step {step}/{total}" for number, (step, total) in self._running.items() if total]
        more = [f"{len(running) - _MOST_RUNNING} more"] if len(running) > _MOST_RUNNING else []
        return [" · ".join(filter(None, line)) for line in (parts, [*running[:_MOST_RUNNING], *more]) if any(line)]

    def refresh(self) -> None:
        """Look at the storage, and say what has ended since."""
        if not self.shown:
            return
        with self._trials.errors():
            trials, best = self._trials.all(), self._trials.best()
        ended = [trial for trial in trials if trial.state.is_finished()]
        self._take(trials, ended, best)
        self.total = len(trials)
        if self.live:
            self.update(len(ended), "\n".join(self.lines()))
        if self._known is None:
            self._known = {trial.number for trial in ended}
            if ended:
                self.say(f"{len(ended)} of {len(trials)} trials are done")
        for trial in ended:
            if trial.number not in self._known:
                self._known.add(trial.number)
                word = str(trial.user_attrs.get("outcome", trial.state.name.lower()))
                value = trial.value if trial.state.name == "COMPLETE" else None
                how = outcome(word, value, self._trials.plan.objective.metric)
                self.say(f"[{len(self._known)}/{len(trials)}] trial {trial.number}, {settings(trial.params)}: {how}")
                if not self.live:
                    self.say(f"  {self.lines()[0]}")

    def stepped(self, number: int, step: int, total: int) -> None:
        """The trial that this process runs stands at a step."""
        now = time.monotonic()
        if number != self._own:
            self._own, self._began = number, (now, step)
        self.at = self._running[number] = (step, total)
        if not self.live and now - self._shown > _PLAIN_SECONDS:
            self._shown = now
            self.say(f"  {self.lines()[-1]}")

    def _take(self, trials: list["FrozenTrial"], ended: list["FrozenTrial"], best: list["FrozenTrial"]) -> None:
        if best:
            shown = f"{self._trials.plan.objective.metric} {best[0].value:.4g}"
            self._best = f"best {shown} (trial {best[0].number}, {settings(best[0].params)})"
        self._left = len(trials) - len(ended)
        spans = [t.duration.total_seconds() for t in ended if t.duration is not None]
        self._mean = sum(spans) / len(spans) if spans else 0.0
        beats = {t.number: t.user_attrs.get("beat") for t in trials if t.state.name == "RUNNING"}
        self._running = {n: (beat[1], beat[2]) if isinstance(beat, list) else (0, 0) for n, beat in beats.items()}
        if self._own in self._running:
            self._running[self._own] = self.at

    def _time_left(self) -> str:
        (since, first), (step, total) = self._began, self.at
        pace = self._mean
        if not pace and step > first:
            pace = (time.monotonic() - since) / (step - first) * total
        if not pace or not self._left:
            return ""
        done = sum(step / total for step, total in self._running.values() if total)
        return f"about {clock(pace * (self._left - done) / max(1, len(self._running)))} left"
