"""Measure the recurrence here: against its peers, and against what the machine can do.

Each shape is a training step of one of the paper's experiments (one-stream: inference). All contenders take turns and
the shortest time of each counts: the three backends of the operator, torch.nn.RNN of the same size, and torch.nn.LSTM
with the same number of parameters. `--quick` takes a quarter of the steps of long sequences and the fewest rounds.

`--training` times whole training steps and says what share of them is not the recurrence; `--models` times a step of
every model at the shape of pixel MNIST, and where the kernel has a rung of its own for it, that in PyTorch. Both need
the MNIST files. `--linear` times the linear memory against the modReLU loop of the same size. `--deployed` times
trained networks as they are used: as they were trained, frozen, and in ONNX Runtime after `pip install onnx
onnxruntime`.

Examples:
    scornn bench --quick
    scornn bench --shape copying --json
    scornn bench --training --data DIR
    scornn bench --models --model lstm
    scornn bench --linear --markdown
    scornn bench --deployed --threads 1
"""

from __future__ import annotations

import dataclasses
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from scornn.cli._options import flag, option, parse
from scornn.errors import UsageError


@dataclass(frozen=True)
class Flags:
    quick: Annotated[bool, flag("Under a minute: shorter sequences, fewer rounds.")] = False
    json: Annotated[bool, flag("Print one JSON object.")] = False
    markdown: Annotated[bool, flag("Print the tables as Markdown.")] = False
    training: Annotated[bool, flag("Time whole training steps of the program.")] = False
    models: Annotated[bool, flag("Time a training step of every model.")] = False
    linear: Annotated[bool, flag("Time the linear memory against the loop.")] = False
    deployed: Annotated[bool, flag("Time trained networks and ONNX Runtime.")] = False
    model: Annotated[str | None, option("NAME", "With --models: this model alone.")] = None
    data: Annotated[Path | None, option("DIR", "Where the MNIST files are, for --training and --models.")] = None
    shape: Annotated[str | None, option("NAME", "Measure this shape alone.")] = None
    rounds: Annotated[int, option("N", "Turns of every contender (default 15, quick 5).")] = 0
    threads: Annotated[int, option("N", "Threads (default: as many as cores).")] = 0


def main(argv: list[str]) -> int:
    flags = parse(Flags, argv, "bench", __doc__)
    if flags.rounds < 0 or flags.threads < 0:
        raise UsageError(f"expected --rounds and --threads of 1 or more; got {min(flags.rounds, flags.threads)}")

    import torch

    from scornn.analysis import bench

    names = [shape.name for shape in bench.SHAPES]
    if flags.shape is not None and flags.shape not in names:
        raise UsageError(f"unknown shape {flags.shape!r}; the shapes are {', '.join(names)}")
    if flags.threads:
        torch.set_num_threads(flags.threads)
    if flags.linear:
        return _linear(flags)
    if flags.training or flags.models or flags.deployed:
        return _program(flags)
    report = _measure(flags, [shape for shape in bench.SHAPES if flags.shape in (None, shape.name)])
    if flags.json:
        print(json.dumps(report, indent=2))
    else:
        _show(report, flags.markdown)
    return 0


def _linear(flags: Flags) -> int:
    from rich.console import Console

    from scornn.analysis import bench_linear

    with Console(stderr=True).status("linear memory") as status:
        report = bench_linear.measure(flags.rounds or (5 if flags.quick else 15), status.update)
    if flags.json:
        print(json.dumps(report, indent=2))
        return 0
    _table(bench_linear.rows(report), flags.markdown)
    print()
    _table(bench_linear.growth_rows(report), flags.markdown)
    return 0


def _program(flags: Flags) -> int:
    from rich.console import Console

    from scornn.cli import _bench_program as program
    from scornn.deploy import bench as deployed
    from scornn.nn import MODELS

    if flags.model is not None and flags.model not in MODELS:
        raise UsageError(f"unknown model {flags.model!r}; the models are {', '.join(MODELS)}")
    report: dict[str, Any] = {}
    with Console(stderr=True).status("training steps") as status:
        if flags.training:
            report |= program.training(flags.data, steps=20 if flags.quick else 50)
        if flags.models:
            report |= program.models(flags.data, flags.model, status.update)
        if flags.deployed:
            report["deployed"] = deployed.measure(flags.rounds or (5 if flags.quick else 15))
    if flags.json:
        print(json.dumps(report, indent=2))
        return 0
    if flags.training:
        _table(program.training_rows(report), flags.markdown)
    if flags.models:
        _table(program.model_rows(report), flags.markdown)
    if flags.deployed:
        _table(deployed.rows(report["deployed"]), flags.markdown)
    return 0


