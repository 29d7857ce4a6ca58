"""Next-frame prediction.

the protocol on a whole TIMIT, the two scales, and padding that counts for nothing.
"""

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from scornn.errors import DataError
from scornn.nn import SequenceModel, build
from scornn.program import tasks
from scornn.program.metrics.reconstruct import evaluate_audio
from scornn.program.tasks import Batch, Speech, SpeechConfig


def make(data: Path, corpus: str = "folder", seed: int = 3, **settings: object) -> Speech:
    task = tasks.make(SpeechConfig(corpus=corpus, **settings), seed, data)  # type: ignore[arg-type]
    assert isinstance(task, Speech)
    return task


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight speakers of two sounds of different lengths."""
    root = tmp_path_factory.mktemp("wav")
    rng = np.random.default_rng(0)
    for speaker in range(8):
        (root / f"s{speaker}").mkdir()
        for k in range(2):
            noise = rng.uniform(-0.5, 0.5, 1000 + 333 * speaker + 2000 * k)
            soundfile.write(root / f"s{speaker}" / f"{k}.wav", noise, 16_000, subtype="PCM_16")
    return root


def test_the_whole_protocol_of_timit(timit_tree: Path, tmp_path: Path) -> None:
    """3,696 / 400 / 192 from SPHERE files to batches, a step of training, and scores of the core test set."""
    task = make(timit_tree, "timit")
    assert [task.size(split) for split in task.splits] == [3696, 400, 192]
    assert task.num_batches("train") == 132
    assert task.notes == ()
    seen = np.concatenate([task.members("train", 0, step) for step in range(132)])
    assert len(np.unique(seen)) == 3696

    model = SequenceModel(build("scornn", 129, 6), 129)
    batch = task.batch("train", 0, 0)
    total, count = task.loss(model(batch.inputs, batch.lengths), batch)
    (total / count).backward()
    assert all(p.grad is not None and bool(torch.isfinite(p.grad).all()) for p in model.parameters())

    result = evaluate_audio(model, task, tmp_path / "audio", progress=False, shown=2)
    assert result["counts"] == {"mse": 192, "segsnr": 192, "stoi": 0, "pesq": 0}
    assert len(result["refused"]["pesq"]) == len(result["refused"]["stoi"]) == 192
    assert len(list((tmp_path / "audio").glob("*.wav"))) == 384


def test_batches_are_shifted_frames(folder: Path) -> None:
    task = make(folder, batch=5)
    members, batch = task.members("train", 2, 0), task.batch("train", 2, 0)
    assert batch.lengths is not None
    assert batch.lengths.tolist() == sorted(batch.lengths.tolist(), reverse=True)
    assert batch.inputs.shape == batch.targets.shape == (int(batch.lengths[0]), 5, 129)
    for column, index in enumerate(members):
        frames = torch.from_numpy(task.features.of(int(index)).copy())
        length = int(batch.lengths[column])
        assert length == len(frames) - 1
        assert torch.equal(batch.inputs[:length, column], frames[:-1])
        assert torch.equal(batch.targets[:length, column], frames[1:])
        assert torch.all(batch.inputs[length:, column] == -50)


def test_speakers_are_held_out(folder: Path) -> None:
    task = make(folder)
    of = {s: {task.features.utterances[int(i)].speaker for i in task._members[s]} for s in task.splits}
    assert not of["train"] & of["valid"]
    assert not of["train"] & of["test"]
    assert not of["valid"] & of["test"]
    assert [task.size(split) for split in task.splits] == [12, 2, 2]


def test_order_is_a_function_of_seed_and_epoch(folder: Path) -> None:
    task, again, other = make(folder, batch=4), make(folder, batch=4), make(folder, batch=4, seed=4)
    orders = [np.concatenate([t.members("train", 1, s) for s in range(3)]).tolist() for t in (task, again, other)]
    assert orders[0] == orders[1]
    assert sorted(orders[0]) == sorted(orders[2])
    assert orders[0] != orders[2]
    assert orders[0] != np.concatenate([task.members("train", 0, s) for s in range(3)]).tolist()
    assert torch.equal(task.batch("train", 1, 2).inputs, again.batch("train", 1, 2).inputs)
    assert task.fingerprint() == again.fingerprint()


def test_padding_counts_for_nothing(folder: Path) -> None:
    """Whatever stands in the padding, even NaN: same loss, no gradient there."""
    task = make(folder, batch=6)
    batch = task.batch("train", 0, 0)
    assert batch.lengths is not None
    torch.manual_seed(0)
    outputs = torch.randn_like(batch.inputs).requires_grad_()
    total, count = task.loss(outputs, batch)
    total.backward()
    pairs = [(outputs[: int(n), c], batch.targets[: int(n), c]) for c, n in enumerate(batch.lengths)]
    expected = sum((o - t).square().sum() for o, t in pairs)
    torch.testing.assert_close(total, torch.as_tensor(expected))
    assert count == int(batch.lengths.sum()) * 129

    assert outputs.grad is not None
    poisoned = outputs.detach().clone()
    targets = batch.targets.clone()
    for column, length in enumerate(batch.lengths.tolist()):
        assert torch.all(outputs.grad[length:, column] == 0)
        poisoned[length:, column] = float("nan")
        targets[length:, column] = float("inf")
    poisoned.requires_grad_()
    other, _ = task.loss(poisoned, Batch(batch.inputs, targets, batch.lengths, batch.padded))
    other.backward()
    assert torch.equal(other, total)
    assert poisoned.grad is not None
    assert torch.equal(poisoned.grad, outputs.grad)


def test_two_scales(folder: Path) -> None:
    """mse is over valid steps; mse_padded divides by the steps of sequences padded to the longest."""
    task = make(folder, eval_batch=1)
    longest = max(len(task.features.of(int(i))) for s in ("valid", "test") for i in task._members[s])
    totals: dict[str, list[float]] = {}
    for step in range(task.num_batches("test")):
        batch = task.batch("test", 0, step)
        for name, (total, count) in task.measure(batch.inputs, batch).items():
            pair = totals.setdefault(name, [0, 0])
            pair[0] += total
            pair[1] += count
    frames = [task.features.of(int(i)).astype(np.float64) for i in task._members["test"]]
    squares = sum(np.square(f[1:] - f[:-1]).sum() for f in frames)
    steps = sum(len(f) - 1 for f in frames)
    assert totals["mse"] == totals["loss"]
    assert totals["mse"][0] / totals["mse"][1] == pytest.approx(squares / (steps * 129), rel=1e-6)
    assert totals["mse_padded"][1] == longest * 2 * 129
    assert totals["mse_padded"][0] == totals["mse"][0]
    assert task.baseline == pytest.approx(squares / (steps * 129), rel=1e-6), "repeating the frame is the baseline"
    assert task.batch("train", 0, 0).padded != longest


def test_shards_add_up(folder: Path) -> None:
    task = make(folder, batch=5)
    batch = task.batch("train", 0, 0)
    outputs = torch.zeros_like(batch.inputs)
    parts = [task.measure(outputs[:, rank::3], batch.shard(rank, 3)) for rank in range(3)]
    whole = task.measure(outputs, batch)
    for name, (total, count) in whole.items():
        assert sum(part[name][1] for part in parts) == count
        assert sum(part[name][0] for part in parts) == pytest.approx(total)


def test_a_part_needs_leave(shared_data: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(DataError, match="--allow-partial"):
        make(shared_data, "timit")
    task = make(shared_data, "timit", allow_partial=True)
    assert [task.size(split) for split in task.splits] == [96, 16, 16]
    assert "speakers held out" in caplog.text
    assert len(task.notes) == 2
    assert task.baseline == pytest.approx(41.77, abs=0.01)


def test_bad_files_are_listed_in_notes(folder: Path, tmp_path: Path) -> None:
    for path in folder.glob("*/*.wav"):
        (tmp_path / path.parent.name).mkdir(exist_ok=True)
        (tmp_path / path.parent.name / path.name).write_bytes(path.read_bytes())
    (tmp_path / "s0" / "bad.wav").write_bytes(b"ajkg")
    with pytest.raises(DataError, match=r"s0/bad\.wav: found a file compressed with shorten"):
        make(tmp_path)
    task = make(tmp_path, allow_partial=True)
    assert len(task.notes) == 1
    assert task.notes[0].startswith(f"skipped {tmp_path / 's0' / 'bad.wav'}: found a file compressed with shorten, ")
    assert "1 skipped" in task.fingerprint()["corpus"]


def test_audio_of_real_speech(shared_data: Path, tmp_path: Path) -> None:
    """Sounds that can be played, scores per file and on average, and what the page shows."""
    task = make(shared_data, "timit", allow_partial=True)
    model = SequenceModel(build("scornn", 129, 4), 129)
    result = evaluate_audio(model, task, tmp_path, progress=False, shown=3)
    assert json.loads((tmp_path / "scores.json").read_text()) == result
    assert result["counts"] == {"mse": 16, "segsnr": 16, "stoi": 16, "pesq": 16}
    assert set(result["mean"]) == {"mse", "segsnr", "stoi", "pesq"}
    assert result["mean"]["pesq"] == pytest.approx(np.mean([f["pesq"] for f in result["files"].values()]))
    utterance = next(u for u in task.features.utterances if u.split == "test")
    for kind in ("true", "predicted"):
        sound, rate = soundfile.read(tmp_path / f"{utterance.id}.{kind}.wav")
        assert rate == 8_000
        assert len(sound) == -(-soundfile.info(utterance.path).frames // 2)
    assert len(list(tmp_path.glob("*.npz"))) == 3
    with np.load(next(tmp_path.glob("*.npz")), allow_pickle=False) as arrays:
        assert arrays["true"].shape == arrays["predicted"].shape
        assert np.array_equal(arrays["true"][0], arrays["predicted"][0])
    assert model.training
