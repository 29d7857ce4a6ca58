"""The linear memory beside the native modReLU loop of the same size: what leaving out the loop over time gains."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from scornn.nn import LinearMemory, RecurrentLayer, ScoRNN
from scornn.program.analysis.bench import LEAST_ROUNDS, Step, peak_memory, shortest

N, B, T = 256, 128, 784
GOALS = {"last state": 100.0, "every state": 5.0}
"""How many times faster than the loop, forward and in training."""
GROWTH = 11.0
"""The most that ten times the steps may cost."""


def step(layer: RecurrentLayer, steps: int, every: bool, train: bool) -> Step:
    """A forward pass to the last state or to every state, and for training the gradients of all parameters."""
    random = torch.Generator().manual_seed(0)
    x = torch.randn(steps, B, 1, generator=random)
    g = torch.ones(steps, B, N) if every else torch.ones(1, B, N)
    parameters = [p for p in layer.parameters() if p.numel()]

    def run() -> None:
        with torch.set_grad_enabled(train):
            output, h_n = layer(x, need_output=every)
            if train:
                torch.autograd.grad(output if every else h_n, parameters, g)

    return run


def measure(rounds: int, progress: Callable[[str], None]) -> dict[str, Any]:
    """Milliseconds of loop and memory, the cost of ten times the steps, and what training on the last state holds."""
    torch.manual_seed(0)
    loop, memory = ScoRNN(1, N), LinearMemory(1, N)
    rounds = max(rounds, LEAST_ROUNDS)
    rows = []
    for what, goal in GOALS.items():
        for train in (False, True):
            progress(what)
            every = what == "every state"
            pair = {"loop": step(loop, T, every, train), "memory": step(memory, T, every, train)}
            best = {name: 1e3 * seconds for name, seconds in shortest(pair, rounds).items()}
            row = {"what": what, "train": train, "milliseconds": best, "goal": goal}
            rows.append(row | {"times_faster": best["loop"] / best["memory"]})
    growth = []
    for what in GOALS:
        progress(f"{what}, ten times the steps")
        every = what == "every state"
        pair = {"short": step(memory, T // 10, every, True), "long": step(memory, T // 10 * 10, every, True)}
        best = shortest(pair, rounds)
        growth.append({"what": what, "cost": best["long"] / best["short"], "limit": GROWTH})
    held = peak_memory(step(memory, T, every=False, train=True))
    return {"n": N, "B": B, "T": T, "linear": rows, "growth": growth, "memory": held, "state_bytes": 4 * T * B * N}


def rows(report: dict[str, Any]) -> list[list[str]]:
    """The first table, as text."""
    table = [["linear memory against the modReLU loop", "loop ms", "memory ms", "× (goal)"]]
    for row in report["linear"]:
        ms, kind = row["milliseconds"], "forward and backward" if row["train"] else "forward"
        ratio = f"{row['times_faster']:.1f} ({row['goal']:g})"
        table.append([f"{row['what']}, {kind}", f"{ms['loop']:.1f}", f"{ms['memory']:.2f}", ratio])
    return table


def growth_rows(report: dict[str, Any]) -> list[list[str]]:
    """The second table, as text."""
    table = [["linear memory, training", "measured", "goal"]]
    table += [[f"cost of T × 10, {g['what']}", f"× {g['cost']:.2f}", f"≤ × {g['limit']:g}"] for g in report["growth"]]
    if report["memory"] is not None:
        share = f"{report['memory'] / report['state_bytes']:.2f}"
        table.append(["last state: memory / states (T·B·n numbers)", share, "no such term"])
    return table
