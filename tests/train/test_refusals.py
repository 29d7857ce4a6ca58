"""A refusal changes nothing: one test for all of them compares the bytes of the directory before and after."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from scornn.program.cli import main
from scornn.program.train import program
from scornn.program.train.config import Config

Small = Callable[..., Config]


def contents(path: Path) -> dict[str, bytes]:
    """Of the files that are the user's: the lock and the log are the program's."""
    files = [file for file in sorted(path.rglob("*")) if file.is_file() and file.name not in ("lock", "log.txt")]
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


@pytest.fixture(scope="module")
def made(small: Small, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of 14 steps with checkpoints at the last two."""
    path = tmp_path_factory.mktemp("made") / "run"
    program.start(small(), path, quiet=True, tensorboard=False)
    return path


@pytest.fixture
def run(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, which seems unfinished: it was given a later end."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(made, "run")
    _edit_config(Path("run"), lambda table: table.update(steps=20))
    return Path("run")


def _edit_config(run: Path, change: Callable[[dict[str, Any]], None]) -> None:
    table = json.loads((run / "config.json").read_text())
    change(table)
    (run / "config.json").write_text(json.dumps(table))


def _newest(run: Path) -> Path:
    return run / "checkpoints" / "step-14"


def resign(folder: Path, name: str, data: bytes) -> None:
    """Write a file of a checkpoint, with a manifest that agrees."""
    (folder / name).write_bytes(data)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"][name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (folder / "manifest.json").write_text(json.dumps(manifest))


def _weights(run: Path, name: str, value: float) -> None:
    tensors = safetensors.torch.load_file(_newest(run) / "model.safetensors")
    tensors[name].view(-1)[0] = value
    resign(_newest(run), "model.safetensors", safetensors.torch.save(tensors))


def _other_config(run: Path) -> None:
    _edit_config(run, lambda table: table["optimizer"]["rest"].update(lr=0.5))


def _other_data(run: Path) -> None:
    state = json.loads((_newest(run) / "state.json").read_text())
    state["data"] = {"train": "other"}
    resign(_newest(run), "state.json", json.dumps(state).encode())


def _newer_format(run: Path) -> None:
    manifest = json.loads((_newest(run) / "manifest.json").read_text())
    (_newest(run) / "manifest.json").write_text(json.dumps({**manifest, "format": 2}))


def _other_shape(run: Path) -> None:
    tensors = safetensors.torch.load_file(_newest(run) / "model.safetensors")
    tensors["head.bias"] = torch.zeros(3)
    resign(_newest(run), "model.safetensors", safetensors.torch.save(tensors))


def _all_damaged(run: Path) -> None:
    for file in run.glob("checkpoints/*/state.json"):
        file.write_bytes(b"")


REFUSALS: dict[str, tuple[Callable[[Path], None], int, str]] = {
    "another config": (_other_config, 4, "optimizer.rest.lr 0.5 instead of 0.01"),
    "other data": (_other_data, 4, "was trained on other data"),
    "newer format": (_newer_format, 4, "step-14: written in format 2, this program reads format 1"),
    "NaN": (lambda run: _weights(run, "head.bias", float("nan")), 4, "model.safetensors: head.bias holds NaN"),
    "signs": (lambda run: _weights(run, "layer.sign_hh_l0", 0.5), 4, "sign_hh_l0 holds 0.5; expected 1 and -1 alone"),
    "other shapes": (
        _other_shape,
        4,
        "step-14: the weights do not fit the model of this config: head.bias has shape (3,), expected shape (9,)",
    ),
    "all damaged": (_all_damaged, 4, "no usable checkpoint"),
    "fewer metrics": (lambda run: (run / "metrics.jsonl").write_text("") and None, 4, "metrics.jsonl has 0 bytes"),
    "damaged config": (
        lambda run: (run / "config.json").write_text("{") and None,
        2,
        "line 1 column 2 (char 1); every checkpoint has a copy, under config of its state.json",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_changes_nothing(name: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spoil, code, said = REFUSALS[name]
    spoil(run)
    before = contents(run)
    assert main(["resume", str(run), "--quiet"]) == code
    assert said in capsys.readouterr().err
    assert contents(run) == before
    assert main(["train", "copying", "--out", str(run), "--quiet"]) == 2
    assert contents(run) == before


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (["resume", "run", "--tensorboard", "on"], 2),
        (["train", "copying", "--start-from", "run", "--out", "new", "--threads", "1", "--hidden", "3"], 2),
        (["resume", "run", "--data", "nowhere"], 3),
    ],
)
def test_wrong_requests_change_nothing(
    argv: list[str], code: int, run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("scornn.program.train.board.find_spec", lambda name: None)
    before = contents(run)
    assert main([*argv, "--quiet"]) == code, capsys.readouterr().err
    assert contents(run) == before
    assert not Path("new").exists()


def test_a_finished_run_stays_as_it_is(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    shutil.copytree(made, run)
    before = contents(run)
    assert main(["resume", str(run)]) == 0
    assert "nothing is left to do" in capsys.readouterr().out
    assert contents(run) == before
    assert not (run / "tensorboard").exists()


def test_what_cannot_be_read_is_not_passed_over(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    read = Path.read_bytes

    def reading(self: Path) -> bytes:
        if self.parent.name == "step-14" and self.name == "model.safetensors":
            raise PermissionError(13, "Permission denied", str(self))
        return read(self)

    before = contents(run)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", reading)
        assert main(["resume", str(run), "--quiet"]) == 4
    assert "step-14/model.safetensors cannot be read: Permission denied" in capsys.readouterr().err
    assert contents(run) == before


def test_warnings_reach_standard_error_also_of_quiet_commands(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (_newest(run) / "state.json").write_bytes(b"")
    damaged = "warning: run/checkpoints/step-14/state.json is damaged"
    assert main(["eval", str(run), "--json"]) == 0
    said = capsys.readouterr()
    assert damaged in said.err
    json.loads(said.out)
    assert main(["resume", str(run), "--quiet", "--tensorboard", "off"]) == 0
    assert damaged in capsys.readouterr().err
    assert damaged.removeprefix("warning: ") in (run / "log.txt").read_text()
