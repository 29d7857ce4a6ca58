"""The study of a sweep: one ticket for each of its trials, which Optuna hands out one by one.

Optuna closes the trial of a process that died as failed; another trial of the same ticket then goes on in its run
directory. Of two trials of one ticket, which two processes may enqueue at once, the first counts.
"""

import platform
import random
import time
from collections.abc import Sequence
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scornn.errors import UsageError
from scornn.program import durable
from scornn.program.sweep.plan import Plan, axes, config, difference, identity
from scornn.program.sweep.space import Value, grid
from scornn.program.sweep.storage import GRACE_SECONDS, open_storage, without_password
from scornn.program.train.config import to_json

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial, Trial

_IDENTITY = "scornn"
DUPLICATE = "duplicate"


def tickets(plan: Plan, given: Sequence[dict[str, Value]] = ()) -> list[dict[str, Value]]:
    """The values that each trial is given beforehand: all of a grid's, those ``given`` first; none of a sampler's."""
    if plan.sampler != "grid":
        return [{} for _ in range(plan.trials)]
    points = grid(axes(plan))
    if plan.trials < len(points):  # a part of the grid that is spread over it
        random.Random(plan.seed).shuffle(points)
    return [*given, *(point for point in points if point not in given)][: plan.trials]


def interrupted(trial: "FrozenTrial") -> bool:
    """True for a trial that was stopped or killed: it has not ended, and its run goes on."""
    return trial.state.name == "FAIL" and not str(trial.user_attrs.get("outcome")).startswith("refused")


def ended(trial: "FrozenTrial") -> bool:
    """True for a trial that came to its end, was pruned, diverged or was refused."""
    return trial.state.is_finished() and not interrupted(trial)


