"""Start a sweep or go on with one: the worker in this process, or several processes that join the study."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
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
from scornn.program.sweep.storage import fcntl_module, is_database, require_optuna, without_password
from scornn.program.sweep.study import Trials, tickets
from scornn.program.sweep.worker import Worker, write_best
from scornn.program.train.distributed import default_threads, die_with_parent
from scornn.program.train.signals import StopRequest

_STORAGE = "SCORNN_SWEEP_STORAGE"
"""Hands a URL with its password to the processes of ``--jobs``."""
_JOINED = "SCORNN_SWEEP_JOINED"
_POLL_SECONDS = 0.5
_BEFORE_PLAN = re.compile(r"\.sweep\.json\.[0-9a-f]+\.tmp")
"""What a sweep killed in its first moment leaves."""


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
    fcntl_module()  # refused where there is no flock, before anything is made
    plan = _counted(plan)
    if (directory / plans.FILE).is_file():
        there = plans.load(directory, plan.settings.get("plugins", ()))
        if differ := plans.differences(plans.identity(there), plans.identity(plan)):
            raise UsageError(f"{directory} holds a sweep of another config: {differ}; choose another --out")
        plan = msgspec.structs.replace(plan, trials=max(plan.trials, there.trials))  # it may have been given more
    elif directory.is_dir() and not all(_BEFORE_PLAN.fullmatch(entry.name) for entry in directory.iterdir()):
        raise UsageError(f"{directory} holds files that are not of a sweep: choose another --out")
    if is_database(plan.storage) or os.sep in plan.storage:
        Trials(plan, directory)  # refused before the directory is made, if at all
    durable.make_directory(directory)
    plans.save(msgspec.structs.replace(plan, storage=without_password(plan.storage)), directory)
    trials = Trials(plan, directory)
    trials.fill()
    return _run(trials, quiet, tensorboard)


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
    plan = msgspec.structs.replace(kept, trials=trials or kept.trials, jobs=jobs or kept.jobs)
    if trials is not None and trials < kept.trials:
        raise UsageError(f"--trials {trials}: {directory} has {kept.trials} already; expected more")
    plan = _counted(plan)
    found = storage or os.environ.get(_STORAGE) or plan.storage
    if without_password(found) != without_password(kept.storage):
        raise UsageError(f"--storage {without_password(found)}: {directory} is kept in {kept.storage}")
    study = Trials(msgspec.structs.replace(plan, storage=found), directory)
    if joined():
        die_with_parent()
    else:
        study.fill()
        if plan != kept:
            plans.save(plan, directory)
    return _run(study, quiet, tensorboard)


def _counted(plan: Plan) -> Plan:
    """The plan with as many trials as it can have: a grid ends."""
    count = len(tickets(plan))
    if count < plan.trials:
        log.warning(
            f"--trials {plan.trials}: the lists of --over have {count} combinations, and each is a trial once: "
            "there are no more"
        )
    return msgspec.structs.replace(plan, trials=count)


def joined() -> bool:
    """Whether this process is one of ``--jobs``, and another speaks for it."""
    return _JOINED in os.environ


def open_sweep(directory: Path, storage: str | None = None, plugins: Sequence[str] = ()) -> Trials:
    """The trials of a sweep that is there, to be read."""
    require_optuna()
    plan = plans.load(directory, plugins)
    return Trials(msgspec.structs.replace(plan, storage=storage or plan.storage), directory, write=False)


def _run(trials: Trials, quiet: bool, tensorboard: bool | None) -> Result:
    plan = trials.plan
    if not joined():
        _warn_of_other_code(trials)
    how = "" if plan.prune == "none" else f", pruned by {plan.prune} on the {plan.objective.prunes_on}"
    with Overview(trials, quiet) as overview:
        overview.say(f"{plan.trials} trials by {plan.sampler}, {plan.jobs} at once{how}")
        overview.say(f"chosen by the {plan.objective.words(plan.weights)}")
        if plan.jobs == 1:
            number, code = Worker(trials, overview, tensorboard).run(), 0
        else:
            number, code = _Jobs(trials, overview, tensorboard).run()
    if not number and not code and not joined() and (failure := _failure(trials)):
        tell(f"scornn: {failure}", sys.stderr)
        code = failure.exit_code
    return Result(trials.directory, number, write_best(trials), 128 + number if number else code)


def _warn_of_other_code(trials: Trials) -> None:
    """Where trials are left to run, and those before them were made by plugins that have been edited since."""
    with trials.errors():
        left = any(not trial.state.is_finished() for trial in trials.all())
        made = trials.plugin_code() if left else {}
    now = plugin_files.digest(trials.plan.settings.get("plugins") or ())
    for code, numbers in made.items():
        if code != now:
            log.warning(
                f"{named(numbers)} came from {code}, and those that are left will from {now}: they may not compare"
            )


def named(numbers: Sequence[int]) -> str:
    """Trials by their numbers.

    >>> named([3]), named([0, 1])
    ('trial 3', 'trials 0, 1')
    """
    return f"trial{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"


def _failure(trials: Trials) -> ScornnError | None:
    """What to say where every trial failed or diverged; None where one has a result."""
    with trials.errors():
        every = trials.all()
    if any(trial.state.name == "COMPLETE" for trial in every):
        return None
    outcomes = {trial.number: str(trial.user_attrs.get("outcome")) for trial in every}
    if diverged := [number for number, outcome in outcomes.items() if outcome.startswith("diverged")]:
        how = f"{len(diverged)} of {len(every)} diverged; trial {diverged[0]}: {outcomes[diverged[0]]}"
        return DivergedError(f"no trial in {trials.directory} ran to its end: {how}")
    if any(trial.state.name != "FAIL" for trial in every):
        return None
    first = every[0].number
    return UsageError(f"no trial in {trials.directory} could be run; trial {first}: {outcomes[first]}")


class _Jobs:
    """Processes that join the study, and this one that watches them."""

    def __init__(self, trials: Trials, overview: Overview, tensorboard: bool | None) -> None:
        self._trials, self._overview, self._tensorboard = trials, overview, tensorboard
        self._processes: list[subprocess.Popen[bytes]] = []

    def run(self) -> tuple[int, int]:
        """(signal, exit code)."""
        code, asked = 0, False
        with StopRequest() as stop:
            self._processes = [self._join() for _ in range(self._trials.plan.jobs)]
            try:
                while self._processes:
                    if stop or code:
                        # More than once, for a process may just have been busy with pruning.
                        self._ask_to_stop()
                        asked = True
                    time.sleep(_POLL_SECONDS)
                    self._overview.refresh()
                    for process in [p for p in self._processes if p.poll() is not None]:
                        self._processes.remove(process)
                        if process.returncode < 0 and not asked:
                            name = signal.Signals(-process.returncode).name
                            self._overview.say(f"a process was ended by {name}; another takes its place")
                            self._processes.append(self._join())
                        elif process.returncode not in (0, 130, 143) and not code:
                            code = process.returncode
            finally:
                self._ask_to_stop()
                for process in self._processes:
                    process.wait()
        self._trials.take_back()
        self._overview.refresh()
        return stop.signal or 0, code

    def _join(self) -> subprocess.Popen[bytes]:
        plan = self._trials.plan
        threads = plan.threads or max(1, default_threads() // plan.jobs)
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads), _JOINED: "1", _STORAGE: plan.storage}
        board = {None: "auto", True: "on", False: "off"}[self._tensorboard]
        command = [sys.executable, "-m", "scornn", "sweep", "resume", str(self._trials.directory)]
        for file in plan.settings.get("plugins", ()):  # also where no cache could note that they were named
            command += ["--plugin", file]
        return subprocess.Popen([*command, "--jobs", "1", "--quiet", "--tensorboard", board], env=environment)

    def _ask_to_stop(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
