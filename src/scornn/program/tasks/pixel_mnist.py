"""Pixel-by-pixel MNIST: classify an image read one pixel at a time, 784 steps (section 5.3 of the paper).

Pixels are divided by 255 and taken row by row, or in one fixed random order (permuted): numpy's
RandomState(92916).permutation(784), which the authors and most others use. The class is read at the last
step; the loss is its cross-entropy, and guessing costs ln 10.

The split is TensorFlow's: the FIRST 5,000 of the 60,000 training images are set aside ("valid") and 55,000
train, shuffled every epoch. The paper's figure is the best TEST accuracy over the epochs; the accuracy on
"valid" allows an honest one, the test accuracy of the epoch that is best there. The authors never used
those 5,000 images.
"""

import math
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import torch
import torch.nn.functional as F
from msgspec import Meta
from numpy.typing import NDArray
from torch import Tensor

from scornn.program.data import mnist
from scornn.program.tasks.base import Batch, Level, Task, TaskConfig
from scornn.program.tasks.catalogue import task

VALID = 5_000
PIXELS = 784
PERMUTATION_SEED = 92916


class PixelMnistConfig(TaskConfig, frozen=True, kw_only=True, tag="mnist"):
    """Settings of pixel-by-pixel MNIST; ``dataset`` "fashion" takes Fashion-MNIST instead.

    ``train_size`` and ``test_size`` take the first images of each part only; ``test_size`` limits "valid"
    too.
    """

    permuted: Annotated[bool, Level.PROBLEM] = False
    dataset: Annotated[Literal["mnist", "fashion"], Level.PROBLEM] = "mnist"
    train_size: Annotated[int, Meta(ge=1, le=55_000), Level.VARIANT] = 55_000
    test_size: Annotated[int, Meta(ge=1, le=10_000), Level.VARIANT] = 10_000
    batch: Annotated[int, Meta(ge=1, le=55_000), Level.VARIANT] = 50
    eval_batch: Annotated[int, Meta(ge=1, le=10_000), Level.MACHINE] = 200


_SMOKE = {"train_size": 16, "test_size": 4, "batch": 4}


@task("pmnist", PixelMnistConfig, label="permuted MNIST", settings={"permuted": True}, smoke=_SMOKE)
@task("mnist", PixelMnistConfig, label="MNIST", settings={"permuted": False}, smoke=_SMOKE)
class PixelMnist(Task):
    """Pixel-by-pixel MNIST. Images stay bytes; a batch is converted when it is asked for."""

    input_size = 1
    output_size = 10
    read = "last"
    splits = ("train", "valid", "test")
    baseline = math.log(10)
    headline = "accuracy"
    goal = "max"
    about = (
        "The 784 pixels of an image are read one at a time, row by row or, permuted, in one fixed random order, and "
        "the class is asked at the end. Accuracy is the share of test images that are classified right: 0.1 by "
        "guessing, 1 at best."
    )

    def __init__(self, config: PixelMnistConfig, seed: int, data: Path | None = None) -> None:
        super().__init__(config, seed)
        images = mnist.load(config.dataset, data)
        train, train_labels = images.train_images, images.train_labels
        used = slice(VALID, VALID + config.train_size)
        valid, test = slice(min(VALID, config.test_size)), slice(config.test_size)
        self._samples = {
            "train": (self._pixels(train[used]), train_labels[used]),
            "valid": (self._pixels(train[valid]), train_labels[valid]),
            "test": (self._pixels(images.test_images[test]), images.test_labels[test]),
        }
        self.sources = images.fingerprint

    def _pixels(self, images: NDArray[np.uint8]) -> NDArray[np.uint8]:
        pixels = images.reshape(-1, PIXELS)
        if not self.config.permuted:
            return pixels
        return pixels[:, np.random.RandomState(PERMUTATION_SEED).permutation(PIXELS)]

    def size(self, split: str) -> int:
        return len(self._samples[split][1])

    def batch(self, split: str, epoch: int, step: int) -> Batch:
        """Inputs (784, B, 1), targets (B,). Training images come in an order drawn for the epoch."""
        rows = self.rows(split, step)
        pixels, labels = self._samples[split]
        chosen = self.shuffled(split, epoch, step) if split == "train" else slice(rows.start, rows.stop)
        steps = pixels[chosen].T.astype(np.float32, order="C")
        steps /= 255
        inputs, targets = steps[:, :, np.newaxis], labels[chosen].astype(np.int64)
        return Batch(torch.from_numpy(inputs), torch.from_numpy(targets))

    def loss(self, outputs: Tensor, batch: Batch) -> tuple[Tensor, int]:
        return F.cross_entropy(outputs, batch.targets, reduction="sum"), batch.targets.numel()

    def measure(self, outputs: Tensor, batch: Batch) -> dict[str, tuple[float, float]]:
        total, count = self.loss(outputs, batch)
        right = outputs.argmax(dim=-1) == batch.targets
        return {"loss": (total.item(), count), "accuracy": (float(right.sum()), count)}
