"""One process of a sweep: the objective of Optuna's loop, and the loop until every trial has ended."""

import platform
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scornn.errors import DivergedError, UsageError
from scornn.program import durable
from scornn.program.sweep import plan as plans
from scornn.program.sweep.progress import Overview
from scornn.program.sweep.study import DUPLICATE, Trials, ended
from scornn.program.train import program
from scornn.program.train.config import Config
from scornn.program.train.identity import Identity
from scornn.program.train.progress import Evaluation, Figures, Silent
from scornn.program.train.run import read_config
from scornn.program.train.signals import StopRequest

if TYPE_CHECKING:
    from optuna.trial import Trial

_REPORTS = 16
"""Looks at the training loss of a run that may be pruned by it."""
_POLL_SECONDS = 0.5


class Stopped(Exception):
    """A signal asked this process to stop; the trial goes on another time."""


class Surplus(Exception):
    """This trial is none of the plan's: another process took the last one, or has the same."""


class Worker:
    """Works off a study's trials, alone or beside other processes."""

    def __init__(self, trials: Trials, overview: Overview, tensorboard: bool | None) -> None:
        self.trials, self.overview, self.tensorboard = trials, overview, tensorboard
        self.stop = StopRequest()
        self._taken_away = False
        self._lock = ExitStack()

    def run(self) -> int:
        """Until every trial has ended, here or elsewhere. Returns the signal that came before, or 0."""
        with self.stop:
            while not self.stop:
                self.trials.requeue()
                self.overview.refresh()
                every = self.trials.all()
                if any(trial.state.name == "WAITING" for trial in every):
                    self._run_one()
                    self.trials.write_best()
                elif all(map(ended, every)):
                    return 0
                else:  # others run the last ones, and may die over them
                    time.sleep(_POLL_SECONDS)
        self.trials.requeue()
        return self.stop.signal or 0

    def _run_one(self) -> None:
        try:
            with self._lock:  # until Optuna has closed the trial
                self.trials.study.optimize(self._objective, n_trials=1, catch=(UsageError, Surplus))
        except Stopped:
            pass
        except ValueError:  # Optuna cannot close a trial that another process took for dead and closed
            if not self._taken_away:
                raise

    def _objective(self, trial: "Trial") -> float:
        from optuna import TrialPruned
        from optuna.exceptions import UpdateFinishedTrialError

        trials, self._taken_away = self.trials, False
        if trial.number not in {own.number for own in trials.all()}:
            trial.set_user_attr("outcome", DUPLICATE)
            raise Surplus
        try:
            trials.study.sampler = trials.sampler(trial.user_attrs["ticket"])
            config = plans.config(trials.plan, {axis.key: axis.draw(trial) for axis in trials.axes})
            value, test, outcome = self._copied(trial) or self._trained(trial, config)
            trial.set_user_attr("test", test)
            trial.set_user_attr("outcome", outcome)
            return value
        except DivergedError as error:
            trial.set_user_attr("outcome", f"diverged: {error}")
            raise TrialPruned from error  # samplers rank it below all others
        except UsageError as error:
            trial.set_user_attr("outcome", f"refused: {error}")
            raise
        except UpdateFinishedTrialError:
            self._taken_away = True
            raise

    def _copied(self, trial: "Trial") -> tuple[float, float, str] | None:
        """The figures of a finished trial that drew the same values, and a word on that."""
        for done in self.trials.all():
            if done.state.name == "COMPLETE" and done.params == trial.params:
                same = f"as trial {done.user_attrs['ticket']}, which has the same settings"
                return done.value or 0.0, done.user_attrs["test"], same
        return None

    def _trained(self, trial: "Trial", config: Config) -> tuple[float, float, str]:
        """The trial's value, its figure on the test split, and a word, from its run directory."""

        def watch(figures: Figures) -> Silent:
            return Watch(figures, trial, self)

        path = self.trials.run_path(trial)
        self._hold(trial, path)
        if (path / "config.json").is_file():
            if not Identity.of(config).same(Identity.of(read_config(path, config.plugins)), "study"):
                raise UsageError(f"{path} holds a run of other settings; remove it, or choose another --out")
            data = Path(config.data) if config.data else None  # this process may have them elsewhere
            result = program.resume(
                path, data=data, plugins=config.plugins, display=watch, tensorboard=self.tensorboard
            )
        else:
            result = program.start(config, path, display=watch, tensorboard=self.tensorboard)
        if result.signal:
            self.stop.signal = result.signal
            raise Stopped
        return *figures_of(result.summary, self.trials.plan), "done"

    def _hold(self, trial: "Trial", path: Path) -> None:
        """Hold a lock that tells others on this machine that the trial's process lives."""
        durable.make_directory(path.parent)
        lock = path.with_name(f".{path.name}.lock").resolve()
        with durable.storage_errors(lock):
            file = self._lock.enter_context(open(lock, "ab"))  # noqa: SIM115
        while not durable.hold(file.fileno()):  # a process that was taken for dead
            if self.stop:
                raise Stopped
            time.sleep(_POLL_SECONDS)
        trial.set_user_attr("owner", [platform.node(), str(lock), trial.number])
        trial.set_user_attr("run", str(path.resolve()))


