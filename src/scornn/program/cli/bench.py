"""Measure this machine: the recurrence beside PyTorch's own layers, every model, trained networks, or streams.

Each shape is a training step of one of the paper's experiments (one-stream: inference), run by the backends of the
operator, by torch.nn.RNN of the same size, and by torch.nn.LSTM with the same number of parameters. They take turns,
and the shortest time of each counts. No data set is needed. More is measured by the programs in benchmarks/.

Examples:
    scornn bench --quick
    scornn bench --shape copying --json
    scornn bench --models --model lstm
    scornn bench --deployed --threads 1
    scornn bench --stream --quick
"""

import json
import sys
from dataclasses import dataclass
from typing import Annotated, Any

from scornn.errors import UsageError
from scornn.program.cli._options import at_least_one, flag, option


@dataclass(frozen=True)
class Flags:
    quick: Annotated[bool, flag("Under a minute: shorter sequences, fewer rounds.")] = False
    models: Annotated[
        bool, flag("A training step of every model at the shape of pixel MNIST, and beside it the same in PyTorch.")
    ] = False
    deployed: Annotated[bool, flag("Networks without gradients: as trained, frozen, and in ONNX Runtime.")] = False
    stream: Annotated[
        bool, flag("Nanoseconds of a frame: the kernel, the exported C file, Python, ONNX Runtime and torch.")
    ] = False
    shape: Annotated[str | None, option("NAME", "This shape alone.")] = None
    model: Annotated[str | None, option("NAME", "With --models: this model alone.")] = None
    rounds: Annotated[int | None, option("N", "Turns of every contender; else 15, with --quick 5.")] = None
    threads: Annotated[int | None, option("N", "Threads; else as many as cores, with --stream 1.")] = None
    json: Annotated[bool, flag("Print one JSON object.")] = False


def main(flags: Flags) -> int:
    at_least_one(rounds=flags.rounds, threads=flags.threads)
    import torch

    from scornn.nn import MODELS
    from scornn.ops import backends, library
    from scornn.program.cli import _bench, _streams
    from scornn.program.progress import Bar
    from scornn.program.train import provenance

    shapes = {shape.name: shape for shape in _bench.SHAPES}
    names = _chosen("shape", flags.shape, list(shapes)), _chosen("model", flags.model, list(MODELS))
    torch.set_num_threads(flags.threads or (1 if flags.stream else torch.get_num_threads()))
    rounds = flags.rounds or (5 if flags.quick else 15)
    if flags.models:
        measured = _bench.models(names[1], rounds)
    elif flags.deployed:
        measured = _bench.deployed(rounds)
    elif flags.stream:
        measured = _streams.streams(rounds)
    else:
        chosen = [shapes[name] for name in names[0]]
        if flags.quick:
            chosen = [s._replace(T=s.T // 4) if s.T >= 400 and s.use != "inference" else s for s in chosen]
        measured = _bench.recurrences(chosen, rounds)
    before, rows = _bench.peak(), []
    with Bar("measuring", shown=sys.stderr.isatty(), aside=True) as bar:
        for row in measured:
            rows.append(row)
            bar.update(len(rows), next(iter(row.values())))
    peak, had = max((before, _bench.peak()))
    for row in rows:
        if "of peak" in row:
            row["of peak"] = None if row["of peak"] > peak else row["of peak"] / peak
    machine, kernel = provenance.machine(), library.instruction_set() or backends()["native"]
    if flags.json:
        facts = {"machine": machine, "versions": provenance.versions(), "threads": torch.get_num_threads()}
        print(json.dumps({**facts, "kernel": kernel, "peak": peak, "rows": rows}, indent=2, ensure_ascii=False))
        return 0
    here = f"{machine['processor']}, {machine['cores']} cores, {torch.get_num_threads()} threads"
    fma = f", FMA peak {peak / 1e9:.0f} GFLOP/s" if peak else ""
    print(f"{here}, torch {torch.__version__}, kernel {kernel}{fma}, float32.\n")
    print(table(rows))
    if peak and (had < 0.9 or any(row.get("of peak", 0) is None for row in rows)):
        print(
            f"\nThe cores are shared: other programs left the measured peak {100 * had:.0f} % of the processors' time. "
            "Times are too long, ratios distorted, and shares above the peak are left out."
        )
    return 0


def _chosen(kind: str, name: str | None, known: list[str]) -> list[str]:
    if name is not None and name not in known:
        raise UsageError(f"unknown {kind} {name!r}; the {kind}s are {', '.join(known)}")
    return known if name is None else [name]


def table(rows: list[dict[str, Any]]) -> str:
    """Rows as Markdown, which a terminal shows as well."""
    text = [list(rows[0]), *([_cell(title, value) for title, value in row.items()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*text, strict=True)]
    text.insert(1, ["-" * width for width in widths])
    sides = ["<", *">" * (len(widths) - 1)]
    lines = [[f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True)] for row in text]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(title: str, value: Any) -> str:
    if value is None:
        return "-"
    if not isinstance(value, float):
        return f"{value:,}" if isinstance(value, int) else value
    return f"{value:.2f}" if title == "of peak" else f"{value:.3g}" if value < 100 else f"{value:,.0f}"
