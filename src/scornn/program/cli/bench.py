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
from itertools import product
from pathlib import Path
from typing import Annotated, Any

from scornn.errors import UsageError
from scornn.program.cli._options import flag, option, parse

Rows = list[list[str]]

VARIANTS: dict[str, tuple[dict[str, Any], ...]] = {"eurnn": ({"capacity": 2}, {"style": "fft"})}
"""Options of the layer, for each of which the model is timed."""

PLAIN = {"lstm": "torch", "gru": "torch", "goru": "naive", "urnn": "manual", "eurnn": "manual"}
"""The rung in PyTorch that a model ran on before the kernel had one for it; that of the LSTM is torch's own."""


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

    from scornn.program.analysis import bench

    names = [shape.name for shape in bench.SHAPES]
    if flags.shape is not None and flags.shape not in names:
        raise UsageError(f"unknown shape {flags.shape!r}; the shapes are {', '.join(names)}")
    if flags.threads:
        torch.set_num_threads(flags.threads)
    rounds = flags.rounds or (bench.LEAST_ROUNDS if flags.quick else 15)
    of_program = flags.training or flags.models or flags.deployed
    measure = _linear if flags.linear else _program if of_program else _recurrence
    report, tables = measure(flags, rounds)
    if flags.json:
        print(json.dumps(report, indent=2))
        return 0
    if measure is _recurrence:
        print(_headline(report))
    for number, rows in enumerate(tables):
        if number:
            print()
        _table(rows, flags.markdown)
    return 0


def _linear(flags: Flags, rounds: int) -> tuple[dict[str, Any], list[Rows]]:
    from rich.console import Console

    from scornn.program.analysis import bench_linear

    with Console(stderr=True).status("linear memory") as status:
        report = bench_linear.measure(rounds, status.update)
    return report, [bench_linear.rows(report), bench_linear.growth_rows(report)]


def _program(flags: Flags, rounds: int) -> tuple[dict[str, Any], list[Rows]]:
    from rich.console import Console

    from scornn.nn import MODELS
    from scornn.program.deploy import bench as deployed

    if flags.model is not None and flags.model not in MODELS:
        raise UsageError(f"unknown model {flags.model!r}; the models are {', '.join(MODELS)}")
    report: dict[str, Any] = {}
    tables = []
    with Console(stderr=True).status("training steps") as status:
        if flags.training:
            report |= training(flags.data, steps=20 if flags.quick else 50)
            tables.append(training_rows(report))
        if flags.models:
            report |= models(flags.data, flags.model, status.update)
            tables.append(model_rows(report))
        if flags.deployed:
            report["deployed"] = deployed.measure(rounds)
            tables.append(deployed.rows(report["deployed"]))
    return report, tables


def training(data: Path | None, steps: int) -> dict[str, Any]:
    """What of a training step is not the recurrence, for the paper's scoRNN on MNIST and on copying."""
    from scornn.program.analysis import overhead
    from scornn.program.tasks import TASKS

    rows = []
    for task, limit in ((name, entry.overhead) for name, entry in TASKS.items() if entry.overhead is not None):
        config = _config(task, "scornn", None, data)
        rows.append({"task": task, "n": config.model.hidden, "limit": limit, **overhead.measure(config, steps)})
    return {"training": rows}


def models(data: Path | None, only: str | None, progress: Any) -> dict[str, Any]:
    """Seconds of a training step of every model at the shape of pixel MNIST: the shortest of them."""
    import msgspec
    import torch

    from scornn.nn import MODELS
    from scornn.program import tasks
    from scornn.program.analysis.bench import peak_flops
    from scornn.program.analysis.timing import seconds_per_step

    rows = []
    task = None
    for name in MODELS if only is None else (only,):
        for n, options in product(MODELS[name].bench, VARIANTS.get(name, ({},))):
            row: dict[str, Any] = {"model": name, "n": n, "options": options}
            for rung in ("auto", PLAIN.get(name)):
                if rung is None:
                    continue
                progress(f"{name} {n} {rung}")
                config = msgspec.structs.replace(_config("mnist", name, n, data, options), backend=rung)
                task = task or tasks.make(config.task, config.seed, data)
                measured = seconds_per_step(config, task, steps=20, seconds=5, warmup=1, least=1)
                shortest = measured["shortest_seconds_per_step"]
                row |= {**measured, "seconds": shortest} if rung == "auto" else {"plain_rung": rung, "plain": shortest}
            peak = peak_flops(torch.get_num_threads())
            row["share_of_peak"] = row["flops"] / row["seconds"] / peak if peak else None
            rows.append(row)
    return {"models": rows}


