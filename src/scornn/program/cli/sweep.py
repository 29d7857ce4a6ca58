"""Search over settings: lists and ranges of any key, on one machine or many.

Every trial is an ordinary run directory under DIR/trials, which resume, eval and report take like any other. The best
one's settings are in DIR/best.json. Killed at any moment, the sweep goes on with `scornn sweep resume DIR`, or with the
same command again; finished trials are not repeated. TASK and the settings are those of `scornn train`.

Examples:
    scornn sweep copying --length 200 --over model.options.rho=0,n/10,n/4,n/2,7n/10,n --iterations 600
    scornn sweep adding --over optimizer.recurrent.lr=1e-5..1e-3:log --trials 12 --iterations 500
    scornn sweep pmnist --over optimizer.rest.lr=1e-4..1e-2:log --trials 40 --sampler tpe --prune halving --jobs 2
    scornn sweep resume sweeps/pmnist-scornn-170
    scornn sweep report sweeps/pmnist-scornn-170 --out sweep.html
    scornn train pmnist --config sweeps/pmnist-scornn-170/best.json

Several processes on several machines join one study: give each the same command with --study NAME and --storage, a
database such as postgresql://me@host/sweeps.
"""

import shlex
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from scornn.errors import UsageError
from scornn.program.cli import train
from scornn.program.cli._options import (
    TensorBoard,
    at_least_one,
    filled,
    flag,
    option,
    waiting,
    wanted,
    write_page,
)

if TYPE_CHECKING:
    from scornn.program.sweep.program import Result


@dataclass(frozen=True)
class Flags(train.Flags):
    over: Annotated[
        tuple[str, ...],
        option("KEY=VALUES", "A list a,b,c (fractions such as n/10 too), or a range lo..hi or lo..hi:log."),
    ] = ()
    trials: Annotated[int | None, option("N", "Trials in all; else the whole grid, or 20.")] = None
    sampler: Annotated[
        Literal["grid", "random", "tpe"] | None, option("NAME", "grid where all are lists, else tpe.")
    ] = None
    prune: Annotated[
        Literal["halving", "median", "none"],
        tyro.conf.arg(help="End poor trials early: by successive halving, below the median, or never."),
    ] = "none"
    weights: Annotated[
        Literal["raw", "average"], tyro.conf.arg(help="Which weights are judged; average needs optimizer.average.")
    ] = "raw"
    jobs: Annotated[int, tyro.conf.arg(metavar="K", help="Processes; the threads are divided among them.")] = 1
    storage: Annotated[str | None, option("WHERE", "A database URL, or an SQLite file; else DIR/sweep.db.")] = None
    study: Annotated[str | None, option("NAME", "The study to join; else the name of DIR.")] = None
    out: Annotated[str | None, option("DIR", "The sweep's directory; else sweeps/TASK-MODEL-N.")] = None
    tensorboard: TensorBoard = "off"


@dataclass(frozen=True)
class ResumeFlags:
    """Go on with a sweep: after Ctrl-C, a kill, or to a new total of trials.

    Examples:
        scornn sweep resume sweeps/pmnist-scornn-170
        scornn sweep resume sweeps/pmnist-scornn-170 --trials 60 --jobs 2
    """

    sweep: Annotated[str, tyro.conf.Positional, option("DIR", "The sweep's directory.")]
    trials: Annotated[int | None, option("N", "A new total.")] = None
    jobs: Annotated[int | None, option("K", "Processes at once.")] = None
    storage: Annotated[str | None, option("URL", "The database with its password, which is not written down.")] = None
    plugin: Annotated[tuple[str, ...], option("FILE", "The sweep's Python files.")] = ()
    tensorboard: TensorBoard = "off"
    quiet: Annotated[bool, flag("Show no progress.")] = False


