"""Copying and adding: the protocol, purity, and the figures of known answers."""

import hashlib
import math

import msgspec
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from scornn.errors import UsageError
from scornn.program import tasks
from scornn.program.data import draws
from scornn.program.tasks import AddingConfig, Batch, CopyingConfig
from scornn.program.tasks.base import cross_entropy


def copying(**settings: int) -> tasks.Copying:
    task = tasks.make(CopyingConfig(**settings), seed=5544)
    assert isinstance(task, tasks.Copying)
    return task


def adding(**settings: int) -> tasks.Adding:
    task = tasks.make(AddingConfig(**settings), seed=5544)
    assert isinstance(task, tasks.Adding)
    return task


def right_logits(batch: Batch) -> Tensor:
    return 100.0 * torch.nn.functional.one_hot(batch.targets, 9)


def test_paper_defaults() -> None:
    task = copying()
    assert (task.num_batches("train"), task.num_batches("test")) == (1000, 10)
    assert task.batch("train", 0, 0).inputs.shape == (1020, 20, 10)
    assert task.batch("test", 0, 9).inputs.shape == (1020, 100, 10)
    assert task.baseline == pytest.approx(0.0204, abs=5e-5)
    assert adding().baseline == pytest.approx(0.167, abs=5e-4)
    assert (adding().num_batches("train"), adding().num_batches("test")) == (2000, 50)


@pytest.mark.parametrize("length", [1, 2, 30])
def test_copying_sequences(length: int) -> None:
    batch = copying(length=length, batch=7).batch("train", 0, 3)
    x = batch.inputs.argmax(dim=-1)
    assert torch.equal(batch.inputs.sum(dim=-1), torch.ones(length + 20, 7))
    assert batch.inputs.max() == 1
    symbols = x[:10]
    assert symbols.min() >= 1
    assert symbols.max() <= 8
    assert torch.equal(x[10 : 9 + length], torch.zeros(length - 1, 7, dtype=torch.int64))
    assert torch.equal(x[9 + length], torch.full((7,), 9))
    assert torch.equal(x[10 + length :], torch.zeros(10, 7, dtype=torch.int64))
    assert torch.equal(batch.targets[: 10 + length], torch.zeros(10 + length, 7, dtype=torch.int64))
    assert torch.equal(batch.targets[10 + length :], symbols)


def test_copying_symbols_are_uniform() -> None:
    counts = np.bincount(copying().symbols("train", range(20_000)).ravel(), minlength=9)
    assert counts[0] == 0
    assert np.all(np.abs(counts[1:] - 25_000) < 5 * math.sqrt(25_000))


def test_copying_figures() -> None:
    task = copying(length=50, batch=8)
    batch = task.batch("train", 0, 0)
    measured = task.measure(right_logits(batch), batch)
    assert measured["recall"] == (80.0, 80)
    assert measured["loss"] == (pytest.approx(0, abs=1e-3), 70 * 8)

    ignorant = torch.full((70, 8, 9), -1e4)
    ignorant[:60, :, 0] = 0
    ignorant[60:, :, 1:] = 0
    total, count = task.loss(ignorant, batch)
    assert float(total) / count == pytest.approx(task.baseline, rel=1e-5)

    wrong = right_logits(batch)
    wrong[60, 0, :] = 0
    wrong[60, 0, 0] = 1
    wrong[3, 0, 5] = 1e3  # a mistake before the recall does not count in it
    assert task.measure(wrong, batch)["recall"] == (79.0, 80)


@pytest.mark.parametrize("length", [3, 4, 10, 11, 200])
def test_adding_sequences(length: int) -> None:
    batch = adding(length=length, train_size=3000, batch=1000).batch("train", 0, 2)
    numbers, markers = batch.inputs.unbind(dim=-1)
    assert numbers.min() >= 0
    assert numbers.max() < 1
    half = (length - 1) // 2
    assert torch.equal(markers[:half].sum(dim=0), torch.ones(1000))
    assert torch.equal(markers[half:].sum(dim=0), torch.ones(1000))
    assert set(markers.unique().tolist()) == {0.0, 1.0}
    torch.testing.assert_close((numbers * markers).sum(dim=0), batch.targets)
    if length <= 11:
        assert torch.all(markers.sum(dim=1) > 0), "every place is marked at times"


def test_adding_baseline_is_what_ones_cost() -> None:
    task = adding(length=20, test_size=20_000, eval_batch=20_000)
    batch = task.batch("test", 0, 0)
    total, count = task.measure(torch.ones(20_000, 1), batch)["mse"]
    assert total / count == pytest.approx(1 / 6, rel=0.02)
    assert task.measure(batch.targets[:, None], batch)["loss"] == (0.0, 20_000)


@pytest.mark.parametrize("make", [copying, adding])
def test_pure_in_seed_split_step(make: type) -> None:
    """A batch depends on its position alone: not on what was asked before, the epoch, or the batch size."""
    a = make(length=12, train_size=60, test_size=30, batch=4, eval_batch=8)
    b = make(length=12, train_size=60, test_size=30, batch=20)
    for step in (3, 0, 14):
        a.batch("train", 0, step)
    whole = b.batch("train", 5, 2)
    parts = [a.batch("train", 1, step) for step in range(10, 15)]
    assert torch.equal(torch.cat([p.inputs for p in parts], dim=1), whole.inputs)
    assert torch.equal(torch.cat([p.targets for p in parts], dim=-1), whole.targets)
    assert not torch.equal(a.batch("train", 0, 0).inputs, a.batch("train", 0, 1).inputs)
    assert not torch.equal(b.batch("train", 0, 0).inputs, b.batch("test", 0, 0).inputs[:, :20])
    assert a.batch("test", 0, 3).size == 6
    other = tasks.make(a.config, seed=5545)
    assert not torch.equal(a.batch("train", 0, 0).inputs, other.batch("train", 0, 0).inputs)
    assert a.fingerprint() != other.fingerprint()
    assert a.fingerprint() == make(length=12, train_size=60, test_size=30, batch=4, eval_batch=8).fingerprint()


