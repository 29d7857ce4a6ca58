"""Checkpoints: a directory ``step-N`` that is complete and verified, or is not there.

Written as ``step-N.tmp``: ``model.safetensors`` (the model's state_dict), ``training.safetensors`` (optimizer
state by parameter name, random generators), ``state.json`` (everything that is not a tensor), and LAST
``manifest.json`` with the bytes and sha256 of each; then renamed, then the parent is synced. Nothing here
is pickled, and reading one cannot run code or leave its directory.
"""

import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from scornn.errors import CheckpointError
from scornn.program import durable

FORMAT = 1
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR)
_COMPLETE = re.compile(r"step-(\d+)(\.old)?")
_MANIFEST = "manifest.json"
_FILES = ("model.safetensors", "training.safetensors", "state.json")


class NotForUsError(CheckpointError):
    """A checkpoint that may well be good, but not to this program or this user: it is not passed over."""


@dataclass(frozen=True)
class Checkpoint:
    """A verified checkpoint, in memory."""

    path: Path
    step: int
    model: dict[str, Tensor]
    training: dict[str, Tensor]
    state: dict[str, Any]


def save(
    directory: Path,
    step: int,
    model: Mapping[str, Tensor],
    training: Mapping[str, Tensor],
    state: Mapping[str, Any],
) -> Path:
    """Write ``step-N``, durably.

    One of the same step may be there, from before an evaluation that was due. It is ``step-N.old`` while the new one
    takes its name: :func:`load` finds it after a kill in between.
    """
    path = directory / f"step-{step}"
    temporary, replaced = path.with_suffix(".tmp"), path.with_suffix(".old")
    contents = {
        "model.safetensors": _to_bytes(model),
        "training.safetensors": _to_bytes(training),
        "state.json": json.dumps({**state, "step": step}, allow_nan=False).encode(),
    }
    manifest = {
        "format": FORMAT,
        "step": step,
        "files": {
            name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in contents.items()
        },
    }
    with durable.storage_errors(path, "save checkpoint"):
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        try:
            for name, data in contents.items():
                durable.write_bytes(temporary / name, data)
            durable.write_json(temporary / _MANIFEST, manifest)
            if path.exists():
                os.rename(path, replaced)
            os.rename(temporary, path)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        durable.fsync_directory(directory)
        shutil.rmtree(replaced, ignore_errors=True)
    return path


def load(path: Path) -> Checkpoint:
    """Read and verify one checkpoint; :class:`CheckpointError` says what is wrong with it."""
    contents = _verified(_found(path))
    state = json.loads(contents["state.json"])
    model, training = (safetensors.torch.load(contents[name]) for name in _FILES[:2])
    found = Checkpoint(path, state["step"], model, training, state)
    check_values(path / "model.safetensors", found.model)
    check_values(path / "training.safetensors", {k: t for k, t in found.training.items() if k.startswith("average/")})
    return found


def check_values(file: Path, tensors: Mapping[str, Tensor]) -> None:
    """Weights are finite, whatever the digest says."""
    for name, tensor in tensors.items():
        if (tensor.is_floating_point() or tensor.is_complex()) and not bool(torch.isfinite(tensor).all()):
            raise NotForUsError(f"{file}: {name} holds NaN or infinity; expected finite weights")


def steps(directory: Path) -> list[int]:
    """The steps of the checkpoints in a directory, in order. Their content is not looked at."""
    if not directory.is_dir():
        return []
    names = [_COMPLETE.fullmatch(entry.name) for entry in directory.iterdir() if entry.is_dir()]
    return sorted({int(name[1]) for name in names if name})


def newest(directory: Path, warn: Callable[[str], None]) -> Checkpoint | None:
    """The newest checkpoint that verifies, or None where there is none at all.

    A damaged one is passed over with a warning; where all are damaged, :class:`CheckpointError`. One of a newer
    format, or one that the system does not let us read, is not damaged: it is an error at once.
    """
    left = steps(directory)
    while left:
        try:
            return load(directory / f"step-{left.pop()}")
        except NotForUsError:
            raise
        except CheckpointError as error:
            if not left:
                raise CheckpointError(f"no usable checkpoint in {directory}: {error}") from None
            warn(f"{error}; falling back to the checkpoint before it")
    return None


def prune(directory: Path, keep: set[int]) -> None:
    """Delete every checkpoint but those of the given steps."""
    for step in steps(directory):
        if step not in keep:
            with durable.storage_errors(path := directory / f"step-{step}", "delete"):
                _delete(path)


def remove_unfinished(directory: Path) -> None:
    """Drop what a kill left: unfinished checkpoints, and replaced ones whose successor is there."""
    with durable.storage_errors(directory, "clean"):
        replaced = [old for old in directory.glob("step-*.old") if old.with_suffix("").exists()]
        for entry in [*directory.glob("step-*.tmp"), *replaced]:
            shutil.rmtree(entry)


def _found(path: Path) -> Path:
    """A checkpoint by its name, or as a kill left it in the middle of a replacement."""
    replaced = path.with_suffix(".old")
    return replaced if replaced.exists() and not path.exists() else path


def _delete(path: Path) -> None:
    """Renamed first, so that a kill in between leaves no half-empty directory under a good name."""
    doomed = path.with_suffix(".tmp")
    os.rename(_found(path), doomed)
    shutil.rmtree(doomed)


def _to_bytes(tensors: Mapping[str, Tensor]) -> bytes:
    return safetensors.torch.save({name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()})


def _verified(path: Path) -> dict[str, bytes]:
    """The bytes of each file, equal to what the manifest promises."""
    try:
        manifest = json.loads((path / _MANIFEST).read_bytes())
        if manifest["format"] != FORMAT:
            kind = NotForUsError if isinstance(manifest["format"], int) else CheckpointError
            raise kind(f"{path}: written in format {manifest['format']!r}, this program reads format {FORMAT}")
        promised = {name: (manifest["files"][name]["bytes"], manifest["files"][name]["sha256"]) for name in _FILES}
    except OSError as error:
        kind = CheckpointError if error.errno in _GONE else NotForUsError
        raise kind(f"{path}: no readable {_MANIFEST}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path}: damaged {_MANIFEST}: {error!r}") from error
    contents = {}
    for name, expected in promised.items():
        try:
            data = (path / name).read_bytes()
        except OSError as error:
            kind = CheckpointError if error.errno in _GONE else NotForUsError
            raise kind(f"{path / name} cannot be read: {error.strerror}") from error
        found = (len(data), hashlib.sha256(data).hexdigest())
        if found[0] != expected[0]:
            raise CheckpointError(f"{path / name} is damaged: it has {found[0]} bytes, expected {expected[0]}")
        if found != expected:
            sums = f"its sha256 is {found[1]:.12}…, expected {expected[1]!s:.12}…"
            raise CheckpointError(f"{path / name} is damaged: {sums}")
        contents[name] = data
    return contents
