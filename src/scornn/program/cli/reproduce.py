"""Reproduce tables and figures of the paper, and set them beside what was published.

ITEM is fig-copying, fig-adding, table-mnist, table-timit, fig-orthogonality, fig-gradients, table-timing or all.
Interrupted, the same command goes on where it stopped; what is finished is not run again. OUT then holds page.html
and the runs themselves.

Scales: smoke, small networks for a few steps, minutes for everything, to see that it runs; paper, the full protocol,
weeks for everything: take rows with --only, and set an end with --iterations.

Examples:

    scornn reproduce all --scale smoke

    scornn reproduce fig-copying --scale paper --only copying-1000-scornn-190 --iterations 4000

    scornn reproduce table-mnist --scale paper --only mnist-scornn-170 --only pmnist-scornn-170 --data ~/datasets

    scornn reproduce table-timit --scale paper --only timit-scornn-224 --corpus iban --data ~/iban

    scornn reproduce record reproduction/paper/runs/mnist-scornn-170-s5544   copy a run into results/

    scornn reproduce page --from results --out page.html                     the page from recorded results
"""

import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from scornn.errors import DataError, DivergedError, UsageError
from scornn.program.cli._options import absolute, at_least_one, flag, option, waiting, write_page


@dataclass(frozen=True)
class Flags:
    item: Annotated[str, tyro.conf.Positional, option("ITEM", "What to reproduce; or record, or page.")]
    runs: Annotated[tuple[str, ...], tyro.conf.Positional, option("[RUN...]", "With record: runs to keep.")] = ()
    scale: Annotated[Literal["smoke", "paper"], tyro.conf.arg(help="How much of it.")] = "smoke"
    out: Annotated[
        str | None, option("DIR", "Where; else reproduction/SCALE, with record results, with page page.html.")
    ] = None
    seeds: Annotated[int | None, option("N", "Runs of each row, from seed 5544 on; else one.")] = None
    seed: Annotated[tuple[int, ...], option("S", "A run of this seed, in place of --seeds.")] = ()
    only: Annotated[tuple[str, ...], option("PRESET", "Only this row, such as mnist-scornn-170.")] = ()
    iterations: Annotated[
        int | None, option("N", "The length of each run, or the steps timed, in place of the paper's.")
    ] = None
    corpus: Annotated[
        Literal["timit", "iban", "folder"] | None, option("NAME", "An open corpus in place of TIMIT.")
    ] = None
    allow_partial: Annotated[bool, flag("Go on without what is missing of a corpus, listing it.")] = False
    data: Annotated[str | None, option("DIR", "Folder with the data files; else SCORNN_DATA, else the cache.")] = None
    source: Annotated[str, tyro.conf.arg(name="from", metavar="DIR", help="With page: the recorded results.")] = (
        "results"
    )
    quiet: Annotated[bool, flag("Show no progress.")] = False


def main(flags: Flags) -> int:
    if flags.runs and flags.item != "record":
        raise UsageError(f"{' '.join(flags.runs)}: only `scornn reproduce record` takes runs")
    at_least_one(seeds=flags.seeds, iterations=flags.iterations)
    if flags.item == "record":
        return _record(flags)
    return _page(flags) if flags.item == "page" else _reproduce(flags)


def _reproduce(flags: Flags) -> int:
    from scornn.program import durable
    from scornn.program.paper.items import ITEMS, chosen
    from scornn.program.paper.page import render
    from scornn.program.paper.reproduce import Request, reproduce
    from scornn.program.paper.results import collect

    items = chosen(flags.item)
    out = Path(flags.out or f"reproduction/{flags.scale}")
    request = Request(
        out=out,
        scale=flags.scale,
        seeds=_seeds(flags),
        only=flags.only,
        iterations=flags.iterations,
        corpus=flags.corpus,
        allow_partial=flags.allow_partial,
        data=absolute(flags.data),
        quiet=flags.quiet,
    )
    outcome = reproduce(items, request)
    durable.write_text(out / "page.html", render(collect(out), [ITEMS[name] for name in outcome.items]))
    if not flags.quiet:
        print(f"see: {out / 'page.html'}")
    if outcome.signal:
        print(f"{signal.Signals(outcome.signal).name}: the same command goes on where this stopped")
        return 128 + outcome.signal
    if outcome.diverged:
        raise DivergedError("; ".join(f"{run} diverged: {said}" for run, said in outcome.diverged.items()))
    if outcome.missing and flags.item != "all":
        said = f"{len(outcome.missing)} rows of {flags.item} have no result: "
        said += "; ".join(dict.fromkeys(outcome.missing.values()))
        if flags.item == "table-timit" and flags.corpus is None:
            said += (
                ". TIMIT is licensed (LDC93S1); with --corpus iban or folder it runs on open speech, labelled as such"
            )
        raise DataError(said)
    return 0


def _seeds(flags: Flags) -> tuple[int, ...]:
    from scornn.program.recipes.experiments import SEED

    if flags.seed and flags.seeds is not None:
        raise UsageError(f"--seeds {flags.seeds} and --seed {flags.seed[0]}: give one of them")
    return tuple(dict.fromkeys(flags.seed)) or tuple(range(SEED, SEED + (flags.seeds or 1)))


def _record(flags: Flags) -> int:
    from scornn.program.paper.record import record
    from scornn.program.sweep.record import made

    results, given = Path(flags.out or "results"), [Path(run) for run in flags.runs]
    sweeps = {file: text for path in given for file, text in made(path, results).items()}
    for path in record(given, results, results.absolute().parent / "README.md", sweeps):
        print(path)
    return 0


def _page(flags: Flags) -> int:
    with waiting(f"reading {flags.source}"):
        from scornn.program.paper.page import render
        from scornn.program.paper.results import collect

        text = render(collect(Path(flags.source)))
    write_page(flags.out or "page.html", text)
    return 0
