"""How fast the recurrence runs here, beside its peers and beside what the machine can do at all.

Every shape is trained by all contenders in turns, and the shortest time of each counts, so that another program on the
machine disturbs all of them or none. The rungs of the operator (``native``, ``manual``, ``naive``) get W as it is;
what the Cayley transform adds is measured beside them.
"""

from __future__ import annotations

import ctypes
import gc
import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from scornn.functional import scaled_cayley
from scornn.ops import library, recurrence
from scornn.ops.sequence import RUNGS

Step = Callable[[], object]
LEAST_ROUNDS = 5
TURN = 0.02
"""Seconds within which a contender repeats a short step."""


@dataclass(frozen=True)
class Shape:
    """A training step to be timed."""

    name: str
    n: int
    B: int
    T: int
    m: int
    use: str  # of the states: "all" of them, the "last", or "all" of them without gradients: "inference"

    @property
    def flops(self) -> float:
        """2 for each multiply-add of U x and W h; twice as many again for the gradients."""
        return (2.0 if self.use == "inference" else 6.0) * self.T * self.B * self.n * (self.n + self.m)

    @property
    def state_bytes(self) -> int:
        return 4 * (self.T + 1) * self.B * self.n


SHAPES = (
    Shape("mnist-170", 170, 50, 784, 1, "last"),
    Shape("mnist-512", 512, 50, 784, 1, "last"),
    Shape("copying", 190, 20, 1020, 10, "all"),
    Shape("adding", 170, 50, 750, 2, "last"),
    Shape("speech", 224, 28, 400, 129, "all"),
    Shape("small", 32, 8, 200, 4, "all"),
    Shape("one-stream", 170, 1, 1000, 1, "inference"),
)


def contenders(shape: Shape) -> dict[str, Step]:
    """The same step of every contender, on the same input."""
    random = torch.Generator().manual_seed(0)
    n, B, T, m = shape.n, shape.B, shape.T, shape.m
    x, h0 = torch.randn(T, B, m, generator=random), torch.zeros(B, n)
    W = torch.linalg.qr(torch.randn(n, n, generator=random))[0].requires_grad_()
    U = torch.randn(n, m, generator=random).mul_(0.01).requires_grad_()
    b = torch.zeros(n, requires_grad=True)
    rnn, lstm = torch.nn.RNN(m, n), torch.nn.LSTM(m, lstm_size(n, m))
    train = shape.use != "inference"

    def step(run: Callable[[], tuple[Tensor, Any]], parameters: list[Tensor]) -> Step:
        gradients: dict[torch.Size, Tensor] = {}  # of the loss; made in the first round, which is not timed

        def once() -> None:
            with torch.set_grad_enabled(train):
                output, last = run()
                if train:
                    used = output if shape.use == "all" else last[0] if isinstance(last, tuple) else last
                    if used.shape not in gradients:
                        gradients[used.shape] = torch.ones_like(used)
                    torch.autograd.grad(used, parameters, gradients[used.shape])

        return once

    names = [rung.name for rung in RUNGS if rung.unavailable() is None]
    rungs = {name: step(partial(recurrence, x, h0, W, U, b, backend=name), [W, U, b]) for name in names}
    peers = {"rnn": rnn, "lstm": lstm}
    return rungs | {name: step(partial(peer, x), list(peer.parameters())) for name, peer in peers.items()}


def lstm_size(n: int, m: int) -> int:
    """The LSTM whose parameters, 4 (m k + k² + k) counting one bias, are nearest in number to the scoRNN's."""
    parameters = m * n + n * (n - 1) // 2 + n
    return max(1, round((math.sqrt((m + 1) ** 2 + parameters) - (m + 1)) / 2))


def shortest(steps: dict[str, Step], rounds: int, progress: Callable[[], None] = lambda: None) -> dict[str, float]:
    """The shortest seconds of every step; they take turns, after one round to warm up.

    A short step is repeated within its turn: the first call finds the caches and threads as another contender left
    them, which takes a step of a millisecond as long again.
    """
    best = dict.fromkeys(steps, math.inf)
    for number in range(rounds + 1):
        for name, step in steps.items():
            now = time.perf_counter()
            end = now + TURN
            while now < end:
                begun = now
                step()
                now = time.perf_counter()
                if number:
                    best[name] = min(best[name], now - begun)
        progress()
    return best


