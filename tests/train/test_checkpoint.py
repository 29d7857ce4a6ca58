"""A checkpoint is complete and verified, or is not there."""

import json
import os
import random
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from scornn.errors import CheckpointError
from scornn.program.train import checkpoint

MODEL = {"weight": torch.arange(6.0).reshape(2, 3), "empty": torch.zeros(0)}
TRAINING = {"optimizer/rest/weight/step": torch.tensor(3.0), "random/torch": torch.arange(9, dtype=torch.uint8)}


def save(folder: Path, step: int, **state: object) -> Path:
    return checkpoint.save(folder, step, MODEL, TRAINING, state)


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    saved = checkpoint.load(save(tmp_path, 7, text="é", number=0.1))
    assert saved.step == 7
    assert (saved.state["text"], saved.state["number"]) == ("é", 0.1)
    for given, found in ((MODEL, saved.model), (TRAINING, saved.training)):
        assert given.keys() == found.keys()
        assert all(torch.equal(given[name], found[name]) for name in given)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-7"]


def test_every_single_bit_flip_is_noticed(tmp_path: Path) -> None:
    path, draw = save(tmp_path, 1), random.Random(0)
    for file in sorted(path.iterdir()):
        data = file.read_bytes()
        for _ in range(30):
            flipped, bit = bytearray(data), draw.randrange(8 * len(data))
            flipped[bit // 8] ^= 1 << bit % 8
            file.write_bytes(flipped)
            if file.name == "manifest.json" and _means_the_same(data, bytes(flipped)):
                continue
            with pytest.raises(CheckpointError):
                checkpoint.load(path)
        file.write_bytes(data)
    checkpoint.load(path)


def _means_the_same(a: bytes, b: bytes) -> bool:
    """A space turned into another character between tokens, or a key that nobody reads."""
    try:
        one, two = json.loads(a), json.loads(b)
    except ValueError:
        return False
    return bool(one["files"] == two.get("files") and one["format"] == two.get("format"))


def test_the_newest_good_one_is_found(tmp_path: Path) -> None:
    said: list[str] = []
    assert checkpoint.newest(tmp_path, said.append) is None
    for step in (9, 10, 100):
        save(tmp_path, step)
    (tmp_path / "step-100" / "state.json").write_text("{}")
    (tmp_path / "step-200.tmp").mkdir()
    found = checkpoint.newest(tmp_path, said.append)
    assert found
    assert found.step == 10
    assert len(said) == 1
    assert re.search(r"step-100/state.json is damaged: it has 2 bytes, expected \d+; falling back", said[0])
    said.clear()
    for step in (9, 10):
        weights = tmp_path / f"step-{step}" / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-1] + b"?")
    with pytest.raises(CheckpointError, match="no usable checkpoint") as error:
        checkpoint.newest(tmp_path, said.append)
    told = "\n".join([*said, str(error.value)])
    assert [told.count(f"step-{step}/") for step in (9, 10, 100)] == [1, 1, 1]
    assert len(re.findall(r"its sha256 is \w{12}…, expected \w{12}…", told)) == 2


@pytest.mark.parametrize("call", range(5))
def test_a_kill_while_a_checkpoint_is_replaced_keeps_one(call: int, tmp_path: Path) -> None:
    save(tmp_path, 1, version="old")
    child = os.fork()
    if child == 0:  # dies before this one of the calls that rename and delete
        left = [call]

        def mortal(function: Callable[..., object]) -> Callable[..., object]:
            def calling(*args: object, **how: object) -> object:
                if not left[0]:
                    os.kill(os.getpid(), signal.SIGKILL)
                left[0] -= 1
                return function(*args, **how)

            return calling

        os.rename, shutil.rmtree = mortal(os.rename), mortal(shutil.rmtree)
        save(tmp_path, 1, version="new")
        os._exit(0)
    killed = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert killed == (-signal.SIGKILL if call < 4 else 0)
    assert checkpoint.steps(tmp_path) == [1]
    said: list[str] = []
    found = checkpoint.newest(tmp_path, said.append)
    assert found
    assert found.state["version"] == ("new" if call > 2 else "old")
    checkpoint.remove_unfinished(tmp_path)
    assert checkpoint.steps(tmp_path) == [1]
    save(tmp_path, 1, version="last")
    assert checkpoint.load(tmp_path / "step-1").state["version"] == "last"
    assert [path.name for path in tmp_path.iterdir()] == ["step-1"]


def test_what_a_kill_left_is_removed(tmp_path: Path) -> None:
    save(tmp_path, 1)
    save(tmp_path, 2)
    (tmp_path / "step-1").rename(tmp_path / "step-1.old")
    shutil.copytree(tmp_path / "step-2", tmp_path / "step-2.old")
    (tmp_path / "step-3.tmp").mkdir()
    (tmp_path / "notes.tmp").write_text("not ours")
    checkpoint.remove_unfinished(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["notes.tmp", "step-1.old", "step-2"]
    checkpoint.prune(tmp_path, {2})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["notes.tmp", "step-2"]


def test_a_failed_save_leaves_the_old_one(tmp_path: Path) -> None:
    save(tmp_path, 1, version="old")
    with pytest.raises(ValueError, match="JSON compliant"):
        save(tmp_path, 1, version=float("nan"))
    assert checkpoint.load(tmp_path / "step-1").state["version"] == "old"
