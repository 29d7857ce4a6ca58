"""A study and its trials: tickets for the requested total, claimed one by one, taken back from processes that died.

Every trial is put into the storage as waiting when the sweep is made, so that the total is a fact there and not an
agreement among processes. A process claims one (waiting to running, which storages grant to one process alone), runs
it, and closes it. A trial whose process is gone is put back to waiting with its values and its run directory.
"""

import random
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from scornn.errors import UsageError
from scornn.program import durable
from scornn.program.sweep import rho
from scornn.program.sweep.owner import Watcher
from scornn.program.sweep.plan import Plan, axes, data_identity, differences, identity
from scornn.program.sweep.space import Value, grid
from scornn.program.sweep.storage import (
    database_errors,
    held,
    is_database,
    journal_path,
    open_storage,
    without_password,
)

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial, Trial

_ATTRIBUTE = "scornn"
State = Literal["WAITING", "RUNNING", "COMPLETE", "PRUNED", "FAIL"]
"""Optuna's names of what may become of a trial."""


def tickets(plan: Plan, given: Sequence[dict[str, Value]] = ()) -> list[dict[str, Value]]:
    """The values that each trial is given beforehand: all of a grid's, those ``given`` first; none of a sampler's."""
    if plan.sampler != "grid":
        return [{} for _ in range(plan.trials)]
    points = grid(axes(plan))
    if plan.trials < len(points):  # a part of the grid that is spread over it
        random.Random(plan.seed).shuffle(points)
    return [*given, *(point for point in points if point not in given)][: plan.trials]