def _config(task: str, model: str, hidden: int | None, data: Path | None, options: dict[str, Any] | None = None) -> Any:
    from scornn.program.recipes.presets import resolve
    from scornn.program.tasks import TASKS

    size = {} if hidden is None else {"hidden": hidden}
    table: dict[str, Any] = {"task": TASKS[task].table(), "model": {"name": model, **size, "options": options or {}}}
    if task == "mnist":
        table["task"]["batch"] = 50
    if data is not None:
        table["data"] = str(data)
    return resolve(table)[0]


def training_rows(report: dict[str, Any]) -> Rows:
    rows = [["training step", "ms", "recurrence ms", "around it", "data", "optimizer", "rest"]]
    for r in report["training"]:
        parts = r["parts"]
        share = "-" if r["share"] is None else f"{100 * r['share']:.1f} %"
        recurrence = "-" if r["recurrence"] is None else f"{r['recurrence']:.1f}"
        named = [f"{parts[part]:.2f} ms" for part in ("data", "optimizer", "rest")]
        rows.append([f"{r['task']}, scoRNN n={r['n']}", f"{r['step']:.1f}", recurrence, share, *named])
    return rows


def model_rows(report: dict[str, Any]) -> Rows:
    from scornn.program.analysis.timing import EPOCH

    rows = [["model", "n", "parameters", "ms a step", "of peak", "PyTorch ms", "×", "min/epoch"]]
    for r in report["models"]:
        seconds, share, plain = r["seconds"], r["share_of_peak"], r.get("plain")
        name = " ".join([r["model"], *(f"{key}={value}" for key, value in r["options"].items())])
        cells = [name, str(r["n"]), f"{r['parameters']:,}", f"{1e3 * seconds:.1f}"]
        cells.append("-" if share is None else f"{share:.2f}")
        cells += ["", ""] if plain is None else [f"{1e3 * plain:.0f}", f"{plain / seconds:.1f}"]
        rows.append([*cells, f"{seconds * EPOCH / 60:.1f}"])
    return rows


def _recurrence(flags: Flags, rounds: int) -> tuple[dict[str, Any], list[Rows]]:
    import torch
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    from scornn.ops import backends, library
    from scornn.program.analysis import bench
    from scornn.program.train import provenance

    shapes = [shape for shape in bench.SHAPES if flags.shape in (None, shape.name)]
    if flags.quick:
        shapes = [dataclasses.replace(s, T=s.T // 4) if s.T >= 400 and s.use != "inference" else s for s in shapes]
    growth = flags.shape is None
    report: dict[str, Any] = {
        "machine": provenance.machine(),
        "versions": provenance.versions(),
        "threads": torch.get_num_threads(),
        "backends": backends(),
        "instruction_set": library.instruction_set(),
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
            report["shapes"].append(bench.measure_shape(shape, rounds, lambda: bar.advance(task)))
            peaks.append(bench.peak_flops(torch.get_num_threads()))
        if growth:
            bar.update(task, description="growth")
            report |= bench.measure_growth(rounds, lambda: bar.advance(task))
    known = [peak for peak in peaks if peak]  # measured between the shapes too, and the highest counts for all of them
    report["peak_gflops"] = max(known) / 1e9 if known else None
    for row in report["shapes"]:
        row["share_of_peak"] = row["gflops"][row["contender"]] / report["peak_gflops"] if known else None
    return report, [_shape_rows(report), *([_growth_rows(report)] if growth else [])]


def _headline(report: dict[str, Any]) -> str:
    machine = report["machine"]
    peak = f"{report['peak_gflops']:.0f} GFLOP/s" if report["peak_gflops"] else "unknown"
    kernel = report["instruction_set"] or report["backends"]["native"]
    here = f"{machine['processor']}, {machine['cores']} cores, {report['threads']} threads"
    return f"{here}, torch {report['versions']['torch']}, kernel {kernel}, FMA peak {peak}, float32.\n"


def _shape_rows(report: dict[str, Any]) -> Rows:
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


def _growth_rows(report: dict[str, Any]) -> Rows:
    rows = [["growth", "measured"]]
    rows += [[f"cost of {g['change']}", f"× {g['cost']:.2f}"] for g in report["growth"]]
    long = report["long"]
    rows.append([f"training step, T = {long['T']:,}, n = {long['n']}", f"{long['seconds']:.2f} s"])
    return rows


def _table(rows: Rows, markdown: bool) -> None:
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
