"""How much of a training step is not the recurrence: data, Cayley transform, head, loss, optimizer, logging.

The training loop itself runs, in a temporary run directory with its logging and checkpoints, and marks the end of
each part of a step. The recurrence alone, forward and backward on tensors of the same shapes, is timed between
the steps, so that both see the same state of the machine.
"""

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec
import torch

from scornn.matrices.complex import ProductMatrix
from scornn.nn import RNN
from scornn.ops import recurrence
from scornn.ops.activations import ACTIVATIONS
from scornn.program import tasks
from scornn.program.train.config import Config
from scornn.program.train.distributed import World
from scornn.program.train.engine import make_task
from scornn.program.train.loop import Trainer
from scornn.program.train.run import Run

PARTS = ("data", "forward", "backward", "optimizer", "rest")


def measure(config: Config, steps: int = 50, warmup: int = 5) -> dict[str, Any]:
    """Milliseconds of each part of a step (medians), of the recurrence alone, and the share that is not it.

    ``rest`` is what the loop does between steps: metrics, progress, and the checkpoints that fall due, spread over
    the steps between them. Evaluations are left out: how often they are made is a choice of the protocol.

    Args:
        config: the run to time; its length and its evaluations are set aside.
        steps: how many steps to time, after ``warmup`` of them.

    Returns:
        ``{"step": ms, "recurrence": ms, "share": 0..1, "parts": {part: ms}, "checkpoint": ms, "steps": n}``.
        ``recurrence`` and ``share`` are None for a model that does not run on :func:`scornn.ops.recurrence`.
    """
    made = warmup + steps
    every = config.checkpoint_every
    config = msgspec.structs.replace(
        config, steps=made + 1, epochs=None, eval_every=made + 2, checkpoint_every=made + 2, stop_when={}
    )
    torch.set_num_threads(config.threads)
    task = make_task(config)
    rows: list[dict[str, float]] = []
    alone: list[float] = []
    row: dict[str, float] = {}
    mark = time.perf_counter()

    def clock(part: str) -> None:
        nonlocal mark, row
        now = time.perf_counter()
        row[part] = 1e3 * (now - mark)
        if part == "rest":
            rows.append(row)
            row = {}
            if bare is not None and len(rows) <= made:
                alone.append(bare())
        mark = time.perf_counter()

    trainer = Trainer(config, task, World(device=config.device), clock)
    bare = _recurrence_alone(trainer, task)
    with tempfile.TemporaryDirectory() as directory, Run(Path(directory) / "run") as run:
        trainer.attach(run)
        mark = time.perf_counter()
        trainer.run()
        begun = time.perf_counter()
        trainer.save()
        checkpoint = 1e3 * (time.perf_counter() - begun)
    timed = rows[warmup:made]
    # Lines of the metrics fall due on some steps only: the mean, not the median, counts them.
    parts = {part: statistics.median(row[part] for row in timed) for part in PARTS[:-1]}
    parts["rest"] = statistics.fmean(row["rest"] for row in timed) + checkpoint / every
    step = sum(parts.values())
    own = statistics.median(alone[warmup:]) if alone else None
    return {
        "step": step,
        "recurrence": own,
        "share": None if own is None else 1 - own / step,
        "parts": parts,
        "checkpoint": checkpoint,
        "steps": steps,
    }


def _recurrence_alone(trainer: Trainer, task: tasks.Task) -> Any:
    """A function that runs the layer's recurrence, forward and backward, and returns its milliseconds."""
    layer: Any = trainer.engine.model.layer
    if not isinstance(layer, RNN) or layer.num_layers > 1 or layer.bidirectional or layer.kind not in ACTIVATIONS:
        return None
    matrix = layer.matrix("_l0")
    if isinstance(matrix, ProductMatrix) and matrix.runs_as_product(layer.backend):
        return None
    x = task.batch("train", 0, 0).to(trainer.world.device).inputs
    with torch.no_grad():
        W, U, b = layer.operands("_l0")
    leaves = [tensor.detach().clone().requires_grad_() for tensor in (W, U) + ((b,) if b is not None else ())]
    h0 = x.new_zeros(x.shape[1], W.shape[0])
    like = torch.randn(x.shape[0], *h0.shape, device=x.device) if task.read == "all" else torch.randn_like(h0)

    def run() -> float:
        begun = time.perf_counter()
        output, last = recurrence(x, h0, *leaves, activation=layer.activation, backend=layer.backend)
        torch.autograd.grad(output if task.read == "all" else last, leaves, like)
        return 1e3 * (time.perf_counter() - begun)

    return run
