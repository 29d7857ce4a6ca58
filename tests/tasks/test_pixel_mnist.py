"""Pixel-by-pixel MNIST on the real files: split, permutation, order, conversion."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from scornn.program import tasks
from scornn.program.data import draws, mnist
from scornn.program.tasks import PixelMnist, PixelMnistConfig


@pytest.fixture(scope="module")
def images(shared_data: Path) -> mnist.Images:
    return mnist.load("mnist", shared_data)


def make(shared_data: Path, seed: int = 1, **settings: object) -> PixelMnist:
    task = tasks.make(PixelMnistConfig(**settings), seed, shared_data)  # type: ignore[arg-type]
    assert isinstance(task, PixelMnist)
    return task


def test_split_of_the_paper(shared_data: Path, images: mnist.Images) -> None:
    """The FIRST 5,000 training images are set aside; 55,000 train, each once an epoch."""
    task = make(shared_data, batch=11_000, eval_batch=2_500)
    assert [task.size(split) for split in task.splits] == [55_000, 5_000, 10_000]
    valid = task.batch("valid", 0, 0)
    assert torch.equal(valid.targets, torch.from_numpy(images.train_labels[:2_500].astype(np.int64)))
    expected = torch.from_numpy(images.train_images[:2_500].reshape(2_500, 784).astype(np.float32)) / 255
    assert torch.equal(valid.inputs[:, :, 0], expected.t())
    assert valid.inputs.max() == 1
    test = task.batch("test", 3, 3)
    assert torch.equal(test.targets, torch.from_numpy(images.test_labels[7_500:].astype(np.int64)))
    order = draws.permutation(task.seed, "mnist/train", 4, 55_000)  # that of the runs on record
    assert sorted(order.tolist()) == list(range(55_000))
    labels = torch.cat([task.batch("train", 4, step).targets for step in range(5)])
    assert torch.equal(labels, torch.from_numpy(images.train_labels[5_000:][order].astype(np.int64)))


def test_permutation_of_the_authors(shared_data: Path) -> None:
    plain, permuted = make(shared_data), make(shared_data, permuted=True)
    order = np.random.RandomState(92916).permutation(784)
    assert order[:4].tolist() == PERMUTATION_START
    a, b = plain.batch("test", 0, 0), permuted.batch("test", 0, 0)
    assert torch.equal(a.inputs[order], b.inputs)
    assert torch.equal(a.targets, b.targets)
    assert (plain.name, permuted.name) == ("mnist", "pmnist")


PERMUTATION_START = [319, 576, 323, 107]


def test_order_is_a_function_of_seed_and_epoch(shared_data: Path) -> None:
    a, b = make(shared_data), make(shared_data)
    first = a.batch("train", 0, 7)
    a.batch("train", 5, 0)
    assert torch.equal(a.batch("train", 0, 7).inputs, first.inputs)
    assert torch.equal(b.batch("train", 0, 7).inputs, first.inputs)
    assert first.inputs.shape == (784, 50, 1)
    assert first.inputs.is_contiguous()
    assert not torch.equal(a.batch("train", 1, 7).targets, first.targets)
    assert not torch.equal(make(shared_data, seed=2).batch("train", 0, 7).targets, first.targets)
    assert a.fingerprint() == b.fingerprint()
    assert "ba891046" in a.fingerprint()["train-images-idx3-ubyte"]


def test_figures(shared_data: Path) -> None:
    task = make(shared_data)
    batch = task.batch("test", 0, 0)
    total, count = task.loss(torch.zeros(200, 10), batch)
    assert float(total) / count == pytest.approx(math.log(10)) == pytest.approx(task.baseline)
    outputs = torch.nn.functional.one_hot(batch.targets, 10) * 50.0
    outputs[:20] = -outputs[:20]
    assert task.measure(outputs, batch)["accuracy"] == (180.0, 200)
