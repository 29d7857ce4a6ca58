"""Trained weights wherever they lie: in a run, in a recorded result, in one checkpoint, in a file of `scornn export`.

A file holds the tensors of the network and, in its header, the run's config, the step, which weights they are, the
run's summary and a digest of all this. In a recorded result it is called ``weights.safetensors``.
"""

import hashlib
import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from scornn.errors import CheckpointError
from scornn.nn.model import SequenceModel
from scornn.program import durable, plugins
from scornn.program.progress import log
from scornn.program.tasks import TaskForm
from scornn.program.train import checkpoint, state
from scornn.program.train.config import ModelConfig
from scornn.program.train.figures import Weights
from scornn.program.train.ledger import Ledger
from scornn.program.train.loop import check_belongs
from scornn.program.train.run import has_results, read_table, retrain_advice
from scornn.program.train.tables import Table, lookup
from scornn.program.train.validate import convert

FILE = "weights.safetensors"
FORMAT = "scornn-1"


@dataclass(frozen=True)
class Stored:
    """Weights, and what the run that made them says of itself.

    Args:
        path: where they lie.
        config: the table of the run's ``config.json``.
        model: the network's part of it.
        step: after which they were taken.
        tensors: the ``state_dict`` of the network.
        weights: whether these are averaged.
        best: whether they are those of the best evaluation.
        summary: what ``summary.json`` says.
        data: the fingerprint of the data that they were trained on, where it is known.
        plugins: the digest of the plugins that they were trained with, where it is known.
        task: what they were trained for; None where they were written before it was kept.
        changed: whether they were modified after loading, for example by training outside a run.
    """

    path: Path
    config: Table
    model: ModelConfig
    step: int
    tensors: dict[str, Tensor]
    weights: Weights = "raw"
    best: bool = False
    summary: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, str] = field(default_factory=dict)
    plugins: str | None = None
    task: TaskForm | None = None
    changed: bool = False

    def put_into(self, network: SequenceModel) -> None:
        """Give them to a network of the same config. An average is put back on its manifold if need be."""
        with state.naming(self.path):
            state.restore_model(network, self.tensors)
        if self.weights == "average":
            network.layer.retract_()


def find(path: Path, *, best: bool = False, weights: Weights = "raw") -> Stored:
    """The newest (or best) weights of a run, raw or averaged; of a checkpoint or a file, those that it holds."""
    if path.is_file():
        return _asked_for(read(path), best, weights)
    if (path / "manifest.json").is_file():
        if best:
            raise CheckpointError(
                f"{path} is one checkpoint; which is the best is known to its run: give its directory"
            )
        saved = checkpoint.load(path)
        return _stored(saved, saved.state["config"], weights, False, path.parent.parent)
    table, newest = read_table(path), checkpoint.newest(path / "checkpoints", log.warning)
    if newest is None:
        if (path / FILE).is_file():
            return _asked_for(read(path / FILE), best, weights)
        if has_results(path):
            raise CheckpointError(f"{path} has results, but no checkpoint and no {FILE}: {retrain_advice(path)}")
        again = shlex.quote(str(path))
        raise CheckpointError(f"{path} has no checkpoint yet and no {FILE}; train it with `scornn resume {again}`")
    kept = Ledger.from_table(newest.state["ledger"]).figures[weights].kept_step if best else None
    other = kept not in (None, newest.step)
    saved = checkpoint.load(path / "checkpoints" / f"step-{kept}") if other else newest
    check_belongs(saved, table)
    return _stored(saved, table, weights, best, path)


def to_bytes(stored: Stored) -> bytes:
    """The content of a file with the weights and what they are. Where data and plugins lay is left out."""
    header = {
        "format": FORMAT,
        "config": json.dumps(plugins.without_places(stored.config)),
        "step": str(stored.step),
        "weights": stored.weights,
        "best": json.dumps(stored.best),
        "summary": json.dumps(dict(stored.summary)),
        **({"changed": "true"} if stored.changed else {}),
        **({"task": msgspec.json.encode(stored.task).decode()} if stored.task else {}),
    }
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in stored.tensors.items()}
    return safetensors.torch.save(tensors, {**header, "sha256": _digest(header, tensors)})


def _digest(header: Mapping[str, str], tensors: Mapping[str, Tensor]) -> str:
    """Of all that a file says: safetensors itself would not see a flipped bit."""
    digest = hashlib.sha256(json.dumps(sorted(header.items())).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def read(path: Path) -> Stored:
    """A file of :func:`to_bytes`; :class:`CheckpointError` where it is damaged or another's."""
    try:
        with safe_open(path, "pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} is no safetensors file, or a damaged one: {error}") from None
    if header.get("format") != FORMAT:
        found = header.get("format", "none")
        raise CheckpointError(
            f"{path} was not made by `scornn export`: its header has the format {found!r}, expected {FORMAT!r}"
        )
    expected = header.pop("sha256", None)  # files of version 0.2.0 have none
    if expected is not None and (content := _digest(header, tensors)) != expected:
        raise CheckpointError(f"{path} is damaged: its content has the sha256 {content}, expected {expected}")
    checkpoint.check_values(path, tensors)
    try:
        kind: Weights = "average" if header["weights"] == "average" else "raw"
        task = msgspec.json.decode(header["task"], type=TaskForm) if "task" in header else None
        table, summary = json.loads(header["config"]), json.loads(header["summary"])
        best, changed = json.loads(header["best"]) is True, header.get("changed") == "true"
        step, model = int(header["step"]), convert(table["model"], ModelConfig)
        return Stored(path, table, model, step, tensors, kind, best, summary, changed=changed, task=task)
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: its header is damaged: {error!r}") from None


def _asked_for(stored: Stored, best: bool, weights: Weights) -> Stored:
    if weights == "average" and stored.weights != "average":
        raise CheckpointError(f"{stored.path} holds the raw weights of its run; the averaged ones are not in it")
    if best and not stored.best:
        raise CheckpointError(f"{stored.path} holds the weights of step {stored.step}, not those of the best one")
    return stored


def _stored(saved: checkpoint.Checkpoint, table: Table, weights: Weights, best: bool, run: Path) -> Stored:
    model = convert(table["model"], ModelConfig)
    tensors = saved.model if weights == "raw" else state.average_of(saved.training)
    if not tensors:
        asked = lookup(table, "optimizer.average") is not None
        why = f"those of {model.name} cannot be averaged" if asked else "its run was made without optimizer.average"
        raise CheckpointError(f"{saved.path} has no averaged weights: {why}")
    summary, data = durable.read_object(run / "summary.json"), saved.state.get("data", {})
    code = saved.state.get("numerics", {}).get("plugins")
    form = msgspec.convert(saved.state.get("task"), TaskForm | None)
    return Stored(saved.path, table, model, saved.step, tensors, weights, best, summary, data, code, form)
