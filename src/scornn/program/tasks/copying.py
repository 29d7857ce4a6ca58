"""The copying problem: recall ten symbols after T blank steps (section 5.1 of the paper).

Input x = [10 symbols of 1..8] [T-1 blanks 0] [marker 9] [10 blanks], target y = [T+10 blanks] [the 10
symbols], both of length T + 20; x is one-hot of width 10, y one of 9 classes. The loss is the cross-entropy
averaged over all T + 20 steps; recall is the share of the last ten symbols whose largest output is the
right one. Answering blanks and then symbols at random costs 10 ln 8 / (T + 20).

Where the paper's text and its program differ, this follows the program: the text puts the marker "ten
timesteps from the end", the program leaves ten steps AFTER it (the marker is the 11th from the end and
copying starts the step after). The sizes are the program's, for the text gives none: 20,000 training
sequences drawn once and cycled in the same order, 1,000 test sequences in 10 parts.
"""

import math
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from msgspec import Meta
from numpy.typing import NDArray
from torch import Tensor

from scornn.program.data import draws
from scornn.program.tasks.base import Batch, Level, Task, TaskConfig, cross_entropy
from scornn.program.tasks.catalogue import task

SYMBOLS = 10
BLANK, MARKER = 0, 9
_ONE_HOT = np.eye(10, dtype=np.float32)


class CopyingConfig(TaskConfig, frozen=True, kw_only=True, tag="copying"):
    """Settings of the copying problem. ``length`` is T, the steps between the symbols and their recall."""

    length: Annotated[int, Meta(ge=1, le=1_000_000), Level.PROBLEM] = 1000
    train_size: Annotated[int, Meta(ge=1, le=1 << 40), Level.VARIANT] = 20_000
    test_size: Annotated[int, Meta(ge=1, le=1 << 40), Level.VARIANT] = 1_000
    batch: Annotated[int, Meta(ge=1, le=1_000_000), Level.VARIANT] = 20
    eval_batch: Annotated[int, Meta(ge=1, le=1_000_000), Level.MACHINE] = 100


@task(
    "copying",
    CopyingConfig,
    label="copying",
    smoke={"length": 20, "train_size": 16, "test_size": 4, "batch": 4},
)
class Copying(Task):
    """The copying problem of one length; sequences are drawn by row number and never stored."""

    input_size = 10
    output_size = 9
    read = "all"
    splits = ("train", "test")
    headline = "recall"
    goal = "max"
    about = (
        "Ten symbols of eight kinds are shown, then {steps}blanks; after a marker they are to be repeated. Who forgets "
        "them and guesses has the baseline's cross-entropy, 10 ln 8 over the number of steps. Recall is the share of "
        "the ten symbols that come back right: 0.125 by guessing, 1 at best."
    )

    def __init__(self, config: CopyingConfig, seed: int, data: Path | None = None) -> None:
        super().__init__(config, seed)
        self.steps = config.length + 2 * SYMBOLS
        self.baseline = SYMBOLS * math.log(8) / self.steps
        self._blanks: dict[int, NDArray[np.float32]] = {}

    def symbols(self, split: str, rows: range) -> NDArray[np.int64]:
        """(B, 10) in 1..8: the sequences of these rows."""
        return 1 + draws.below(draws.words(self.seed, f"copying/{split}", rows.start, len(rows), SYMBOLS), 8)

    def batch(self, split: str, epoch: int, step: int) -> Batch:
        """Inputs (T+20, B, 10), targets (T+20, B); the same in every epoch."""
        symbols = self.symbols(split, self.rows(split, step)).T
        size = symbols.shape[1]
        inputs = self._blank(size).copy()
        inputs[:SYMBOLS] = _ONE_HOT[symbols]
        targets = np.zeros((self.steps, size), dtype=np.int64)
        targets[-SYMBOLS:] = symbols
        return Batch(torch.from_numpy(inputs), torch.from_numpy(targets))

    def _blank(self, size: int) -> NDArray[np.float32]:
        """Inputs that hold the blanks and the marker, made once per batch size."""
        if size not in self._blanks:
            classes = np.full((self.steps, size), BLANK)
            classes[-SYMBOLS - 1] = MARKER
            self._blanks[size] = _ONE_HOT[classes]
        return self._blanks[size]

    def loss(self, outputs: Tensor, batch: Batch) -> tuple[Tensor, int]:
        return cross_entropy(outputs, batch.targets), batch.targets.numel()

    def measure(self, outputs: Tensor, batch: Batch) -> dict[str, tuple[float, float]]:
        total, count = self.loss(outputs, batch)
        right = outputs[-SYMBOLS:].argmax(dim=-1) == batch.targets[-SYMBOLS:]
        return {"loss": (total.item(), count), "recall": (float(right.sum()), right.numel())}
