"""``scornn bench --training`` and ``--models``: whole training steps, as the program makes them."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any


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
    """Seconds of a training step of every model at the shape of pixel MNIST: batch 50, 784 steps."""
    import msgspec

    from scornn import tasks
    from scornn.analysis.timing import seconds_per_step
    from scornn.nn import MODELS

    rows = []
    task = None
    for name, model in MODELS.items():
        backends = ("auto", "naive") if name == "lstm" else ("auto",)  # its naive loop is torch's own: a peer
        for n, backend in product(model.bench if only in (None, name) else (), backends):
            progress(f"{name} {n}")
            config = msgspec.structs.replace(_config("mnist", name, n, data), backend=backend)
            task = task or tasks.make(config.task, config.seed, data)
            measured = seconds_per_step(config, task, steps=20, seconds=5, warmup=1, least=1)
            rows.append({"model": name, "n": n, "backend": backend, **measured})
    return {"models": rows}


def _config(task: str, model: str, hidden: int | None, data: Path | None) -> Any:
    from scornn.paper.presets import resolve
    from scornn.tasks import TASKS

    size = {} if hidden is None else {"hidden": hidden}
    table: dict[str, Any] = {"task": TASKS[task].table(), "model": {"name": model, **size}}
    if task == "mnist":
        table["task"]["batch"] = 50
    if data is not None:
        table["data"] = str(data)
    return resolve(table)[0]


def training_rows(report: dict[str, Any]) -> list[list[str]]:
    rows = [["training step", "ms", "recurrence ms", "around it (limit)", "data", "optimizer", "rest"]]
    for r in report["training"]:
        parts = r["parts"]
        share = "-" if r["share"] is None else f"{100 * r['share']:.1f} % ({100 * r['limit']:.0f} %)"
        recurrence = "-" if r["recurrence"] is None else f"{r['recurrence']:.1f}"
        named = [f"{parts[part]:.2f} ms" for part in ("data", "optimizer", "rest")]
        rows.append([f"{r['task']}, scoRNN n={r['n']}", f"{r['step']:.1f}", recurrence, share, *named])
    return rows


def model_rows(report: dict[str, Any]) -> list[list[str]]:
    rows = [["model", "n", "parameters", "ms a step", "steps timed", "minutes an epoch of 1,100"]]
    for r in report["models"]:
        seconds = r["seconds_per_step"]
        epoch = f"{seconds * 1100 / 60:.1f}"
        name = r["model"] if r["backend"] == "auto" else f"{r['model']} (torch's loop)"
        rows.append([name, str(r["n"]), f"{r['parameters']:,}", f"{1e3 * seconds:.1f}", str(r["steps"]), epoch])
    return rows
