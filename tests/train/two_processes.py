"""One of two processes that go through every case together; rank 0 prints what is wrong with each, as JSON.

Each case: four steps of two processes on batches of three, three and one sample of different lengths, so that shares
are uneven and one is empty; against one process alone, and against a run that was resumed in the middle.
"""

import json
import math
import sys
import traceback
from typing import Any

import torch

from scornn.nn.catalogue import MODELS
from scornn.program.tasks import Batch, Task, TaskConfig, make, task
from scornn.program.train import distributed, state
from scornn.program.train.config import build
from scornn.program.train.distributed import World
from scornn.program.train.loop import Trainer

STEPS = 4


class RaggedConfig(TaskConfig, frozen=True, kw_only=True, tag="ragged"):
    pass


@task("ragged", RaggedConfig)
class Ragged(Task):
    """The running sum of a sequence; sequences end at different steps."""

    input_size, output_size, read = 2, 1, "all"
    splits = ("train", "test")
    baseline, headline, goal = None, "loss", "min"

    def __init__(self, config: RaggedConfig, seed: int, data: object = None) -> None:
        generator = torch.Generator().manual_seed(3)
        self.inputs = torch.randn(6, 7, 2, generator=generator)
        self.lengths = torch.tensor([6, 2, 5, 1, 4, 3, 6])

    def size(self, split: str) -> int:
        return 7

    def batch_size(self, split: str) -> int:
        return 3

    def batch(self, split: str, epoch: int, step: int) -> Batch:
        rows = self.rows(split, step)
        inputs, lengths = self.inputs[:, rows.start : rows.stop], self.lengths[rows.start : rows.stop]
        return Batch(inputs, inputs.sum(-1, keepdim=True).cumsum(0), lengths)

    def loss(self, outputs: torch.Tensor, batch: Batch) -> tuple[torch.Tensor, int]:
        assert batch.lengths is not None
        valid = (torch.arange(len(outputs))[:, None] < batch.lengths).unsqueeze(-1)
        return torch.where(valid, outputs - batch.targets, 0).square().sum(), int(batch.lengths.sum())

    def measure(self, outputs: torch.Tensor, batch: Batch) -> dict[str, tuple[float, float]]:
        total, count = self.loss(outputs, batch)
        return {"loss": (total.item(), count)}


RMSPROP: dict[str, Any] = {"kind": "rmsprop", "lr": 1e-3}
CASES: dict[str, dict[str, Any]] = {name: {"model": {"name": name, "hidden": 4}} for name in MODELS}
CASES |= {
    kind: {"model": {"name": "scornn", "hidden": 5}, "optimizer": {"recurrent": {"kind": kind, "lr": 1e-3}}}
    for kind in ("sgd", "adam", "adamw")
}
CASES |= {
    kind: {"model": {"name": "full-urnn", "hidden": 4}, "optimizer": {"recurrent": {"kind": kind, "lr": 1e-3}}}
    for kind in ("stiefel", "stiefel-rms")
}
CASES["penalty"] = {"model": {"name": "rnn", "hidden": 4, "options": {"soft_orthogonality": 0.1}}}
CASES["average"] = {"model": {"name": "scornn", "hidden": 4}, "optimizer": {"average": {"decay": 0.5}}}
CASES["dropout"] = {"model": {"name": "scornn", "hidden": 4, "options": {"num_layers": 2, "dropout": 0.5}}}
ADDING = {"name": "adding", "length": 5, "train_size": 12, "test_size": 8, "batch": 6, "eval_batch": 4}
CASES["norm"] = {"task": ADDING, "model": {"name": "scornn", "hidden": 4, "readout": {"width": 3, "norm": True}}}
CASES["lstm with dropout"] = {"model": {"name": "lstm", "hidden": 4, "options": {"num_layers": 2, "dropout": 0.5}}}


def trainer(case: dict[str, Any], world: World) -> Trainer:
    optimizer = {"rest": RMSPROP, "recurrent": RMSPROP, **case.get("optimizer", {})}
    table = {"task": case.get("task", {"name": "ragged"}), "model": case["model"], "optimizer": optimizer, "threads": 1}
    config = build({**table, "steps": STEPS, "eval_every": STEPS})
    return Trainer(config, make(config.task, config.seed), world)


def advance(made: Trainer, steps: int) -> list[float]:
    losses = []
    for _ in range(steps):
        epoch, number = divmod(made.ledger.step, made.steps_per_epoch)
        losses.append(made.engine.step(epoch, number).loss)
        made.ledger.step += 1
    return losses


def problems(name: str, case: dict[str, Any], world: World) -> list[str]:
    straight = trainer(case, world)
    losses = advance(straight, STEPS)
    found = [] if all(map(math.isfinite, losses)) else [f"losses {losses}"]
    first = trainer(case, world)
    advance(first, 2)
    saved = [{k: v.clone() for k, v in part.items()} for part in state.capture(first.engine)[:2]]
    plain = json.loads(json.dumps(state.capture(first.engine)[2]))
    second = trainer(case, world)
    state.restore(second.engine, saved[0], saved[1], plain)
    second.ledger.step = 2
    if advance(second, 2) != losses[2:]:
        found.append("losses after resuming differ")
    for key, value in straight.engine.model.state_dict().items():
        if not torch.equal(value, second.engine.model.state_dict()[key]):
            found.append(f"{key} after resuming differs")
    ranks = world.gather(
        torch.cat([t.detach().abs().flatten().float() for t in straight.engine.model.state_dict().values()])
    )
    if not torch.equal(ranks[0], ranks[1]):
        found.append("the processes have different weights")
    draws = world.gather(torch.rand(3))
    if torch.equal(draws[0], draws[1]):
        found.append("both processes draw the same masks")
    measured = straight.engine.evaluate("test")
    if "dropout" not in name and name != "norm":  # masks and statistics are those of a process's own samples
        alone = trainer(case, World())
        torch.testing.assert_close(torch.tensor(advance(alone, STEPS)), torch.tensor(losses), rtol=1e-4, atol=1e-5)
        for key, value in alone.engine.model.state_dict().items():
            here = straight.engine.model.state_dict()[key]
            torch.testing.assert_close(here, value, rtol=1e-3, atol=1e-4)
        assert measured is not None
        torch.testing.assert_close(measured, alone.engine.evaluate("test"), rtol=1e-3, atol=1e-5)
    return found


def main() -> None:
    torch.set_num_threads(1)
    world = distributed.start("cpu")
    results = {}
    for name, case in CASES.items():
        try:
            results[name] = problems(name, case, world)
        except Exception:
            results[name] = [traceback.format_exc(limit=-3)]
    world.close()
    if world.first:
        json.dump(results, sys.stdout)


main()
