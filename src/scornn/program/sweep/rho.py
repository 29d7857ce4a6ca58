"""``--rho auto``: how many entries of D are −1, chosen by successive halving over short runs before training.

The candidates train side by side from the run's own seed on its own batches. After each round the half with the lower
training loss goes on from where it stands, until one is left. All rounds together make at most a tenth of the steps of
the run, and nothing of them is kept but the number.
"""

import math
import os
from typing import Any

import torch

from scornn.errors import DivergedError, UsageError
from scornn.program import tasks
from scornn.program.recipes.presets import resolve
from scornn.program.train.config import Config, build, to_table
from scornn.program.train.engine import Engine, make_task
from scornn.program.train.tables import Table, lookup, merge

KEY = "model.options.rho"
AUTO = "auto"
SHARE = 0.1
"""Of the run's steps, for all candidates together."""


def settle(settings: Table) -> tuple[Table, str]:
    """The settings with a number in place of ``rho = "auto"``, and a line that says how it was found.

    >>> settle({"model": {"options": {"rho": 3}}})
    ({'model': {'options': {'rho': 3}}}, '')
    """
    if lookup(settings, KEY) != AUTO:
        return settings, ""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UsageError("--rho auto: several processes would each choose; choose in one, then give them the number")
    rho, said = choose(resolve(_with_rho(settings, "n/2"))[0])
    return _with_rho(settings, rho), said


def choose(config: Config) -> tuple[int, str]:
    """The rho of the candidate that is left, and a line on how it went."""
    task = make_task(config)
    torch.set_num_threads(config.threads)
    n = config.model.hidden
    rounds = lengths(config, task)
    racers = {rho: _engine(config, rho, task) for rho in _numbers(n)}
    per_epoch = task.num_batches("train")
    step, spent, tried = 0, 0, []
    for count in rounds:
        losses = {rho: _mean_loss(engine, step, count, per_epoch) for rho, engine in racers.items()}
        tried.append(", ".join(f"{rho}: {loss:.4g}" for rho, loss in losses.items()))
        spent += count * len(racers)
        step += count
        better = sorted(racers, key=lambda rho: losses[rho])
        racers = {rho: racers[rho] for rho in better[: math.ceil(len(better) / 2)]}
    (rho,) = racers
    return rho, f"rho = {rho} of n = {n}, chosen in {spent} steps by the training loss ({'; then '.join(tried)})"


def lengths(config: Config, task: tasks.Task) -> list[int]:
    """The steps that each candidate makes in each round; a run that is too short for one is refused."""
    total = config.length(task.num_batches("train"))
    count = len(_numbers(config.model.hidden))
    rounds = max(1, math.ceil(math.log2(count)))
    each = [int(SHARE * total / rounds / math.ceil(count / 2**k)) for k in range(rounds)]
    if each[0] < 1:
        fewest = math.ceil(count * rounds / SHARE)
        raise UsageError(f"--rho auto: {total} steps are too few to try {count} values; expected {fewest} or more")
    return each


def _with_rho(settings: Table, rho: int | str) -> Table:
    return merge(settings, {"model": {"options": {"rho": rho}}})


def _numbers(n: int) -> list[int]:
    """The candidates for this size, each once.

    >>> _numbers(190), _numbers(3)
    ([0, 19, 47, 95, 133, 190], [0, 1, 2, 3])
    """
    return sorted({0, n // 10, n // 4, n // 2, 7 * n // 10, n})


def _engine(config: Config, rho: int, task: tasks.Task) -> Engine:
    table: dict[str, Any] = _with_rho(to_table(config), rho)
    try:
        return Engine(build(table), task)
    except UsageError as error:
        raise UsageError(f"--rho auto: {error}") from None


def _mean_loss(engine: Engine, first: int, count: int, per_epoch: int) -> float:
    """Of the later half of these steps; infinite if they do not stay finite."""
    losses = []
    try:
        for step in range(first, first + count):
            losses.append(engine.step(*divmod(step, per_epoch)).loss)
    except DivergedError:
        return math.inf
    later = losses[len(losses) // 2 :]
    return sum(later) / len(later)
