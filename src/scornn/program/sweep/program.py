"""Start a sweep or go on with one, in this process and in those of ``--jobs``."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from scornn.errors import DivergedError, ScornnError, UsageError
from scornn.program import durable
from scornn.program import plugins as plugin_files
from scornn.program.progress import log, tell
from scornn.program.sweep import plan as plans
from scornn.program.sweep.plan import Plan
from scornn.program.sweep.progress import Overview
from scornn.program.sweep.storage import DATABASE, require_optuna, storage_errors, without_password
from scornn.program.sweep.study import Trials, tickets
from scornn.program.sweep.worker import Worker
from scornn.program.train.distributed import default_threads, die_with_parent

_STORAGE = "SCORNN_SWEEP_STORAGE"
"""Hands a URL with its password to the processes of ``--jobs``."""
_JOINED = "SCORNN_SWEEP_JOINED"


@dataclass(frozen=True)
class Result:
    """How a sweep ended: the signal that stopped it or 0, and the exit code."""

    directory: Path
    signal: int
    best: Path | None
    exit_code: int = 0


def start(plan: Plan, directory: Path, *, quiet: bool = False, tensorboard: bool | None = False) -> Result:
    """Make a sweep in a new directory, or join the one that is there if it is the same."""
    require_optuna()
    plan = _counted(plan)
    if (directory / plans.FILE).is_file():
        there = plans.load(directory, plan.settings.get("plugins", ()))
        if said := plans.difference(plans.identity(there), plans.identity(plan)):
            raise UsageError(f"{directory} holds a sweep of another config: {said}; choose another --out")
        plan = msgspec.structs.replace(plan, trials=max(plan.trials, there.trials))  # it may have been given more
    elif directory.is_dir() and any(not entry.name.startswith(f".{plans.FILE}") for entry in directory.iterdir()):
        raise UsageError(f"{directory} holds files that are not of a sweep: choose another --out")
    with storage_errors(plan.storage):
        if plan.storage != DATABASE:
            Trials(plan, directory)  # refused before the directory is made, if at all
        durable.make_directory(directory)
        plans.save(msgspec.structs.replace(plan, storage=without_password(plan.storage)), directory)
        return _run(Trials(plan, directory), quiet, tensorboard)


def resume(
    directory: Path,
    *,
    trials: int | None = None,
    jobs: int | None = None,
    storage: str | None = None,
    plugins: Sequence[str] = (),
    quiet: bool = False,
    tensorboard: bool | None = False,
) -> Result:
    """Go on with a sweep.

    ``trials`` gives it a new total, ``storage`` the password that was not written down, ``plugins`` other places of its
    files.
    """
    require_optuna()
    kept = plans.load(directory, plugins)
    plans.check_here(plans.config(kept, {}))
    if trials is not None and trials < kept.trials:
        raise UsageError(f"--trials {trials}: {directory} has {kept.trials} already; expected more")
    plan = _counted(msgspec.structs.replace(kept, trials=trials or kept.trials, jobs=jobs or kept.jobs))
    found = storage or os.environ.get(_STORAGE) or plan.storage
    if without_password(found) != without_password(kept.storage):
        raise UsageError(f"--storage {without_password(found)}: {directory} is kept in {kept.storage}")
    with storage_errors(found):
        study = Trials(msgspec.structs.replace(plan, storage=found), directory)
        if _joined():
            die_with_parent()
        elif plan != kept:
            plans.save(plan, directory)
        return _run(study, quiet, tensorboard)


def open_sweep(directory: Path, storage: str | None = None, plugins: Sequence[str] = ()) -> Trials:
    """The trials of a sweep that is there, to be read."""
    require_optuna()
    plan = plans.load(directory, plugins)
    return Trials(msgspec.structs.replace(plan, storage=storage or plan.storage), directory, write=False)


def _joined() -> bool:
    """True in a process of ``--jobs``, for which another speaks."""
    return _JOINED in os.environ


def _counted(plan: Plan) -> Plan:
    """The plan with as many trials as it can have: a grid ends."""
    count = len(tickets(plan))
    if count < plan.trials:
        log.warning(
            f"--trials {plan.trials}: the lists of --over have {count} combinations, and each is a trial once: "
            "there are no more"
        )
    return msgspec.structs.replace(plan, trials=count)


def _run(trials: Trials, quiet: bool, tensorboard: bool | None) -> Result:
    plan = trials.plan
    overview = Overview(trials, quiet)
    if not _joined():
        trials.fill()
        _warn_of_other_code(trials)
    overview.say(f"{plan.trials} trials by {plan.sampler}, {plan.jobs} at once")
    overview.say(f"chosen by the {plan.objective.words(plan.weights)}")
    if plan.prune != "none":
        overview.say(f"pruned by {plan.prune} on the {plan.prunes_on}")
    with _others(trials, tensorboard):
        number = Worker(trials, overview, tensorboard).run()
    if _joined():
        return Result(trials.directory, 0, None, 128 + number if number else 0)
    failure = None if number else _failure(trials)
    if failure:
        tell(f"scornn: {failure}", sys.stderr)
    code = 128 + number if number else failure.exit_code if failure else 0
    return Result(trials.directory, number, trials.write_best(), code)


@contextmanager
def _others(trials: Trials, tensorboard: bool | None) -> Iterator[None]:
    """The other processes of ``--jobs``, which run the same sweep until this one ends."""
    plan = trials.plan
    threads = plan.threads or max(1, default_threads() // plan.jobs)
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), _JOINED: "1", _STORAGE: plan.storage}
    board = {None: "auto", True: "on", False: "off"}[tensorboard]
    command = [sys.executable, "-m", "scornn", "sweep", "resume", str(trials.directory), "--jobs", "1", "--quiet"]
    for file in plan.settings.get("plugins", ()):  # also where no cache could note that they were named
        command += ["--plugin", file]
    count = 0 if _joined() else plan.jobs - 1
    others = [subprocess.Popen([*command, "--tensorboard", board], env=environment) for _ in range(count)]
    try:
        yield
    finally:
        for process in others:
            process.terminate()
        for process in others:
            process.wait()


def _warn_of_other_code(trials: Trials) -> None:
    """Where trials are left to run, and those before them were made by plugins that have been edited since."""
    if all(trial.state.is_finished() for trial in trials.all()):
        return
    now = plugin_files.digest(trials.plan.settings.get("plugins") or ())
    for code, numbers in trials.plugin_code().items():
        if code != now:
            trials_of = ", ".join(map(str, numbers))
            log.warning(
                f"trials {trials_of} came from {code}, and those that are left will from {now}: they may not compare"
            )


def _failure(trials: Trials) -> ScornnError | None:
    """What to say where every trial failed or diverged; None where one has a result."""
    every = trials.all()
    states, outcomes = {trial.state.name for trial in every}, [str(t.user_attrs.get("outcome")) for t in every]
    diverged = [number for number, outcome in enumerate(outcomes) if outcome.startswith("diverged")]
    if "COMPLETE" not in states and diverged:
        how = f"{len(diverged)} of {len(every)} diverged; trial {diverged[0]}: {outcomes[diverged[0]]}"
        return DivergedError(f"no trial in {trials.directory} ran to its end: {how}")
    if states == {"FAIL"}:
        return UsageError(f"no trial in {trials.directory} could be run; trial 0: {outcomes[0]}")
    return None
