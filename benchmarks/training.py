"""How much of a training step is not the recurrence: data, Cayley transform, head, loss, optimizer.

python benchmarks/training.py [DIR with MNIST]
"""

import sys
from pathlib import Path

from scornn.program import tasks
from scornn.program.analysis import seconds_per_step
from scornn.program.cli._bench import Shape, contenders, shortest
from scornn.program.cli.bench import table
from scornn.program.recipes.presets import resolve
from scornn.program.tasks import TASKS

GOALS = {"mnist": "10 %", "copying": "25 %"}


def measure(name: str, data: Path | None, steps: int = 50, **changes: object) -> dict[str, object]:
    """A step of the paper's scoRNN on a task, and the recurrence of the same shape."""
    config = resolve({"task": {**TASKS[name].table(), **changes}, "model": {"name": "scornn"}})[0]
    task = tasks.make(config.task, config.seed, data)
    whole = seconds_per_step(config, task, steps=steps)["seconds_per_step"]
    inputs, n = task.batch("train", 0, 0).inputs, config.model.hidden
    shape = Shape(name, n, inputs.shape[1], len(inputs), inputs.shape[2], "all" if task.read == "all" else "last")
    alone = shortest({"recurrence": next(iter(contenders(shape).values()))}, 10)["recurrence"]
    row = {"training step": f"{name}, scoRNN n = {n}", "ms": 1e3 * whole, "recurrence ms": 1e3 * alone}
    return row | {"around it (goal)": f"{100 * (1 - alone / whole):.1f} % ({GOALS[name]})"}


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    print(table([measure(name, folder) for name in GOALS]))
