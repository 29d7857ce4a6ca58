"""scornn.load: the same network wherever the weights lie, and a word on what cannot be loaded."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import safetensors.torch
import torch

import scornn
from scornn.errors import CheckpointError, UsageError
from scornn.program.cli import main
from scornn.program.train import program, weights


def test_a_run_loads_as_the_program_loads_it(run: Path) -> None:
    network = scornn.load(run)
    assert not network.training
    task = network.task
    assert (task.name, task.input_size, task.output_size, task.read) == ("copying", 10, 9, "all")
    x = torch.randn(7, 3, 10)
    torch.testing.assert_close(network(x), program.load(run)[1].model(x), rtol=0, atol=0)


def test_averaged_and_best_weights(run: Path) -> None:
    raw, averaged = scornn.load(run), scornn.load(run, weights="average")
    assert not torch.equal(raw.layer.weight_ih_l0, averaged.layer.weight_ih_l0)
    assert scornn.load(run, best=True).stored.best
    assert scornn.load(run).stored.step == 4


def test_loading_draws_nothing_from_the_global_generator(run: Path) -> None:
    before = torch.get_rng_state()
    scornn.load(run)
    assert torch.equal(before, torch.get_rng_state())


def test_a_checkpoint_a_file_and_a_recorded_result_give_the_same_network(run: Path, tmp_path: Path) -> None:
    file = tmp_path / "result" / "weights.safetensors"
    file.parent.mkdir()
    file.write_bytes(weights.to_bytes(weights.find(run)))
    shutil.copy(run / "config.json", file.parent)
    x = torch.randn(5, 2, 10)
    expected = scornn.load(run)(x)
    for place in (run / "checkpoints" / "step-4", file, file.parent):
        assert torch.equal(scornn.load(place)(x), expected)
    assert scornn.load(file).stored.summary["steps"] == 4


def test_eval_works_on_a_recorded_result(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "weights.safetensors").write_bytes(weights.to_bytes(weights.find(run)))
    shutil.copy(run / "config.json", tmp_path)
    splits = []
    for place in (run, tmp_path):
        assert main(["eval", str(place), "--json"]) == 0
        splits.append(json.loads(capsys.readouterr().out)["splits"])
    assert splits[0] == splits[1]


def test_what_cannot_be_loaded_is_named(run: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no run directory"):
        scornn.load(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="weights = 'mean': expected one of raw, average"):
        scornn.load(run, weights="mean")  # type: ignore[arg-type]
    shutil.copy(run / "config.json", tmp_path)
    with pytest.raises(CheckpointError, match="no checkpoint yet"):
        scornn.load(tmp_path)
    foreign = tmp_path / "foreign.safetensors"
    safetensors.torch.save_file({"a": torch.zeros(2)}, foreign)
    with pytest.raises(CheckpointError, match=r"foreign\.safetensors was not made by `scornn export`"):
        scornn.load(foreign)
    damaged = tmp_path / "damaged.safetensors"
    damaged.write_bytes(weights.to_bytes(weights.find(run))[:200])
    with pytest.raises(CheckpointError, match=r"damaged\.safetensors is no safetensors file, or a damaged one"):
        scornn.load(damaged)
    (tmp_path / "raw.safetensors").write_bytes(weights.to_bytes(weights.find(run)))
    with pytest.raises(CheckpointError, match="raw weights"):
        scornn.load(tmp_path / "raw.safetensors", weights="average")
    with pytest.raises(CheckpointError, match="not those of the best"):
        scornn.load(tmp_path / "raw.safetensors", best=True)
    with pytest.raises(CheckpointError, match=r"step-4 is one checkpoint; .*: give its directory"):
        scornn.load(run / "checkpoints" / "step-4", best=True)


def test_eval_says_that_the_data_are_others(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program.evaluate(run)
    assert capsys.readouterr().err == ""
    before = scornn.program.tasks.Copying.fingerprint
    monkeypatch.setattr("scornn.program.tasks.Copying.fingerprint", lambda self: {**before(self), "test": "other"})
    program.evaluate(run)
    said = capsys.readouterr().err
    assert said.startswith(f"warning: evaluated on other data than {run} was trained on: test other instead of ")


def changed(data: bytes, old: bytes, new: bytes) -> bytes:
    assert data.count(old) == 1
    assert len(old) == len(new)
    return data.replace(old, new)


def test_a_file_with_other_bytes_is_refused(run: Path, tmp_path: Path) -> None:
    """Safetensors has no digest of its own: a flipped bit in a weight, or in the config, would change the network."""
    data, file = weights.to_bytes(weights.find(run)), tmp_path / "a.safetensors"
    flipped = bytearray(data)
    flipped[-5] ^= 1
    for bad in (bytes(flipped), changed(data, b'"step":"4"', b'"step":"5"')):
        file.write_bytes(bad)
        with pytest.raises(CheckpointError, match=r"a\.safetensors is damaged: its content has the sha256 \w+,"):
            scornn.load(file)
    file.write_bytes(data)
    assert scornn.load(file).stored.step == 4


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [("head.bias", float("nan"), "head.bias holds NaN"), ("layer.sign_hh_l0", 0.5, "layer.sign_hh_l0 holds 0.5")],
)
def test_numbers_that_cannot_be_are_refused_in_a_file_too(
    name: str, value: float, said: str, run: Path, tmp_path: Path
) -> None:
    stored = weights.find(run)
    stored.tensors[name].view(-1)[0] = value
    (tmp_path / "a.safetensors").write_bytes(weights.to_bytes(stored))
    with pytest.raises(CheckpointError, match=said):
        scornn.load(tmp_path / "a.safetensors")
