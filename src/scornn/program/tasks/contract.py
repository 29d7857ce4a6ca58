"""What every task promises, looked at before a run is made and in each batch: one that breaks it is refused."""

import math
from contextlib import suppress

import torch
from torch import Tensor

from scornn.errors import UsageError
from scornn.nn.model import checked_lengths
from scornn.program.tasks.base import Batch, Task
from scornn.program.tasks.catalogue import faults_told

_CHOICES = {"read": ("all", "last"), "goal": ("max", "min")}
NOT_METRICS = ("step", "epoch", "split", "weights", "orthogonality", "seconds")
"""What a line of ``metrics.jsonl`` says beside the metrics."""
_MANY = 1 << 24
"""Outputs from which the loss of one sample is enough."""


def check(task: Task) -> None:
    """Refuse a task that is not what :class:`Task` says: its members, and the first batch of each split."""
    for member, choices in _CHOICES.items():
        if (found := getattr(task, member, None)) not in choices:
            raise UsageError(f"the task {task.name}: {member} = {found!r}; expected one of {', '.join(choices)}")
    for member in ("input_size", "output_size"):
        if type(found := getattr(task, member, None)) is not int or found < 1:
            raise UsageError(f"the task {task.name}: {member} is {_typed(found)}; expected an int from 1 on")
    if not isinstance(task.in_words, str):
        raise UsageError(f"the task {task.name}: in_words is {_typed(task.in_words)}; expected a str")
    if not isinstance(task.about, str):
        raise UsageError(f"the task {task.name}: about is {_typed(task.about)}; expected a str")
    if not isinstance(task.doubts, list | tuple) or not all(isinstance(doubt, str) for doubt in task.doubts):
        raise UsageError(f"the task {task.name}: doubts is {_typed(task.doubts)}; expected a list of str")
    baseline = getattr(task, "baseline", "not there")
    if baseline is not None and (not isinstance(baseline, int | float) or not math.isfinite(baseline)):
        raise UsageError(f"the task {task.name}: baseline is {_typed(baseline)}; expected a finite float, or None")
    if not {"train", "test"} <= set(splits := getattr(task, "splits", ())):
        raise UsageError(f"the task {task.name}: splits = {splits!r}; expected train and test among them")
    for split in task.splits:
        with faults_told(type(task), task.name, f"fails on its first batch of {split}"):
            _check_split(task, split)


def fingerprint(task: Task) -> dict[str, str]:
    """What identifies the data of a task, as a checkpoint can hold it."""
    with faults_told(type(task), task.name, "fails in fingerprint()"):
        found = task.fingerprint()
        texts = isinstance(found, dict) and all(type(text) is str for pair in found.items() for text in pair)
        if not texts:
            raise UsageError(f"the task {task.name}: fingerprint() is {found!r}; expected a dict of str by str")
    return found


def _typed(found: object) -> str:
    return f"{found!r}, {type(found).__name__}"


def take(task: Task, split: str, epoch: int, step: int) -> Batch:
    """A batch of a task, of the form that was promised."""
    where = f"batch {step + 1} of {split}"
    with faults_told(type(task), task.name, f"fails on {where}"):
        batch = task.batch(split, epoch, step)
        _check_batch(task, where, batch)
    return batch


def _check_split(task: Task, split: str) -> None:
    for member in ("size", "batch_size"):
        if type(size := getattr(task, member)(split)) is not int or size < 1:
            raise UsageError(f"the task {task.name}: {member}({split!r}) is {_typed(size)}; expected an int from 1 on")
    batch = take(task, split, 0, 0)
    steps = batch.inputs.shape[:1] if task.read == "all" else ()
    if batch.inputs.shape[0] * batch.size * task.output_size > _MANY:
        batch = batch.shard(0, batch.size, task.read)
    outputs = torch.zeros(*steps, batch.size, task.output_size)
    with torch.enable_grad():
        total, count = task.loss(outputs.clone().requires_grad_(), batch)
    if not isinstance(total, Tensor) or total.dim() or not count > 0:
        raise UsageError(
            f"the task {task.name}: loss() is {(total, count)!r}; expected a tensor, the sum, and its count"
        )
    if not total.requires_grad:
        raise UsageError(f"the task {task.name}: loss() has no gradient; expected a sum that depends on the outputs")
    metrics = task.measure(outputs, batch)
    if missing := {"loss", task.headline} - set(metrics):
        raise UsageError(
            f"the task {task.name}: measure() has no {' and no '.join(sorted(missing))}; expected loss and the headline"
        )
    for name, pair in metrics.items():
        if name in NOT_METRICS:
            raise UsageError(
                f"the task {task.name}: measure() has a metric {name!r}, which means something else in metrics.jsonl; "
                "expected another name"
            )
        numbers = isinstance(pair, tuple | list) and [number for number in pair if isinstance(number, int | float)]
        if not numbers or len(numbers) != 2:
            raise UsageError(
                f"the task {task.name}: measure()[{name!r}] is {pair!r}; expected two numbers, sum and count"
            )
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


def _check_batch(task: Task, where: str, batch: Batch) -> None:
    def refuse(what: str, found: object) -> None:
        raise UsageError(f"the task {task.name}, {where}: expected {what}; got {found}")

    if not isinstance(batch, Batch):
        refuse("a Batch", type(batch).__name__)
    for tensor in (batch.inputs, batch.targets):
        if not isinstance(tensor, Tensor):
            refuse("inputs and targets that are tensors", type(tensor).__name__)
        if tensor.requires_grad:
            refuse("inputs and targets without a gradient", "a tensor that requires one; detach() it")
    inputs, targets = batch.inputs, batch.targets
    if inputs.dtype != torch.float32:
        refuse("inputs in torch.float32", inputs.dtype)
    if inputs.dim() != 3 or inputs.shape[2] != task.input_size:
        refuse(f"inputs (T, B, {task.input_size})", tuple(inputs.shape))
    if targets.shape[:1] != inputs.shape[1:2] and targets.shape[:2] != inputs.shape[:2]:
        refuse(
            "inputs (T, B, m) with targets (B, …) or (T, B, …)", f"{tuple(inputs.shape)} with {tuple(targets.shape)}"
        )
    if batch.lengths is not None:
        checked_lengths(inputs, batch.lengths)
