"""One process of a sweep: claims a trial, trains it in its run directory, closes it, until none is left."""

import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scornn.errors import DivergedError, RunInUseError, UsageError
from scornn.program import durable
from scornn.program.sweep import plan as plans
from scornn.program.sweep import rho
from scornn.program.sweep.owner import Heartbeat
from scornn.program.sweep.progress import Overview
from scornn.program.sweep.space import Value
from scornn.program.sweep.study import Trials
from scornn.program.train import checkpoint, program
from scornn.program.train.config import Config, to_json
from scornn.program.train.identity import Identity
from scornn.program.train.progress import Evaluation, Figures, Silent
from scornn.program.train.run import read_config
from scornn.program.train.signals import StopRequest

if TYPE_CHECKING:
    from optuna.trial import Trial

_REPORTS = 16
"""Looks at the training loss of a run that may be pruned by it."""
_MOST_ATTEMPTS = 5
"""Processes that may die over a trial without bringing it on by a checkpoint."""
_POLL_SECONDS = 0.5
_IN_USE_SECONDS = 30.0
"""Between two tries at a trial whose process lives after all: each builds the network before it meets the lock."""


class Worker:
    """Works off a study's trials, alone or beside other processes."""

    def __init__(self, trials: Trials, overview: Overview, tensorboard: bool | None) -> None:
        self.trials, self.overview, self.tensorboard = trials, overview, tensorboard

    def run(self) -> int:
        """Until every trial is closed, here or elsewhere. Returns the signal that came before, or 0."""
        with StopRequest() as stop:
            while not stop:
                trial = self.trials.claim()
                if trial is not None:
                    number = self._work(trial, stop)
                    self.overview.refresh()
                    if number:
                        return number
                elif all(trial.state.is_finished() for trial in self.trials.all()):
                    return 0
                else:  # others run the last ones, and may die over them
                    self.overview.refresh()
                    time.sleep(_POLL_SECONDS)
            return stop.signal or signal.SIGTERM

    def _work(self, trial: "Trial", stop: StopRequest) -> int:
        trials, trial_id = self.trials, trial._trial_id
        with trials.errors():
            drawn = {axis.key: axis.draw(trial) for axis in trials.axes}
            attempt = trials.storage.get_trial(trial_id).user_attrs.get("attempt")
        try:
            chosen = self._choose_rho(trial, drawn)
            with trials.errors():
                frozen = trials.storage.get_trial(trial_id)
            config = plans.config(trials.plan, trials.values(frozen))
            same = _sameness(config)
            path = trials.run_path(frozen)
            _check_same(path, same, config.plugins)
            twin = next((t for t in trials.best(1 << 30) if t.user_attrs.get("config") == same), None)
            if twin is not None:
                word = f"{chosen}as trial {twin.number}, which has the same settings"
                with trials.errors():
                    trial.set_user_attr("test", twin.user_attrs.get("test"))
                trials.close(trial_id, "COMPLETE", word, twin.value)
                return 0
            if self._gives_up(trial, attempt, path):
                return 0
            with trials.errors():
                trial.set_user_attr("config", same)
                trial.set_user_attr("run", str(path.resolve()))
            return self._train(trial, config, path, stop, chosen.removesuffix("; ") or "done")
        except DivergedError as error:
            trials.close(trial_id, "PRUNED", f"diverged: {error}")  # samplers rank it below all others
        except RunInUseError:  # a process that was taken for dead: it closes the trial, or dies and lets go
            with trials.errors():
                trial.set_user_attr("attempt", attempt)  # nobody died over it
            _wait(_IN_USE_SECONDS, stop)
        except UsageError as error:
            trials.close(trial_id, "FAIL", f"refused: {error}")
        except BaseException:
            trials.release(trial_id)
            raise
        return 0

    def _choose_rho(self, trial: "Trial", drawn: Mapping[str, Value]) -> str:
        """Once in a trial where it is to be found, and how it was."""
        trials, known = self.trials, trial.user_attrs.get("rho")
        if drawn.get(rho.KEY) != rho.AUTO:
            return ""
        if known is None:
            with self._heartbeat(trial):
                known = rho.choose(plans.config(trials.plan, {**drawn, rho.KEY: "n/2"}))
            with trials.errors():
                trial.set_user_attr("rho", known)
        return f"{known[1]}; "

    def _heartbeat(self, trial: "Trial") -> Heartbeat:
        def beat(number: int) -> None:
            self.trials.storage.set_trial_user_attr(trial._trial_id, "beat", [number, *self.overview.at])

        return Heartbeat(beat)

    def _train(self, trial: "Trial", config: Config, path: Path, stop: StopRequest, done: str) -> int:
        trials, trial_id = self.trials, trial._trial_id
        watches: list[Watch] = []

        def watch(figures: Figures) -> Silent:
            watches.append(Watch(figures, trial, trials, self.overview, stop))
            return watches[0]

        with self._heartbeat(trial):
            if (path / "config.json").is_file():
                data = Path(config.data) if config.data else None  # this process may have them elsewhere
                result = program.resume(
                    path, data=data, plugins=config.plugins, display=watch, tensorboard=self.tensorboard
                )
            else:
                result = program.start(config, path, display=watch, tensorboard=self.tensorboard)
        if result.signal and not (watches[0].pruned and result.signal == signal.SIGTERM):
            with trials.errors():
                trial.set_user_attr("attempt", None)
            trials.release(trial_id)
            return result.signal
        if result.signal:
            trials.close(trial_id, "PRUNED", f"pruned at step {result.summary['steps']}")
            return 0
        value, test = figures_of(result.summary, trials.plan.weights, trials.plan.objective)
        with trials.errors():
            trial.set_user_attr("test", test)
        trials.close(trial_id, "COMPLETE", done, value)
        write_best(trials)
        return 0

    def _gives_up(self, trial: "Trial", before: Any, path: Path) -> bool:
        """Whether too many processes have died over a trial; another attempt is counted if not."""
        found = path / "checkpoints"
        step = max(checkpoint.steps(found), default=0) if found.is_dir() else 0
        count = before[1] + 1 if before and before[0] == step else 1
        if count > _MOST_ATTEMPTS:
            self.trials.close(trial._trial_id, "FAIL", f"{_MOST_ATTEMPTS} processes died over it at step {step}")
            return True
        with self.trials.errors():
            trial.set_user_attr("attempt", [step, count])
        return False