def peak_flops(threads: int) -> float | None:
    """The most float32 operations in a second that ``threads`` threads reached with fused multiply-adds alone."""
    kernel = library.load()
    if isinstance(kernel, str):
        return None
    iterations, best = 100_000, 0.0
    begun = time.perf_counter()
    kernel.peak(0, kernel.isa, iterations)
    iterations = int(iterations * 0.05 / (time.perf_counter() - begun)) + 1
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(8):
            begun = time.perf_counter()
            done = sum(pool.map(lambda _: kernel.peak(0, kernel.isa, iterations), range(threads)))
            best = max(best, done / (time.perf_counter() - begun))
    return best


def peak_memory(step: Step) -> int | None:
    """Bytes that the process grew by at the most while the step ran; None where the system does not tell."""
    status, clear = Path("/proc/self/status"), Path("/proc/self/clear_refs")
    if not (status.exists() and clear.exists()):
        return None
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)

    def kilobytes(field: str) -> int:
        line = next(line for line in status.read_text().splitlines() if line.startswith(field))
        return int(line.split()[1])

    clear.write_text("5")  # resets the high-water mark
    before = kilobytes("VmRSS")
    step()
    return 1024 * (kilobytes("VmHWM") - before)


def measure_shape(shape: Shape, rounds: int, progress: Callable[[], None]) -> dict[str, Any]:
    """Milliseconds, GFLOP/s, memory and ratios of every contender on one shape."""
    steps = contenders(shape)
    best = shortest(steps, max(rounds, LEAST_ROUNDS), progress)
    ours = next(iter(steps))
    result: dict[str, Any] = {"shape": shape.name, "n": shape.n, "B": shape.B, "T": shape.T, "m": shape.m}
    result |= {"use": shape.use, "contender": ours, "lstm_n": lstm_size(shape.n, shape.m)}
    result["milliseconds"] = {name: 1e3 * seconds for name, seconds in best.items()}
    result["gflops"] = {name: shape.flops / best[name] / 1e9 for name in best if name != "lstm"}
    result["times_faster_than"] = {name: best[name] / best[ours] for name in best if name != ours}
    result["peak_memory"] = {name: peak_memory(step) for name, step in steps.items()}
    result["state_bytes"] = shape.state_bytes
    cayley = shortest({"cayley": cayley_step(shape.n, shape.use != "inference")}, 5)["cayley"]
    result["cayley_milliseconds"] = 1e3 * cayley
    result["cayley_share"] = cayley / (cayley + best[ours])
    return result


def cayley_step(n: int, train: bool = True) -> Step:
    """The scaled Cayley transform of an n × n matrix, forward and, for training, backward."""
    random = torch.Generator().manual_seed(0)
    A = torch.randn(n, n, generator=random)
    A = (A - A.mT).div_(2 * math.sqrt(n)).requires_grad_(train)
    D, G = torch.ones(n), torch.randn(n, n, generator=random)

    def step() -> None:
        W = scaled_cayley(A, D)
        if train:
            torch.autograd.grad(W, A, G)

    return step


GROWTH = {
    "T × 10": (Shape("", 170, 50, 78, 1, "last"), Shape("", 170, 50, 780, 1, "last")),
    "B × 4": (Shape("", 170, 50, 196, 1, "last"), Shape("", 170, 200, 196, 1, "last")),
}
LONG = Shape("", 8, 1, 100_000, 1, "last")


def measure_growth(rounds: int, progress: Callable[[], None]) -> dict[str, Any]:
    """What ten times the steps and four times the batch cost, and the seconds of a sequence of 100,000 steps."""
    growth = []
    for name, (small, large) in GROWTH.items():
        pair = {key: next(iter(contenders(s).values())) for key, s in (("small", small), ("large", large))}
        best = shortest(pair, max(rounds, LEAST_ROUNDS))
        growth.append({"change": name, "cost": best["large"] / best["small"]})
        progress()
    step = next(iter(contenders(LONG).values()))
    seconds = shortest({"long": step}, LEAST_ROUNDS)["long"]
    progress()
    return {"growth": growth, "long": {"T": LONG.T, "n": LONG.n, "seconds": seconds}}
