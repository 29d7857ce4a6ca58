"""``scornn bench --training`` and ``--models``: whole training steps, as the program makes them."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

VARIANTS: dict[str, tuple[dict[str, Any], ...]] = {"eurnn": ({"capacity": 2}, {"style": "fft"})}
"""Options of the layer, for each of which the model is timed."""

PLAIN = {"lstm": "naive", "gru": "naive", "goru": "naive", "urnn": "manual", "eurnn": "manual"}
"""The rung in PyTorch that a model ran on before the kernel had one for it; that of the LSTM is torch's own."""


def training(data: Path | None, steps: int) -> dict[str, Any]:
    """What of a training step is not the recurrence, for the paper's scoRNN on MNIST and on copying."""
    from scornn.analysis import overhead
    from scornn.tasks import TASKS

    rows = []
    for task, limit in ((name, entry.overhead) for name, entry in TASKS.items() if entry.overhead is not None):
        config = _config(task, "scornn", None, data)
        rows.append({"task": task, "n": config.model.hidden, "limit": limit, **overhead.measure(config, steps)})
    return {"training": rows}


def models(data: Path | None, only: str | None, progress: Any) -> dict[str, Any]:
    """Seconds of a training step of every model at the shape of pixel MNIST: the shortest of them."""
    import msgspec
    import torch

    from scornn import tasks
    from scornn.analysis.bench import peak_flops
    from scornn.analysis.timing import seconds_per_step
    from scornn.nn import MODELS

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
    from scornn.paper.presets import resolve
    from scornn.tasks import TASKS

    size = {} if hidden is None else {"hidden": hidden}
    table: dict[str, Any] = {"task": TASKS[task].table(), "model": {"name": model, **size, "options": options or {}}}
    if task == "mnist":
        table["task"]["batch"] = 50
    if data is not None:
        table["data"] = str(data)
    return resolve(table)[0]


def training_rows(report: dict[str, Any]) -> list[list[str]]:
    rows = [["training step", "ms", "recurrence ms", "around it", "data", "optimizer", "rest"]]
    for r in report["training"]:
        parts = r["parts"]
        share = "-" if r["share"] is None else f"{100 * r['share']:.1f} %"
        recurrence = "-" if r["recurrence"] is None else f"{r['recurrence']:.1f}"
        named = [f"{parts[part]:.2f} ms" for part in ("data", "optimizer", "rest")]
        rows.append([f"{r['task']}, scoRNN n={r['n']}", f"{r['step']:.1f}", recurrence, share, *named])
    return rows


def model_rows(report: dict[str, Any]) -> list[list[str]]:
    from scornn.analysis.timing import EPOCH

    rows = [["model", "n", "parameters", "ms a step", "of peak", "PyTorch ms", "×", "min/epoch"]]
    for r in report["models"]:
        seconds, share, plain = r["seconds"], r["share_of_peak"], r.get("plain")
        name = " ".join([r["model"], *(f"{key}={value}" for key, value in r["options"].items())])
        cells = [name, str(r["n"]), f"{r['parameters']:,}", f"{1e3 * seconds:.1f}"]
        cells.append("-" if share is None else f"{share:.2f}")
        cells += ["", ""] if plain is None else [f"{1e3 * plain:.0f}", f"{plain / seconds:.1f}"]
        rows.append([*cells, f"{seconds * EPOCH / 60:.1f}"])
    return rows
