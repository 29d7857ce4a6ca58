"""Sequences of your own, in NumPy files: a class or values at the end of each, or at every step.

The files decide which (:mod:`scornn.program.data.arrays`). The baseline answers without looking at the sequence:
classes by their frequencies in training, values by their mean there. Its loss is the one on the test split.
"""

import math
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import torch.nn.functional as F
from msgspec import Meta
from torch import Tensor

from scornn.errors import DataError
from scornn.program.data import arrays
from scornn.program.tasks.base import Batch, Level, Task, TaskConfig, cross_entropy
from scornn.program.tasks.catalogue import task


class ArraysConfig(TaskConfig, frozen=True, kw_only=True, tag="arrays"):
    """Settings of sequences in files."""

    batch: Annotated[int, Meta(ge=1, le=1_000_000), Level.VARIANT] = 50
    eval_batch: Annotated[int, Meta(ge=1, le=1_000_000), Level.MACHINE] = 200


@task("arrays", ArraysConfig, label="arrays", by_folder=True)
class Arrays(Task):
    """The sequences of a folder; those of training in an order drawn for the epoch."""

    about = (
        "Sequences from files. Accuracy is the share of classes that are right; of values the mean squared error (MSE) "
        "is taken. The baseline does not look at the sequence: it answers with the frequencies of the classes, or with "
        "the mean of the values, in training."
    )

    def __init__(self, config: ArraysConfig, seed: int, data: Path | None = None) -> None:
        super().__init__(config, seed)
        if data is None:
            raise DataError(
                "the task arrays takes a folder with train_x.npy, train_y.npy, test_x.npy and test_y.npy: --data FOLDER"
            )
        self._parts, self.sources = arrays.load(data)
        self.splits = tuple(self._parts)
        train = self._parts["train"]
        self.input_size = train.x.shape[2]
        self.output_size = arrays.class_count(data, self._parts) if train.classes else train.y.shape[-1]
        self.read = "all" if train.at_every_step else "last"
        self.headline, self.goal = ("accuracy", "max") if train.classes else ("mse", "min")
        self._classes = train.classes
        self.ragged = train.lengths is not None
        self.in_words, self.doubts = self._in_words(), arrays.doubts(data, self._parts)
        self.baseline = self._frequencies_loss() if train.classes else self._mean_loss()

    def _in_words(self) -> str:
        """How the files were read: as classes or values, of a sequence or a step, and how many of them."""
        train = self._parts["train"]
        ends = [part.x.shape[1:2] if part.lengths is None else part.lengths for part in self._parts.values()]
        least, most = int(min(map(min, ends))), int(max(map(max, ends)))
        p, m = self.output_size, self.input_size
        does = {"train": "train", "valid": "validate", "test": "test"}
        counts = [f"{self.size(split):,} to {does[split]}" for split in self.splits]
        wanted = f"one of {p:,} classes" if train.classes else "1 value" if p == 1 else f"{p:,} values"
        return (
            f"sequences: {', '.join(counts)}; of {most if least == most else f'{least:,} to {most:,}'} steps; at each "
            f"{m:,} number{'s' * (m > 1)}, the largest {train.largest:.3g}; wanted of each "
            f"{'step' if train.at_every_step else 'sequence'}: {wanted}"
        )

    def _frequencies_loss(self) -> float:
        train, test = (
            sum(np.bincount(y.astype(np.int64), minlength=self.output_size) for y in self._parts[split].targets())
            for split in ("train", "test")
        )
        shares = (train + 1) / np.sum(train + 1)  # a class that training has not is not impossible
        return float(-np.sum(test * np.log(shares)) / np.sum(test))

    def _mean_loss(self) -> float:
        train, test = (self._parts[split] for split in ("train", "test"))
        count = sum(len(y) for y in train.targets())
        mean = sum(y.sum(axis=0, dtype=np.float64) for y in train.targets()) / count
        errors = [(np.square(y - mean).sum(), y.size) for y in test.targets()]
        return float(math.fsum(e for e, _ in errors) / sum(size for _, size in errors))

    def size(self, split: str) -> int:
        return len(self._parts[split].x)

    def batch(self, split: str, epoch: int, step: int) -> Batch:
        """Inputs (T, B, m) up to the end of the longest, zero where a sequence has ended."""
        part = self._parts[split]
        rows = self.shuffled(split, epoch, step) if split == "train" else np.array(self.rows(split, step))
        lengths = None if part.lengths is None else part.lengths[rows]
        steps = part.x.shape[1] if lengths is None else int(lengths.max())
        ended = ~part.counts(rows, steps)
        inputs, targets = part.x[rows, :steps].astype(np.float32), part.y[rows]
        inputs[ended] = 0
        if part.at_every_step:
            targets = np.array(targets[:, :steps])
            targets[ended] = 0
            targets = targets.swapaxes(0, 1)
        targets = targets.astype(np.int64 if part.classes else np.float32, order="C")
        return Batch(
            torch.from_numpy(inputs.swapaxes(0, 1).copy()),
            torch.from_numpy(targets),
            None if lengths is None else torch.from_numpy(lengths),
        )

    def _that_count(self, outputs: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Outputs (…, p) and their targets, without the padding."""
        if self.read == "last" or batch.lengths is None:
            return outputs, batch.targets
        return outputs[batch.valid], batch.targets[batch.valid]

    def loss(self, outputs: Tensor, batch: Batch) -> tuple[Tensor, int]:
        outputs, targets = self._that_count(outputs, batch)
        loss = cross_entropy(outputs, targets) if self._classes else F.mse_loss(outputs, targets, reduction="sum")
        return loss, targets.numel()

    def measure(self, outputs: Tensor, batch: Batch) -> dict[str, tuple[float, float]]:
        total, count = self.loss(outputs, batch)
        loss = (total.item(), count)
        if not self._classes:
            return {"loss": loss, "mse": loss}
        outputs, targets = self._that_count(outputs, batch)
        return {"loss": loss, "accuracy": (float((outputs.argmax(dim=-1) == targets).sum()), count)}