@dataclass(frozen=True)
class ReportFlags:
    """Write one self-contained HTML page about a sweep, finished or not; or its record, all that the page shows.

    Examples:
        scornn sweep report sweeps/pmnist-scornn-170 --out sweep.html
        scornn sweep report sweeps/pmnist-scornn-170 --out pmnist.json
        scornn sweep report pmnist.json --out sweep.html
    """

    sweep: Annotated[str, tyro.conf.Positional, option("DIR", "The sweep's directory, or a record of it.")]
    out: Annotated[
        str, tyro.conf.arg(metavar="FILE", help="The page; with .json a small record, which report takes too.")
    ] = "sweep.html"
    storage: Annotated[str | None, option("URL", "The database with its password, which is not written down.")] = None
    plugin: Annotated[tuple[str, ...], option("FILE", "The sweep's Python files.")] = ()


def main(flags: Flags | ResumeFlags | ReportFlags) -> int:
    if isinstance(flags, ResumeFlags):
        return _resume(flags)
    return _report(flags) if isinstance(flags, ReportFlags) else _start(flags)


def _start(flags: Flags) -> int:
    at_least_one(trials=flags.trials, jobs=flags.jobs)
    if flags.start_from is not None or flags.start_weights != "raw":
        raise UsageError("--start-from, --start-weights: the trials of a sweep begin with their seed; leave them out")

    from scornn.program.recipes.presets import resolve
    from scornn.program.sweep import plan as plans
    from scornn.program.sweep.program import start
    from scornn.program.sweep.storage import DATABASE, require_optuna
    from scornn.program.train.run import label

    require_optuna()
    settings = train.settings(flags)
    threads = settings.pop("threads", None)
    config, origin = resolve(settings)
    out = Path(flags.out or f"sweeps/{label(config).removesuffix(f'-s{config.seed}')}")
    plan = plans.make(
        settings,
        flags.over,
        trials=flags.trials,
        sampler=flags.sampler,
        prune=flags.prune,
        weights=flags.weights,
        study=flags.study or out.resolve().name,
        storage=_where(flags.storage) or DATABASE,
        jobs=flags.jobs,
        threads=threads,
    )
    if origin and not flags.quiet:
        print(filled(origin), flush=True)
    return _finish(start(plan, out, quiet=flags.quiet, tensorboard=wanted(flags.tensorboard)), flags.quiet)


def _resume(flags: ResumeFlags) -> int:
    at_least_one(trials=flags.trials, jobs=flags.jobs)

    from scornn.program.sweep.program import resume

    result = resume(
        Path(flags.sweep),
        trials=flags.trials,
        jobs=flags.jobs,
        storage=flags.storage,
        plugins=flags.plugin,
        quiet=flags.quiet,
        tensorboard=wanted(flags.tensorboard),
    )
    return _finish(result, flags.quiet)


def _report(flags: ReportFlags) -> int:
    given, out = Path(flags.sweep), Path(flags.out)
    with waiting(f"reading {given}"):
        from scornn.program import durable
        from scornn.program.sweep import record
        from scornn.program.sweep.page import page

        found = record.find(given, flags.storage, flags.plugin)
        text = record.to_json(found) if out.suffix == ".json" else page(found)
    if out.suffix != ".json":
        write_page(flags.out, text)
        return 0
    if out.is_file():
        record.read(out)  # what is no record is not replaced by one
    durable.write_text(out, text)
    print(f"{out}: make its page with scornn sweep report {shlex.quote(str(out))}")
    return 0


def _finish(result: "Result", quiet: bool) -> int:
    directory = shlex.quote(str(result.directory))
    if result.signal:
        name = signal.Signals(result.signal).name
        print(f"{name}: saved; continue with: scornn sweep resume {directory}", file=sys.stderr)
    elif not quiet and not result.exit_code:
        print(f"see: scornn sweep report {directory} --out sweep.html")
        if result.best:
            print(f"use: scornn train --config {shlex.quote(str(result.best))}")
        else:
            print("no trial ran to its end: there is no best.json")
    return result.exit_code


def _where(storage: str | None) -> str | None:
    """A file by a name that stays the same from elsewhere; a URL as it is."""
    return storage if storage is None or "://" in storage else str(Path(storage).expanduser().absolute())