class Watch(Silent):
    """What a trial's training shows: to the overview where it stands, to the pruner how well.

    The pruner is given the validation split's metric at each evaluation, or the training loss where there is no such
    split. A run that it ends can be resumed by hand.
    """

    def __init__(self, figures: Figures, trial: "Trial", worker: Worker) -> None:
        super().__init__(figures)
        self._trial, self._ticket = trial, trial.user_attrs["ticket"]
        self._worker, self._plan = worker, worker.trials.plan
        self._every = max(1, figures.total // _REPORTS)
        self._losses: list[float] = []
        study = worker.trials.study
        study.pruner = worker.trials.pruner(figures.total)
        self._reported = set(study.get_trials(deepcopy=False)[trial.number].intermediate_values)

    def stepped(self, step: int, loss: float, seconds: float) -> None:
        super().stepped(step, loss, seconds)
        self._worker.overview.stepped(self._ticket, step, self.figures.total)
        if self._worker.stop:  # it came before the training could hear it
            raise Stopped
        if self._plan.objective.split == "test":
            self._losses.append(loss)
            if step % self._every == 0:
                mean = sum(self._losses) / len(self._losses)
                self._losses.clear()
                self._report(step, -mean if self._plan.objective.goal == "max" else mean)

    def evaluated(self, metrics: Evaluation, orthogonality: float | None, average: Evaluation | None = None) -> None:
        super().evaluated(metrics, orthogonality, average)
        if self._plan.objective.split == "valid":
            chosen = average if self._plan.weights == "average" and average else metrics
            self._report(self.figures.step, chosen["valid"][self._plan.objective.metric])

    def _report(self, step: int, value: float) -> None:
        from optuna import TrialPruned

        if self._plan.prune == "none" or step in self._reported or step >= self.figures.total:
            return
        self._trial.report(value, step)
        if self._trial.should_prune():
            self._trial.set_user_attr("outcome", f"pruned at step {step}")
            raise TrialPruned


def figures_of(summary: Mapping[str, Any], plan: plans.Plan) -> tuple[float, float]:
    """A finished run's value, and its headline metric on the test split at the same step."""
    if plan.weights == "average" and "average" not in summary:
        raise UsageError(f"the weights of {summary['model']} are not averaged, but averaged ones are to be judged")
    figures = summary["average"] if plan.weights == "average" else summary
    if plan.objective.split == "valid":
        return float(figures["best_by_valid"]["valid"]), float(figures["best_by_valid"]["value"])
    last = float(figures["final"]["test"][plan.objective.metric])
    return last, last