def _wait(seconds: float, stop: StopRequest) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end and not stop:
        time.sleep(_POLL_SECONDS)


class Watch(Silent):
    """What a trial's training shows: to the overview where it stands, to the pruner how well.

    The pruner is given the validation split's metric at each evaluation, or the training loss where there is no such
    split. To end the run it raises SIGTERM, which saves as it does for people: the run can be resumed by hand.
    """

    def __init__(self, figures: Figures, trial: "Trial", trials: Trials, overview: Overview, stop: StopRequest) -> None:
        super().__init__(figures)
        self.pruned = False
        self._trial, self._trials, self._overview, self._stop = trial, trials, overview, stop
        self._every = max(1, figures.total // _REPORTS)
        self._losses: list[float] = []
        trials.study.pruner = trials.pruner(figures.total)
        with trials.errors():
            self._reported = set(trials.storage.get_trial(trial._trial_id).intermediate_values)

    def stepped(self, step: int, loss: float, seconds: float) -> None:
        super().stepped(step, loss, seconds)
        self._overview.stepped(self._trial.number, step, self.figures.total)
        if self._stop:  # it came before the training could hear it
            signal.raise_signal(self._stop.signal or signal.SIGTERM)
            self._stop.signal = None
        if self._trials.plan.objective.split != "valid":
            self._losses.append(loss)
            if step % self._every == 0:
                mean = sum(self._losses) / len(self._losses)
                self._losses.clear()
                self._report(step, -mean if self._trials.plan.objective.goal == "max" else mean)

    def evaluated(self, metrics: Evaluation, orthogonality: float | None, average: Evaluation | None = None) -> None:
        super().evaluated(metrics, orthogonality, average)
        chosen = average if self._trials.plan.weights == "average" and average else metrics
        if self._trials.plan.objective.split == "valid":
            self._report(self.figures.step, chosen["valid"][self._trials.plan.objective.metric])

    def _report(self, step: int, value: float) -> None:
        if self._trials.plan.prune == "none" or step in self._reported or step >= self.figures.total or self.pruned:
            return
        self._reported.add(step)
        with self._trials.errors():
            self._trial.report(value, step)
            self.pruned = self._trial.should_prune()
        if self.pruned:
            signal.raise_signal(signal.SIGTERM)


def figures_of(summary: Mapping[str, Any], weights: str, objective: plans.Objective) -> tuple[float, float]:
    """A finished run's value, and its headline metric on the test split at the same step."""
    if weights == "average" and "average" not in summary:
        raise UsageError(f"the weights of {summary['model']} are not averaged, but averaged ones are to be judged")
    figures = summary["average"] if weights == "average" else summary
    if objective.split == "valid":
        return float(figures["best_by_valid"]["valid"]), float(figures["best_by_valid"]["value"])
    last = float(figures["final"]["test"][objective.metric])
    return last, last


def write_best(trials: Trials) -> Path | None:
    """``best.json``: the config of the best trial, for ``scornn train --config``."""
    with trials.errors():
        best = trials.best()
    if not best:
        return None
    path = trials.directory / "best.json"
    text = to_json(plans.config(trials.plan, trials.values(best[0])))
    with durable.storage_errors(path):
        if not path.is_file() or path.read_bytes() != text.encode():
            durable.write_text(path, text)
    return path


def _sameness(config: Config) -> str:
    """Equal for trials that would train alike; on how many threads does not matter."""
    return Identity.of(config).digest("study")


def _check_same(path: Path, same: str, plugins: Sequence[str]) -> None:
    if (path / "config.json").is_file() and _sameness(read_config(path, plugins)) != same:
        raise UsageError(f"{path} holds a run of other settings; remove it, or choose another --out")
