"""Seconds of a training step, and what they make of an epoch."""

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from scornn.program import tasks
from scornn.program.train import provenance
from scornn.program.train.config import Config
from scornn.program.train.engine import Engine

EPOCH = 1100
"""Steps in the paper's epoch of MNIST: 55,000 images in batches of 50."""


def seconds_per_step(
    config: Config,
    task: tasks.Task,
    *,
    steps: int,
    seconds: float = float("inf"),
    warmup: int = 2,
    least: int = 3,
    progress: Callable[[int], None] = lambda step: None,
) -> dict[str, Any]:
    """Time the training steps of a config: data, forward, backward, update; no evaluation, nothing written.

    Args:
        steps: the most steps to time, after ``warmup`` of them, at least one.
        seconds: end sooner, after at least ``least`` steps, when these have passed.

    Returns:
        The median, the mean and the shortest of the steps timed, how many they were, what they were timed with, and
        the arithmetic of one step: its matrix products and sequence operators, counted in a step before them.
    """
    torch.set_num_threads(config.threads)
    engine = Engine(config, task)
    per_epoch = task.num_batches("train")
    taken: list[float] = []
    with FlopCounterMode(display=False) as counter:
        engine.step(0, 0)
    for step in range(1, warmup + steps):
        begun = time.perf_counter()
        engine.step(*divmod(step, per_epoch))
        if step >= warmup:
            taken.append(time.perf_counter() - begun)
            progress(len(taken))
        if len(taken) >= least and sum(taken) > seconds:
            break
    return {
        "seconds_per_step": statistics.median(taken),
        "mean_seconds_per_step": statistics.fmean(taken),
        "shortest_seconds_per_step": min(taken),
        "steps": len(taken),
        "flops": counter.get_total_flops(),
        "parameters": engine.parameter_count(),
        "versions": provenance.versions(),
        "machine": provenance.machine(),
        "threads": config.threads,
    }


def minutes_per_epoch(measured: dict[str, Any]) -> float:
    """The paper's epoch at the median speed.

    Example:
        >>> minutes_per_epoch({"seconds_per_step": 0.06})
        1.1
    """
    return round(float(measured["seconds_per_step"]) * EPOCH / 60, 12)
