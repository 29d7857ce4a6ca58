"""What every task promises, checked before a run is made and in each batch."""

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from scornn.errors import UsageError
from scornn.nn.model import checked_lengths
from scornn.program.tasks.base import Batch, Task
from scornn.program.tasks.catalogue import faults_told

NOT_METRICS = ("step", "epoch", "split", "weights", "orthogonality", "seconds")
"""What a line of ``metrics.jsonl`` says beside the metrics."""
_MANY = 1 << 24
"""Outputs from which the loss of one sample is enough."""


def _size(found: Any) -> bool:
    return isinstance(found, int) and found >= 1


_MEMBERS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "input_size": ("an int from 1 on", _size),
    "output_size": ("an int from 1 on", _size),
    "read": ("all or last", lambda found: found in ("all", "last")),
    "goal": ("max or min", lambda found: found in ("max", "min")),
    "splits": ("train and test among them", lambda found: {"train", "test"} <= set(found)),
    "baseline": (
        "a finite float, or None",
        lambda found: found is None or (isinstance(found, int | float) and math.isfinite(found)),
    ),
}
"""What is expected of a task's members: in words, and as a test."""


def check(task: Task) -> None:
    """Refuse a task that is not what :class:`Task` says: its members, and the first batch of each split."""
    for member, (expected, fits) in _MEMBERS.items():
        _expect(fits(found := getattr(task, member, "not there")), task, member, found, expected)
    for split in task.splits:
        with faults_told(type(task), task.name, f"fails on its first batch of {split}"):
            _check_split(task, split)


def _expect(holds: bool, task: Task, what: str, found: object, expected: str) -> None:
    if not holds:
        raise UsageError(f"the task {task.name}: {what} is {found!r}; expected {expected}")


def fingerprint(task: Task) -> dict[str, str]:
    """What identifies the data of a task, as a checkpoint can hold it."""
    with faults_told(type(task), task.name, "fails in fingerprint()"):
        found = task.fingerprint()
        texts = isinstance(found, dict) and all(type(text) is str for pair in found.items() for text in pair)
        if not texts:
            raise UsageError(f"the task {task.name}: fingerprint() is {found!r}; expected a dict of str by str")
    return found


def take(task: Task, split: str, epoch: int, step: int) -> Batch:
    """A batch of a task, of the form that was promised."""
    where = f"batch {step + 1} of {split}"
    with faults_told(type(task), task.name, f"fails on {where}"):
        batch = task.batch(split, epoch, step)
        inputs, targets, m = batch.inputs, batch.targets, task.input_size
        fits = inputs.dtype == torch.float32 and inputs.dim() == 3 and inputs.shape[2] == m
        found = f"{type(inputs).__name__} of {inputs.dtype}, {tuple(inputs.shape)}"
        _expect(fits, task, f"the inputs of {where}", found, f"Tensor of torch.float32, (T, B, {m})")
        fits = targets.shape[:1] == inputs.shape[1:2] or targets.shape[:2] == inputs.shape[:2]
        expected = f"(B, …) or (T, B, …) beside inputs {tuple(inputs.shape)}"
        _expect(fits, task, f"the shape of the targets of {where}", tuple(targets.shape), expected)
        if batch.lengths is not None:
            checked_lengths(inputs, batch.lengths)
    return batch


def _check_split(task: Task, split: str) -> None:
    for member in ("size", "batch_size"):
        size = getattr(task, member)(split)
        _expect(_size(size), task, f"{member}({split!r})", size, "an int from 1 on")
    batch = take(task, split, 0, 0)
    steps = batch.inputs.shape[:1] if task.read == "all" else ()
    if batch.inputs.shape[0] * batch.size * task.output_size > _MANY:
        batch = batch.shard(0, batch.size, task.read)
    outputs = torch.zeros(*steps, batch.size, task.output_size)
    with torch.enable_grad():
        total, count = task.loss(outputs.clone().requires_grad_(), batch)
    fits = isinstance(total, Tensor) and not total.dim() and total.requires_grad and count > 0
    _expect(fits, task, "loss()", (total, count), "a tensor with a gradient, the sum, and its count")
    metrics = task.measure(outputs, batch)
    _expect({"loss", task.headline} <= set(metrics), task, "measure()", metrics, f"loss and {task.headline} in it")
    for name, pair in metrics.items():
        _expect(name not in NOT_METRICS, task, "a metric of measure()", name, "a name that metrics.jsonl does not use")
        fits = len(pair) == 2 and all(isinstance(number, int | float) for number in pair)
        _expect(fits, task, f"measure()[{name!r}]", pair, "two numbers, sum and count")
    if batch.size > 1:
        _check_sums(task, outputs, batch)


def _check_sums(task: Task, outputs: Tensor, batch: Batch) -> None:
    """Refuse a mean in place of a sum: divided by its count once more, it would look better than it is.

    The means of both halves add up to two of the whole, and their counts to one.
    """
    whole: dict[str, tuple[float, float]] = {}
    halves: list[dict[str, tuple[float, float]]] = []
    with suppress(Exception):  # a batch with fields of its own may have no halves
        halves = [_pairs(task, outputs[..., rank::2, :], batch.shard(rank, 2, task.read)) for rank in (0, 1)]
        whole = _pairs(task, outputs, batch)
    for name, (total, count) in whole.items():
        parts, counts = (sum(half.get(name, (math.nan, math.nan))[k] for half in halves) for k in (0, 1))
        if abs(parts - 2 * total) < abs(total) / 4 and counts == count:
            raise UsageError(
                f"the task {task.name}: {name} is a mean, {total:.4g} of the first batch and {parts:.4g} of its two "
                f"halves together; expected the sum, of which {count} is the count"
            )


def _pairs(task: Task, outputs: Tensor, batch: Batch) -> dict[str, tuple[float, float]]:
    """Sum and count of the loss and of every metric, by what gives them."""
    total, count = task.loss(outputs, batch)
    measured = task.measure(outputs, batch)
    return {"loss()": (float(total), count), **{f"measure()[{name!r}]": pair for name, pair in measured.items()}}
