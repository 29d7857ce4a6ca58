"""The adding problem: the sum of the two marked numbers of a sequence of T (section 5.2 of the paper).

Input (T, B, 2): numbers drawn from U[0, 1), and markers that are 0 but for two ones, one in each half. The
answer is read at the last step; the loss is its mean squared error. Answering 1 always costs 1/6.

Where the paper's text and its program differ, this follows the program: with half = floor((T-1)/2) and
places counted from 0, the first marker is uniform on 0 .. half-1 and the second on half .. T-1; the text
says [1, T/2) and [T/2, T). Also the program's: 100,000 training pairs drawn once and never shuffled, 10,000
test pairs, batch 50.
"""

from typing import Annotated

import numpy as np
import torch
import torch.nn.functional as F
from msgspec import Meta
from torch import Tensor

from scornn.program.data import draws
from scornn.program.tasks.base import Batch, Level, Task, TaskConfig
from scornn.program.tasks.catalogue import task


class AddingConfig(TaskConfig, frozen=True, kw_only=True, tag="adding"):
    """Settings of the adding problem. ``length`` is T."""

    length: Annotated[int, Meta(ge=3, le=1_000_000), Level.PROBLEM] = 750
    train_size: Annotated[int, Meta(ge=1, le=1 << 40), Level.VARIANT] = 100_000
    test_size: Annotated[int, Meta(ge=1, le=1 << 40), Level.VARIANT] = 10_000
    batch: Annotated[int, Meta(ge=1, le=1_000_000), Level.VARIANT] = 50
    eval_batch: Annotated[int, Meta(ge=1, le=1_000_000), Level.MACHINE] = 200


@task(
    "adding",
    AddingConfig,
    label="adding",
    smoke={"length": 20, "train_size": 16, "test_size": 4, "batch": 4},
)
class Adding(Task):
    """The adding problem of one length; pairs are drawn by row number and never stored."""

    input_size = 2
    output_size = 1
    read = "last"
    splits = ("train", "test")
    baseline = 1 / 6
    headline = "mse"
    goal = "min"
    about = (
        "Of {steps}numbers between 0 and 1 two are marked, and their sum is asked at the end. Who always answers 1 has "
        "the baseline's mean squared error (MSE), 1/6; 0 is perfect."
    )

    def batch(self, split: str, epoch: int, step: int) -> Batch:
        """Inputs (T, B, 2), targets (B,). The same in every epoch: the set is fixed and not shuffled."""
        return self.samples(split, self.rows(split, step))

    def samples(self, split: str, rows: range) -> Batch:
        """The pairs of these rows."""
        T, half = self.config.length, (self.config.length - 1) // 2
        word = draws.words(self.seed, f"adding/{split}", rows.start, len(rows), T + 2)
        numbers = draws.uniform(word[:, :T])
        places = np.stack([draws.below(word[:, T], half), half + draws.below(word[:, T + 1], T - half)])
        samples = np.arange(len(rows))
        inputs = np.zeros((T, len(rows), 2), dtype=np.float32)
        inputs[:, :, 0] = numbers.T
        inputs[places, samples, 1] = 1
        targets = numbers[samples, places].sum(axis=0)
        return Batch(torch.from_numpy(inputs), torch.from_numpy(targets))

    def loss(self, outputs: Tensor, batch: Batch) -> tuple[Tensor, int]:
        return F.mse_loss(outputs.squeeze(-1), batch.targets, reduction="sum"), batch.targets.numel()

    def measure(self, outputs: Tensor, batch: Batch) -> dict[str, tuple[float, float]]:
        total, count = self.loss(outputs, batch)
        return {"loss": (total.item(), count), "mse": (total.item(), count)}