class Trials:
    """The study of a plan, in its storage; with ``write=False`` one that is there, of which nothing is changed."""

    def __init__(self, plan: Plan, directory: Path, *, write: bool = True) -> None:
        self.plan, self.axes, self.directory = plan, axes(plan), directory
        self.storage = open_storage(plan.storage, directory, write=write)
        self._watcher = Watcher()
        with self.errors():
            self.study = self._open(write)
            self._mark(write)

    def _open(self, write: bool) -> "Study":
        """The study that is there. Only else a new one: to ask for that writes to a journal."""
        from optuna import create_study, load_study
        from optuna.samplers import RandomSampler

        any_sampler = RandomSampler(seed=0)  # until a trial is claimed nothing is drawn
        given: dict[str, Any] = {"study_name": self.plan.study, "storage": self.storage, "sampler": any_sampler}
        try:
            return load_study(**given)
        except KeyError:
            if write:
                maximize = self.plan.objective.goal == "max"
                return create_study(**given, direction="maximize" if maximize else "minimize", load_if_exists=True)
            where = without_password(self.plan.storage)
            raise UsageError(f"{where} holds no study {self.plan.study!r}: {self.directory} has not begun") from None

    def errors(self) -> Any:
        """Around whatever touches the storage."""
        where = self.plan.storage
        if is_database(where):
            return database_errors(where)
        return durable.storage_errors(journal_path(where, self.directory))

    def _mark(self, write: bool) -> None:
        """Write what the study is of, or refuse one that is of something else."""
        ours = identity(self.plan) | (data_identity(self.plan) if write else {})
        theirs = self.study.user_attrs.get(_ATTRIBUTE)
        if theirs is None:
            if self.study.get_trials(deepcopy=False):
                raise UsageError(f"the study {self.plan.study!r} is not one of `scornn sweep`; choose another --study")
            if write:
                self.study.set_user_attr(_ATTRIBUTE, ours)
            return
        if not write:  # a report needs no data: nothing of them is compared
            theirs = {key: value for key, value in theirs.items() if key in ours}
        if differ := differences(theirs, ours):
            raise UsageError(
                f"the study {self.plan.study!r} is of another config: {differ}; choose another --study or --out"
            )

    def fill(self) -> None:
        """Put a ticket for each trial of the plan into the storage, where it is not there yet."""
        with self.errors():
            known = {trial.user_attrs.get("ticket") for trial in self.study.get_trials(deepcopy=False)}
            given = [trial.system_attrs["fixed_params"] for trial in self.all()]
            for number, values in enumerate(tickets(self.plan, given)):
                if number not in known:
                    self.study.enqueue_trial(values, user_attrs={"ticket": number})
            # Two processes may have filled at once: of each ticket the first one counts.
            counted = {trial.number for trial in self.all()}
            for trial in self.study.get_trials(deepcopy=False):
                if trial.state.name == "WAITING" and trial.number not in counted:
                    self.close(trial._trial_id, "FAIL", "duplicate")

    def all(self) -> list["FrozenTrial"]:
        """The trials that count, in the order of their numbers."""
        first: dict[Any, FrozenTrial] = {}
        for trial in self.study.get_trials(deepcopy=False):
            if "ticket" in trial.user_attrs:
                first.setdefault(trial.user_attrs["ticket"], trial)
        return list(first.values())

    def claim(self) -> "Trial | None":
        """A waiting trial that is this process's now; trials of processes that are gone wait again first."""
        from optuna.exceptions import UpdateFinishedTrialError
        from optuna.trial import Trial

        with held(self._claim_lock()), self.errors():
            self._take_back()
            for trial in self.all():
                if trial.state.name != "WAITING":
                    continue
                with suppress(UpdateFinishedTrialError):
                    # Its name comes first, so that a process that is killed right after the claim is known by it.
                    self.storage.set_trial_user_attr(trial._trial_id, "claiming", self._watcher.me)
                    if self._set(trial._trial_id, "RUNNING"):
                        self.storage.set_trial_user_attr(trial._trial_id, "owner", self._watcher.me)
                        self.study.sampler = self._sampler(trial.number)
                        return Trial(self.study, trial._trial_id)
        return None

    def take_back(self) -> None:
        """Let trials of processes that are gone wait again. Only for a process that runs none itself."""
        with held(self._claim_lock()), self.errors():
            self._take_back()

    def _take_back(self) -> None:
        from optuna.exceptions import UpdateFinishedTrialError

        for trial in self.all():
            if self.interrupted(trial):
                with suppress(UpdateFinishedTrialError):
                    self._put_back(trial._trial_id)

    def _put_back(self, trial_id: int) -> None:
        """Let a trial wait, without its owner, who would be asked for while another claims it."""
        self.storage.set_trial_user_attr(trial_id, "owner", None)
        self._set(trial_id, "WAITING")

    def interrupted(self, trial: "FrozenTrial") -> bool:
        """Whether it stands as running and its process is gone."""
        owner, claiming, beat = (trial.user_attrs.get(key) for key in ("owner", "claiming", "beat"))
        return trial.state.name == "RUNNING" and not self._watcher.alive(trial.number, owner or claiming, beat)

    def _claim_lock(self) -> Path:
        """One for all processes that can see the journal, or this directory."""
        where = self.plan.storage
        path = self.directory / "claim" if is_database(where) else journal_path(where, self.directory)
        return path.with_name(f"{path.name}.claim.lock")

    def _sampler(self, number: int) -> Any:
        """Seeded by the trial's number: what is drawn does not depend on which process draws it."""
        from optuna.samplers import RandomSampler, TPESampler

        seed = random.Random(f"{self.plan.seed} {number}").getrandbits(32)
        return TPESampler(seed=seed) if self.plan.sampler == "tpe" else RandomSampler(seed=seed)

    def pruner(self, total: int) -> Any:
        """The pruner for runs of this many steps."""
        from optuna.pruners import MedianPruner, NopPruner, SuccessiveHalvingPruner

        if self.plan.prune == "halving":
            return SuccessiveHalvingPruner(min_resource=max(1, total // 8), reduction_factor=2)
        return MedianPruner(4, n_warmup_steps=total // 6) if self.plan.prune == "median" else NopPruner()

    def release(self, trial_id: int) -> None:
        """Put a trial back, for this or another process to go on with."""
        with self.errors():
            self._put_back(trial_id)

    def _set(self, trial_id: int, state: State, value: float | None = None) -> bool:
        from optuna.trial import TrialState

        return self.storage.set_trial_state_values(trial_id, TrialState[state], None if value is None else [value])

    def close(self, trial_id: int, state: State, outcome: str, value: float | None = None) -> None:
        """A trial has ended."""
        from optuna.exceptions import UpdateFinishedTrialError

        with self.errors(), suppress(UpdateFinishedTrialError):
            self.storage.set_trial_user_attr(trial_id, "outcome", outcome)
            self._set(trial_id, state, value)

    def best(self, count: int = 1) -> list["FrozenTrial"]:
        """The best of the trials that ran to their end, best first."""
        done = [t for t in self.all() if t.state.name == "COMPLETE" and t.value is not None]
        return sorted(done, key=self.plan.objective.rank)[:count]

    def values(self, trial: "FrozenTrial") -> dict[str, Value]:
        """What its config has: the number in place of ``rho = "auto"``, once it is chosen."""
        chosen = trial.user_attrs.get("rho")
        return {**trial.params, **({rho.KEY: chosen[0]} if chosen else {})}

    def plugin_code(self) -> dict[str, list[int]]:
        """The code of the plugins that the trials' runs name, as its digest, and the trials of each."""
        made: dict[str, list[int]] = {}
        for trial in self.all():
            numerics = durable.read_object(self.run_path(trial) / "summary.json").get("numerics")
            if isinstance(numerics, dict) and isinstance(code := numerics.get("plugins"), str):
                made.setdefault(code, []).append(trial.number)
        return made

    def run_path(self, trial: "FrozenTrial") -> Path:
        """Its run directory: here, or where its first process made it if that can be seen from here."""
        here = self.directory / "trials" / f"{trial.number:04}"
        made = trial.user_attrs.get("run")
        if not here.exists() and made and Path(made, "config.json").is_file():
            return Path(made)
        return here
