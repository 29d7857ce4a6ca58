"""What every task is: batches by position, a loss, the figures people read, and a baseline to beat."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from scornn.program.data import draws

OF_A_BATCH = "first batch sha256"
"""In the fingerprint of data that is taken from what a task gives, and not from files."""


@dataclass(frozen=True)
class Batch:
    """Some samples of a task.

    Args:
        inputs: (T, B, m) float32.
        targets: (T, B, ...) for a target at every step, (B, ...) for one at the end.
        lengths: (B,) int64 on the CPU, the steps of each sample that count, or None where all T do.
        padded: the steps to which a protocol pads every sample when it averages, where one does.
    """

    inputs: Tensor
    targets: Tensor
    lengths: Tensor | None = None
    padded: int | None = None

    @property
    def size(self) -> int:
        """B, the number of samples."""
        return self.inputs.shape[1]

    @property
    def valid(self) -> Tensor:
        """(T, B), which steps count: those of a sample, and not the padding after its end."""
        steps = torch.arange(self.inputs.shape[0], device=self.inputs.device).unsqueeze(1)
        ends = torch.full((self.size,), len(steps)) if self.lengths is None else self.lengths
        return steps < ends.to(steps.device)

    def shard(self, rank: int, world_size: int, read: Literal["all", "last"] = "all") -> "Batch":
        """The samples rank, rank + world_size, ... of the batch: every sample belongs to one rank.

        What is read only at the end has its targets there, also where T, B and their own size are one number.
        """
        if not 0 <= rank < world_size:
            raise ValueError(f"rank must be in 0 .. {world_size - 1}, got {rank}")
        if world_size == 1:
            return self
        own = slice(rank, None, world_size)
        at_every_step = read == "all" and self.targets.shape[:2] == self.inputs.shape[:2]
        targets = self.targets[:, own] if at_every_step else self.targets[own]
        lengths = None if self.lengths is None else self.lengths[own]
        return replace(self, inputs=self.inputs[:, own], targets=targets, lengths=lengths)

    def to(self, device: torch.device | str) -> "Batch":
        """The batch on a device; lengths stay on the CPU, where packing wants them."""
        inputs, targets = (t.to(device, non_blocking=True) for t in (self.inputs, self.targets))
        return replace(self, inputs=inputs, targets=targets)


class Task(ABC):
    """Data, loss and metrics of one problem.

    ``batch(split, epoch, step)`` is a pure function of the task's configuration, its seed and these three:
    the position is the whole state, and nothing has to be saved to resume.
    """

    name: str
    input_size: int
    output_size: int
    read: Literal["all", "last"]
    splits: tuple[str, ...]
    baseline: float | None
    """The loss of the naive strategy that a model must beat."""
    headline: str
    """The key of the metric that people compare."""
    goal: Literal["max", "min"]
    """Whether a larger or a smaller headline is better."""

    _order: tuple[tuple[str, int], NDArray[np.int64]] | None = None
    """The last order that was drawn, and its split and epoch."""

    about: str = ""
    """What a reader must know to read its figures; ``{steps}`` stands for the length T, or nothing."""

    in_words: str = ""
    """What was found in the data, in one line."""

    doubts: Sequence[str] = ()
    """What looks like a mistake in the data and may be none: each is a warning before training."""

    ragged: bool = False
    """Whether its sequences end at different steps."""

    sources: Mapping[str, str] = {}
    """What identifies the files of the data, by their names; empty where there are none."""

    def __init__(self, config: Any, seed: int, data: Path | None = None) -> None:
        self.config, self.seed = config, seed

    def size(self, split: str) -> int:
        """The number of samples in a split: the config's, unless a task says otherwise."""
        return int(self.config.train_size if split == "train" else self.config.test_size)

    def batch_size(self, split: str) -> int:
        """The number of samples in a batch of a split (the last may be smaller): the config's, too."""
        return int(self.config.batch if split == "train" else self.config.eval_batch)

    @abstractmethod
    def batch(self, split: str, epoch: int, step: int) -> Batch:
        """Batch number ``step`` of an epoch, 0 <= step < num_batches(split)."""

    @abstractmethod
    def loss(self, outputs: Tensor, batch: Batch) -> tuple[Tensor, int]:
        """(sum, count): the loss is sum / count, and over ranks or batches both add up."""

    @abstractmethod
    def measure(self, outputs: Tensor, batch: Batch) -> dict[str, tuple[float, float]]:
        """Per metric (sum, count), "loss" among them."""

    def fingerprint(self) -> dict[str, str]:
        """What identifies the data: its sources, or for each split its size and the sha256 of its first batch."""
        if self.sources:
            return dict(self.sources)
        return {split: f"{self.size(split)} samples, {self._digest(split)}" for split in self.splits}

    def _digest(self, split: str) -> str:
        batch = self.batch(split, 0, 0)
        digest = hashlib.sha256()
        for tensor in (batch.inputs, batch.targets):
            digest.update(tensor.contiguous().numpy().tobytes())
        if batch.lengths is not None:
            digest.update(torch.as_tensor(batch.lengths, dtype=torch.int64).numpy().tobytes())
        return f"{OF_A_BATCH} {digest.hexdigest()}"

    def num_batches(self, split: str) -> int:
        """Batches in one pass over a split."""
        return -(-self.size(split) // self.batch_size(split))

    def rows(self, split: str, step: int) -> range:
        """The places, in the epoch's order, of the samples of batch ``step``."""
        if split not in self.splits:
            raise ValueError(f"{self.name} has no split {split!r}; its splits are {', '.join(self.splits)}")
        if not 0 <= step < self.num_batches(split):
            raise IndexError(f"step must be in 0 .. {self.num_batches(split) - 1} of {split!r}, got {step}")
        first = step * self.batch_size(split)
        return range(first, min(first + self.batch_size(split), self.size(split)))

    def shuffled(self, split: str, epoch: int, step: int) -> NDArray[np.int64]:
        """The samples of batch ``step``, in an order of the split that is drawn from ``seed`` for each epoch."""
        if self._order is None or self._order[0] != (split, epoch):
            stream = f"{type(self.config).__struct_config__.tag}/{split}"
            self._order = (split, epoch), draws.permutation(self.seed, stream, epoch, self.size(split))
        rows = self.rows(split, step)
        return self._order[1][rows.start : rows.stop]


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """The sum of all cross-entropies, of outputs ``(…, p)`` and classes ``(…)``."""
    rows, targets = outputs.flatten(0, -2), targets.flatten()
    if rows.is_cpu and rows.shape[1] < 16:  # torch takes fewer than a vector holds one by one: samples lie innermost
        rows, targets = rows.mT.contiguous().unsqueeze(0), targets.unsqueeze(0)
    return F.cross_entropy(rows, targets, reduction="sum")


class TaskForm(msgspec.Struct, frozen=True, omit_defaults=True):
    """What of a task outlives its data, kept with every checkpoint: what its network takes and gives.

    Args:
        name: as on the command line.
        input_size: m of an input ``(T, B, m)``.
        output_size: p of an output.
        read: ``all``, outputs ``(T, B, p)``; or ``last``, outputs ``(B, p)``.
        headline: the metric that people compare.
        goal: whether more of it is better.
        ragged: whether sequences ended at different steps, so that a network wants their lengths.
    """

    name: str
    input_size: Annotated[int, msgspec.Meta(ge=1)]
    output_size: Annotated[int, msgspec.Meta(ge=1)]
    read: Literal["all", "last"]
    headline: str
    goal: Literal["max", "min"]
    ragged: bool = False

    @classmethod
    def of(cls, name: str, task: Task | type[Task]) -> "TaskForm | None":
        """That of a task, or of a class of tasks; None where the class leaves a member to its instances."""
        members: list[Any] = [getattr(task, member, None) for member in cls.__struct_fields__[1:]]
        return None if None in members else cls(name, *members)


class Level(Enum):
    """What another value of a config's field makes of a run: in ``Annotated[..., Level.X]`` of the field.

    A field without a level is part of the setting: with another value it is another experiment.
    """

    NAME = "what it is called and where its files are"
    MACHINE = "how it is computed: threads, device, batches of an evaluation"
    LENGTH = "how long it goes on"
    SAMPLE = "a sample of the same setting: its seed, how often it is evaluated"
    VARIANT = "the same experiment with more or less data, or an average beside it"
    PROBLEM = "another problem: results cannot be compared"


class TaskConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="name"):
    """The settings of a task; ``name`` tells tasks apart in TOML and JSON."""
