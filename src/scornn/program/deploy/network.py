"""A trained network, ready to be used: no sizes retyped, no files looked for by hand, no data needed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.utils.rnn import PackedSequence

from scornn.errors import UsageError
from scornn.nn import SequenceModel
from scornn.nn.catalogue import MODELS
from scornn.nn.stream import Stream
from scornn.program import plugins as plugin_files
from scornn.program.deploy.frozen import Frozen
from scornn.program.progress import log
from scornn.program.tasks import TaskForm
from scornn.program.tasks.catalogue import find as find_task
from scornn.program.tasks.catalogue import name_of
from scornn.program.train.config import build
from scornn.program.train.engine import build_model, make_task
from scornn.program.train.figures import Weights
from scornn.program.train.weights import Stored, find


class Network(SequenceModel):
    """The network of a run. ``task`` tells inputs and outputs, ``stored`` where the weights come from."""

    task: TaskForm
    stored: Stored
    _asked_for_lengths: bool = False

    def forward(self, inputs: Any, lengths: Any = None) -> Any:
        """As of every :class:`SequenceModel`; warns once of padding without the lengths that training had."""
        several = not isinstance(inputs, PackedSequence) and inputs.dim() == 3 and inputs.shape[1] > 1
        if lengths is None and self.task.ragged and several and not self._asked_for_lengths:
            self._asked_for_lengths = True
            log.warning(
                "this network was trained on sequences of different lengths and is given none: it reads padding as "
                "data; expected network(x, lengths), or scornn predict --lengths FILE.npy"
            )
        return super().forward(inputs, lengths)

    def predict(self, x: NDArray[Any], lengths: NDArray[np.int64] | None = None, batch: int = 200) -> NDArray[Any]:
        """The classes, or the values, of sequences ``x (N, T, m)``: ``(N,)`` or ``(N, p)``; at every step with T too.

        Outputs are taken for classes where the task counts which are right (accuracy or recall).
        """
        answers = []
        for first in range(0, len(x), batch):
            rows = slice(first, first + batch)
            inputs = torch.from_numpy(np.array(x[rows], dtype=np.float32)).transpose(0, 1).to(self.layer.like.device)
            with torch.no_grad():
                outputs = self(inputs, None if lengths is None else torch.from_numpy(lengths[rows]))
            answer = outputs.argmax(-1) if self.task.headline in ("accuracy", "recall") else outputs
            answers.append((answer.transpose(0, 1) if self.read == "all" else answer).cpu().numpy())
        return np.concatenate(answers)

    def frozen(self, *, plain: bool = False) -> Frozen:
        """The network with W as a constant: ``y, *state = frozen(x, *state)``, for streaming and export."""
        return Frozen(self, plain=plain)

    def stream(self, batch: int = 1) -> Stream:
        """The network frame by frame, on NumPy arrays: ``y = stream(x)``."""
        return Stream(self, batch)


def load(
    path: str | os.PathLike[str],
    *,
    weights: Weights = "raw",
    best: bool = False,
    device: torch.device | str = "cpu",
    plugins: Sequence[str] = (),
) -> Network:
    """The trained network of a run, in evaluation mode.

    Args:
        path: a run directory, a recorded result with weights, a checkpoint directory, or a file made by
            ``scornn export --to safetensors``.
        weights: those that were stepped (``raw``), or their ``average``.
        best: the weights of the best evaluation rather than the newest.
        device: where to put them.
        plugins: files of models and tasks, where the run has some of its own. That of a task alone is not needed.

    Example:
        >>> network = scornn.load("runs/mnist-scornn-170-s5544")  # doctest: +SKIP
        >>> network(torch.rand(784, 3, 1)).shape  # doctest: +SKIP
        torch.Size([3, 10])
    """
    if weights not in get_args(Weights):
        raise UsageError(f"weights = {weights!r}: expected one of {', '.join(get_args(Weights))}")
    return of(find(Path(path), best=best, weights=weights), device, plugins)


def of(stored: Stored, device: torch.device | str = "cpu", files: Sequence[str] = ()) -> Network:
    """The network that stored weights belong to."""
    plugin_files.load(files)
    if stored.model.name not in MODELS:
        plugin_files.of_config(stored.config, files)
    task = stored.task
    if task is None:  # runs of before it was kept
        config = build(stored.config)
        name = name_of(config.task)
        task = TaskForm.of(name, find_task(name).kind) or TaskForm.of(name, make_task(config))
    assert task is not None
    with torch.random.fork_rng(devices=[]):  # building draws weights, which are then replaced
        network = cast(Network, build_model(stored.model, task, network=Network))
    stored.put_into(network)
    network.task, network.stored = task, stored
    return network.to(device).eval()
