"""How a sweep goes, in lines: each trial that has ended, the best so far, and where the running one stands."""

import time
from collections.abc import Mapping
from typing import Any

from scornn.program.progress import log
from scornn.program.sweep.study import Trials, ended

_SECONDS = 30.0


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


class Overview:
    """Says what has ended since it looked last; nothing if ``quiet``."""

    def __init__(self, trials: Trials, quiet: bool) -> None:
        self._trials, self._quiet = trials, quiet
        self._known: set[int] | None = None
        self._looked = time.monotonic()

    def say(self, text: str) -> None:
        """A line for people."""
        if not self._quiet:
            log.info(text)

    def refresh(self) -> None:
        """Look at the study."""
        if self._quiet:
            return
        every, best, metric = self._trials.all(), self._trials.best(), self._trials.plan.objective.metric
        done = {trial.user_attrs["ticket"]: trial for trial in every if ended(trial)}
        if self._known is None:
            self._known = set(done)
            if done:
                self.say(f"{len(done)} of {len(every)} trials are done")
        new = [number for number in done if number not in self._known]
        for number in new:
            self._known.add(number)
            trial = done[number]
            value = trial.value if trial.state.name == "COMPLETE" else None
            how = outcome(trial.user_attrs["outcome"], value, metric)
            self.say(f"[{len(self._known)}/{len(every)}] trial {number}, {settings(trial.params)}: {how}")
        if new and best:
            said = f"{metric} {best.value:.4g} (trial {best.user_attrs['ticket']}, {settings(best.params)})"
            self.say(f"  best {said}; {len(every) - len(done)} left")

    def stepped(self, number: int, step: int, total: int) -> None:
        """The trial that this process runs stands at a step."""
        if time.monotonic() - self._looked > _SECONDS:
            self._looked = time.monotonic()
            self.refresh()
            self.say(f"  trial {number}: step {step}/{total}")