def _measure(flags: Flags, shapes: list[Any]) -> dict[str, Any]:
    import torch
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    from scornn.analysis import bench
    from scornn.ops import backends, library
    from scornn.train import provenance

    rounds = flags.rounds or (bench.LEAST_ROUNDS if flags.quick else 15)
    if flags.quick:
        shapes = [dataclasses.replace(s, T=s.T // 4) if s.T >= 400 and s.use != "inference" else s for s in shapes]
    growth = flags.shape is None
    kernel = library.load()
    report: dict[str, Any] = {
        "machine": provenance.machine(),
        "versions": provenance.versions(),
        "threads": torch.get_num_threads(),
        "backends": backends(),
        "instruction_set": None if isinstance(kernel, str) else kernel.isa_name,
        "quick": flags.quick,
        "rounds": rounds,
    }
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("peak", total=len(shapes) * (max(rounds, bench.LEAST_ROUNDS) + 1) + 3 * growth)
        peaks = [bench.peak_flops(torch.get_num_threads())]
        report["shapes"] = []
        for shape in shapes:
            bar.update(task, description=shape.name)
            report["shapes"].append(bench.measure_shape(shape, peaks[0], rounds, lambda: bar.advance(task)))
            peaks.append(bench.peak_flops(torch.get_num_threads()))
        if growth:
            bar.update(task, description="growth")
            report |= bench.measure_growth(rounds, lambda: bar.advance(task))
    _against_the_best_peak(report, [peak for peak in peaks if peak])
    return report


def _against_the_best_peak(report: dict[str, Any], peaks: list[float]) -> None:
    """The peak is measured between the shapes too, and the highest counts for all of them."""
    report["peak_gflops"] = max(peaks) / 1e9 if peaks else None
    for shape in report["shapes"]:
        if peaks:
            shape["share_of_peak"] = shape["gflops"][shape["contender"]] / report["peak_gflops"]


def _show(report: dict[str, Any], markdown: bool) -> None:
    machine = report["machine"]
    peak = f"{report['peak_gflops']:.0f} GFLOP/s" if report["peak_gflops"] else "unknown"
    kernel = report["instruction_set"] or report["backends"]["native"]
    print(f"{machine['processor']}, {machine['cores']} cores, {report['threads']} threads, torch ", end="")
    print(f"{report['versions']['torch']}, kernel {kernel}, FMA peak {peak}, float32.\n")
    _table(_shape_rows(report), markdown)
    if "long" in report:
        print()
        _table(_growth_rows(report), markdown)


def _shape_rows(report: dict[str, Any]) -> list[list[str]]:
    contender = report["shapes"][0]["contender"]
    peers = [peer for peer in ("naive", "rnn", "lstm") if peer != contender]
    names = {"rnn": "RNN", "lstm": "LSTM"}
    rows = [["shape", "n, B, T, m", "ms", "of peak", *(f"× {names.get(p, p)}" for p in peers), "memory", "Cayley"]]
    for s in report["shapes"]:
        share, memory = s["share_of_peak"], s["peak_memory"][contender]
        rows.append(
            [
                s["shape"],
                f"{s['n']}, {s['B']}, {s['T']}, {s['m']}",
                f"{s['milliseconds'][contender]:.1f}",
                "-" if share is None else f"{share:.2f}",
                *(f"{s['times_faster_than'][peer]:.1f}" for peer in peers),
                "-" if memory is None else f"{memory / s['state_bytes']:.2f}",
                f"{100 * s['cayley_share']:.0f} %",
            ]
        )
    return rows


def _growth_rows(report: dict[str, Any]) -> list[list[str]]:
    rows = [["growth", "measured"]]
    rows += [[f"cost of {g['change']}", f"× {g['cost']:.2f}"] for g in report["growth"]]
    long = report["long"]
    rows.append([f"training step, T = {long['T']:,}, n = {long['n']}", f"{long['seconds']:.2f} s"])
    return rows


def _table(rows: list[list[str]], markdown: bool) -> None:
    if markdown:
        for number, row in enumerate(rows):
            print(f"| {' | '.join(row)} |")
            if number == 0:
                print("|" + "---|" * len(row))
        return

    from rich.console import Console
    from rich.table import Table

    table = Table()
    for number, title in enumerate(rows[0]):
        table.add_column(title, justify="right" if number else "left")
    for row in rows[1:]:
        table.add_row(*row)
    Console(file=sys.stdout, width=None if sys.stdout.isatty() else 100).print(table)
