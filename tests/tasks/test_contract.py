"""A task of one's own that breaks its promise is refused with a sentence, before a run is made."""

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from scornn.errors import UsageError
from scornn.program.tasks import Batch, Task, check


class Own(Task):
    """As in docs/extending.md, with one thing changed."""

    name = "own"
    input_size, output_size, read = 1, 2, "last"
    splits = ("train", "test")
    baseline, headline, goal = math.log(2), "accuracy", "max"

    def __init__(self, **changes: Any) -> None:
        self.changes = changes
        for name in changes.keys() & Task.__annotations__.keys():
            setattr(self, name, changes[name])

    def size(self, split: str) -> int:
        result: int = self.changes.get("size", 3)
        return result

    def batch_size(self, split: str) -> int:
        return 3

    def batch(self, split: str, epoch: int, step: int) -> Batch:
        given = {"inputs": torch.zeros(5, 3, 1), "targets": torch.tensor([0, 1, 0]), "lengths": None, **self.changes}
        made = Batch(given["inputs"], given["targets"], given["lengths"])
        result: Batch = self.changes.get("batch", made)
        return result

    def loss(self, outputs: Tensor, batch: Batch) -> tuple[Tensor, int]:
        made = F.cross_entropy(outputs, batch.targets, reduction="sum"), batch.size
        result: tuple[Tensor, int] = self.changes.get("loss", made)
        return result

    def measure(self, outputs: Tensor, batch: Batch) -> dict[str, tuple[float, float]]:
        result: dict[str, tuple[float, float]] = self.changes.get("measure", {"loss": (1.0, 3), "accuracy": (2, 3)})
        return result


def test_one_that_keeps_it() -> None:
    check(Own())
    check(Own(lengths=torch.tensor([5, 1, 2])))
    check(Own(lengths=[5, 1, 2]))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"read": "first"}, "read is 'first'; expected all or last"),
        ({"goal": "more"}, "goal is 'more'; expected max or min"),
        ({"splits": ("train",)}, "expected train and test among them"),
        ({"headline": "f1"}, r"measure\(\) is .*; expected loss and f1 in it"),
        ({"size": 0}, r"size\('train'\) is 0; expected an int from 1 on"),
        ({"size": np.int64(3)}, r"size\('train'\) is .*int64\(3\); expected an int from 1 on"),
        ({"input_size": np.int64(1)}, r"input_size is .*int64\(1\); expected an int from 1 on"),
        ({"baseline": torch.tensor(0.5)}, r"baseline is tensor\(0\.5.*\); expected a finite float, or None"),
        ({"baseline": math.nan}, "baseline is nan; expected a finite float, or None"),
        ({"loss": (torch.tensor(1.0), 3)}, r"loss\(\) is \(tensor\(1\.\), 3\); expected a tensor with a gradient"),
        ({"batch": (1, 2)}, "fails on batch 1 of train: AttributeError: 'tuple' object has no attribute 'inputs'"),
        ({"inputs": torch.zeros(5, 3, 1).numpy()}, "inputs of batch 1 of train is 'ndarray of .*; expected Tensor"),
        (
            {"inputs": torch.zeros(5, 3, 1).double()},
            r"Tensor of torch.float64, \(5, 3, 1\)'; expected Tensor of torch.float32",
        ),
        ({"inputs": torch.zeros(5, 3)}, r"torch.float32, \(5, 3\)'; expected .* \(T, B, 1\)"),
        ({"inputs": torch.zeros(3, 5, 1)}, r"\(3,\); expected \(B, …\) or \(T, B, …\) beside inputs \(3, 5, 1\)"),
        ({"targets": torch.tensor([0, 1, 7])}, "fails on its first batch of train: IndexError: Target 7"),
        ({"lengths": torch.tensor([5, 1, 9])}, r"lengths must lie in 1\.\.5"),
        ({"loss": torch.tensor(1.0)}, "fails on its first batch of train: TypeError"),
        ({"loss": (1.0, 3)}, r"loss\(\) is \(1\.0, 3\); expected a tensor with a gradient, the sum, and its count"),
        ({"measure": {"accuracy": (2, 3)}}, r"measure\(\) is .*; expected loss and accuracy in it"),
        ({"measure": {"loss": (torch.tensor(1.0), 3), "accuracy": (2, 3)}}, "expected two numbers"),
        ({"measure": {"loss": (1, 3), "accuracy": (2, 3), "step": (4, 1)}}, "is 'step'; expected a name that metrics"),
    ],
    ids=str,
)
def test_what_breaks_it_is_named(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        check(Own(**changes))


class Means(Own):
    """Whose loss is one over the batch."""

    def loss(self, outputs: Tensor, batch: Batch) -> tuple[Tensor, int]:
        return F.cross_entropy(outputs, batch.targets), self.changes.get("count", batch.size)

    def measure(self, outputs: Tensor, batch: Batch) -> dict[str, tuple[float, float]]:
        right = outputs.argmax(-1) == batch.targets
        loss = F.cross_entropy(outputs, batch.targets, reduction="sum").item()
        return {
            "loss": (loss, batch.size),
            "accuracy": (float(right.float().mean()), self.changes.get("of", batch.size)),
        }


def test_a_mean_in_place_of_a_sum_is_refused() -> None:
    """Its count would divide it once more: a loss far below the baseline, before anything is learned."""
    even = {"inputs": torch.zeros(5, 4, 1), "targets": torch.tensor([0, 1, 0, 0])}
    with pytest.raises(
        UsageError, match=r"loss\(\) is a mean, 0\.6931 of .* 1\.386 of .*; expected the sum, of which 3"
    ):
        check(Means(of=1))
    with pytest.raises(UsageError, match=r"loss\(\) is a mean, .*; expected the sum, of which 4 is the count"):
        check(Means(of=1, **even))
    with pytest.raises(UsageError, match=r"measure\(\)\['accuracy'\] is a mean, 0\.75 of the first .* which 4 is the"):
        check(Means(count=1, **even))
    check(Means(of=1, count=1, **even))  # a mean of one: batches weigh the same
    check(Own(**even))


def test_a_batch_that_has_no_halves_is_taken_as_it_is() -> None:
    class Whole(Own):
        def loss(self, outputs: Tensor, batch: Batch) -> tuple[Tensor, int]:
            return F.cross_entropy(outputs + torch.zeros(3, 1), batch.targets, reduction="sum"), batch.size

    check(Whole())


def test_lengths_are_part_of_the_fingerprint() -> None:
    lengths = ([5, 1, 2], [5, 1, 3], None)
    found = [Own(lengths=own).fingerprint()["test"] for own in lengths]
    assert len(set(found)) == 3
    assert Own(lengths=torch.tensor(lengths[0], dtype=torch.int32)).fingerprint()["test"] == found[0]
