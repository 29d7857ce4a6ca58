"""A trained network, ready to be used: no sizes retyped, no files looked for by hand, no data needed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, cast, get_args

import torch

from scornn.deploy.frozen import Frozen
from scornn.errors import UsageError
from scornn.nn import SequenceModel
from scornn.tasks.catalogue import find as find_task
from scornn.tasks.catalogue import name_of
from scornn.train.engine import Weights, build_model, make_task
from scornn.train.weights import Stored, find


@dataclass(frozen=True)
class Task:
    """What a network was trained for, without its data.

    Args:
        name: as on the command line.
        input_size: m of an input ``(T, B, m)``.
        output_size: p of an output.
        read: ``all``, outputs ``(T, B, p)``; or ``last``, outputs ``(B, p)``.
        headline: the metric that people compare.
        goal: whether more of it is better.
    """

    name: str
    input_size: int
    output_size: int
    read: Literal["all", "last"]
    headline: str
    goal: Literal["max", "min"]


class Network(SequenceModel):
    """The network of a run. ``task`` tells inputs and outputs, ``stored`` where the weights come from."""

    task: Task
    stored: Stored

    def frozen(self, *, plain: bool = False) -> Frozen:
        """The network with W as a constant: ``y, *state = frozen(x, *state)``, for streaming and export."""
        return Frozen(self, plain=plain)


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
        plugins: files of models and tasks, where the run has some of its own.

    Example:
        >>> network = scornn.load("runs/mnist-scornn-170-s5544")  # doctest: +SKIP
        >>> network(torch.rand(784, 3, 1)).shape  # doctest: +SKIP
        torch.Size([3, 10])
    """
    if weights not in get_args(Weights):
        raise UsageError(f"weights = {weights!r}: expected one of {', '.join(get_args(Weights))}")
    return of(find(Path(path), best=best, weights=weights, plugins=plugins), device)


def of(stored: Stored, device: torch.device | str = "cpu") -> Network:
    """The network that stored weights belong to."""
    name = name_of(stored.config.task)
    kind, members = find_task(name).kind, [field.name for field in fields(Task)][1:]
    # A task of one's own may know its sizes from its data alone.
    said = kind if all(hasattr(kind, member) for member in members) else make_task(stored.config)
    task = Task(name, *(getattr(said, member) for member in members))
    with torch.random.fork_rng(devices=[]):  # building draws weights, which are then replaced
        network = cast(Network, build_model(stored.config, cast(Any, task), Network))
    stored.put_into(network)
    network.task, network.stored = task, stored
    return network.to(device).eval()