def test_a_batch_can_be_changed_without_harm() -> None:
    task = copying(length=5)
    task.batch("train", 0, 0).inputs.zero_()
    assert task.batch("train", 0, 0).inputs.sum() == 25 * 20


def test_steps_and_splits_that_are_not_there() -> None:
    task = copying(length=5, train_size=40)
    with pytest.raises(IndexError, match=r"0 \.\. 1 of 'train', got 2"):
        task.batch("train", 0, 2)
    with pytest.raises(ValueError, match="no split 'valid'; its splits are train, test"):
        task.batch("valid", 0, 0)


@given(st.integers(1, 9), st.integers(1, 12))
def test_shards_cover_the_batch(world: int, size: int) -> None:
    batch = Batch(torch.arange(size).expand(3, size)[..., None].float(), torch.arange(size), torch.arange(size) + 1)
    dense = Batch(batch.inputs, batch.inputs[..., 0])
    shards = [batch.shard(rank, world) for rank in range(world)]
    assert sorted(torch.cat([s.targets for s in shards]).tolist()) == list(range(size))
    for rank, shard in enumerate(shards):
        assert torch.equal(shard.inputs[0, :, 0].long(), shard.targets)
        assert shard.lengths is not None
        assert torch.equal(shard.lengths, shard.targets + 1)
        assert torch.equal(dense.shard(rank, world).targets[0].long(), shard.targets)


def test_targets_at_the_end_are_told_from_those_at_every_step() -> None:
    """Of three sequences of three steps, with three targets each at the end, the shapes tell nothing."""
    batch = Batch(torch.randn(3, 3, 1), torch.arange(9).view(3, 3))
    assert batch.shard(1, 3, "last").targets.tolist() == [[3, 4, 5]]
    assert batch.shard(1, 3, "all").targets.tolist() == [[1], [4], [7]]


@pytest.mark.parametrize(
    "config",
    [
        CopyingConfig(length=0),
        CopyingConfig(batch=True),
        CopyingConfig(length=math.nan),  # type: ignore[arg-type]
        AddingConfig(length=2),
        AddingConfig(train_size=-1),
    ],
)
def test_ranges_hold_in_code_too(config: tasks.TaskConfig) -> None:
    with pytest.raises(UsageError, match=r"task (copying|adding): .*`\$\.\w+`"):
        tasks.make(config, seed=0)


def test_unknown_keys_are_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="lenght"):
        msgspec.convert({"name": "copying", "lenght": 3}, CopyingConfig)
    assert msgspec.convert({"name": "adding", "length": 9}, AddingConfig) == AddingConfig(length=9)


def test_the_stream_is_pinned() -> None:
    """These numbers must never change: results on record were obtained with them."""
    word = draws.words(5544, "copying/train", 0, 2, 10)
    assert hashlib.sha256(word.astype("<u8").tobytes()).hexdigest() == PINNED


PINNED = "7a5819d27ca9e4e4f2ce95b23b9fe525ad6ff23eaf409f2acc5fb1e98ef02fe0"


@settings(max_examples=30)
@given(st.integers(0, 2**64 - 1), st.integers(0, 10**9), st.integers(1, 9), st.integers(1, 9))
def test_rows_are_reached_at_once(seed: int, first: int, rows: int, per_row: int) -> None:
    table = draws.words(seed, "s", first, rows, per_row)
    assert (draws.words(seed, "s", first + rows - 1, 1, per_row) == table[-1:]).all()
    assert (draws.words(seed, "s", first, rows, per_row, epoch=1) != table).any()
    assert (draws.below(table, 7) < 7).all()
    assert (draws.uniform(table) < 1).all()


@given(st.integers(1, 50), st.integers(0, 5))
def test_permutation(size: int, epoch: int) -> None:
    assert sorted(draws.permutation(3, "x", epoch, size).tolist()) == list(range(size))


def test_seeds_out_of_range() -> None:
    with pytest.raises(ValueError, match="seed must be in"):
        draws.words(-1, "s", 0, 1, 1)


@pytest.mark.parametrize("classes", [1, 2, 9, 15, 16, 40])
@pytest.mark.parametrize("shape", [(3,), (7, 3), (0, 3)])
def test_cross_entropy_is_torchs_however_the_classes_lie(classes: int, shape: tuple[int, ...]) -> None:
    outputs = torch.randn(*shape, classes, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(classes, shape)
    rows = outputs.reshape(-1, classes)
    expected = F.cross_entropy(rows, targets.reshape(-1), reduction="sum")
    found = cross_entropy(outputs, targets)
    torch.testing.assert_close(found, expected)
    for ours, theirs in zip(*(torch.autograd.grad(loss, outputs) for loss in (found, expected)), strict=True):
        torch.testing.assert_close(ours, theirs)