class Trials:
    """The trials of a plan in its storage; with ``write=False`` nothing there is changed."""

    def __init__(self, plan: Plan, directory: Path, *, write: bool = True) -> None:
        from optuna import create_study, load_study

        self.plan, self.axes, self.directory = plan, axes(plan), directory
        self._seen: dict[int, float] = {}
        self.study: Study
        given: dict[str, Any] = {
            "study_name": plan.study,
            "storage": open_storage(plan.storage, directory, write=write),
        }
        if write:
            given["direction"] = "maximize" if plan.objective.goal == "max" else "minimize"
            self.study = create_study(**given, load_if_exists=True)
            self._check_same()
            return
        try:
            self.study = load_study(**given)
        except KeyError:
            where = without_password(plan.storage)
            raise UsageError(f"{where} holds no study {plan.study!r}: {directory} has not begun") from None

    def _check_same(self) -> None:
        """Write down what a new study is of; refuse one that is of something else."""
        name, ours, theirs = self.plan.study, identity(self.plan), self.study.user_attrs.get(_IDENTITY)
        if theirs is None:
            if self.study.get_trials(deepcopy=False):
                raise UsageError(f"the study {name!r} is not one of `scornn sweep`; choose another --study")
            self.study.set_user_attr(_IDENTITY, ours)
        elif said := difference(theirs, ours):
            raise UsageError(f"the study {name!r} is of another config: {said}; choose another --study or --out")

    def fill(self) -> None:
        """Enqueue a trial for each ticket of the plan that has none."""
        known = {trial.user_attrs.get("ticket") for trial in self.study.get_trials(deepcopy=False)}
        given = [trial.system_attrs["fixed_params"] for trial in self.all()]
        for ticket, values in enumerate(tickets(self.plan, given)):
            if ticket not in known:
                self.study.enqueue_trial(values, user_attrs={"ticket": ticket})

    def all(self) -> list["FrozenTrial"]:
        """The trial that counts of each ticket, in the order of the tickets."""
        counted: dict[int, FrozenTrial] = {}
        for trial in self.study.get_trials(deepcopy=False):
            ticket = trial.user_attrs.get("ticket")
            if ticket is None or trial.user_attrs.get("outcome") == DUPLICATE:
                continue
            if ticket not in counted or interrupted(counted[ticket]):
                counted[ticket] = trial
        return [counted[ticket] for ticket in sorted(counted)]

    def best(self) -> "FrozenTrial | None":
        """The best of the trials that ran to their end."""
        done = [trial for trial in self.all() if trial.state.name == "COMPLETE"]
        rank = self.plan.objective.rank
        return min(done, key=lambda trial: rank(trial.value or 0.0, trial.user_attrs["ticket"]), default=None)

    def write_best(self) -> Path | None:
        """``best.json``: the config of the best trial, for ``scornn train --config``."""
        best, path = self.best(), self.directory / "best.json"
        if best is None:
            return None
        durable.write_text(path, to_json(config(self.plan, best.params)))
        return path

    def requeue(self) -> None:
        """Let the trials of processes that stopped or died wait again. Only for a process that runs none itself."""
        from optuna.exceptions import UpdateFinishedTrialError
        from optuna.storages import RetryHeartbeatStaleTrialCallback, fail_stale_trials
        from optuna.trial import TrialState

        fail_stale_trials(self.study)
        for trial in self.all():
            if trial.state.name == "RUNNING" and self.is_dead(trial):
                with suppress(UpdateFinishedTrialError):  # it has ended at this moment
                    self.study.tell(trial.number, state=TrialState.FAIL, skip_if_finished=True)
        again = RetryHeartbeatStaleTrialCallback(inherit_intermediate_values=True)
        for trial in filter(interrupted, self.all()):
            again(self.study, deepcopy(trial))

    def is_dead(self, trial: "FrozenTrial") -> bool:
        """True where the process of a running trial is known to be gone.

        On this machine its lock tells at once, from elsewhere Optuna's heartbeat. One that died before it could write
        down either has been seen without them for as long.
        """
        machine, lock, number = trial.user_attrs.get("owner", ("", "", None))
        if number != trial.number:
            return time.monotonic() - self._seen.setdefault(trial.number, time.monotonic()) > GRACE_SECONDS
        try:
            with open(lock, "rb") as file:
                return machine == platform.node() and durable.hold(file.fileno(), shared=True)
        except OSError:
            return False

    def sampler(self, ticket: int) -> Any:
        """Seeded by the ticket: what is drawn does not depend on which process draws it."""
        from optuna.samplers import RandomSampler, TPESampler

        seed = random.Random(f"{self.plan.seed} {ticket}").getrandbits(32)
        return TPESampler(seed=seed) if self.plan.sampler == "tpe" else RandomSampler(seed=seed)

    def pruner(self, total: int) -> Any:
        """The pruner for runs of this many steps."""
        from optuna.pruners import MedianPruner, NopPruner, SuccessiveHalvingPruner

        if self.plan.prune == "halving":
            return SuccessiveHalvingPruner(min_resource=max(1, total // 8), reduction_factor=2)
        return MedianPruner(4, n_warmup_steps=total // 6) if self.plan.prune == "median" else NopPruner()

    def run_path(self, trial: "FrozenTrial | Trial") -> Path:
        """Its run directory: here, or where its first process made it if that can be seen from here."""
        here = self.directory / "trials" / f"{trial.user_attrs['ticket']:04}"
        made = trial.user_attrs.get("run")
        return Path(made) if made and not here.exists() and Path(made, "config.json").is_file() else here

    def plugin_code(self) -> dict[str, list[int]]:
        """The code of the plugins that the trials' runs name, as its digest, and the trials of each."""
        made: dict[str, list[int]] = {}
        for trial in self.all():
            numerics = durable.read_object(self.run_path(trial) / "summary.json").get("numerics")
            if isinstance(numerics, dict) and isinstance(code := numerics.get("plugins"), str):
                made.setdefault(code, []).append(trial.user_attrs["ticket"])
        return made
