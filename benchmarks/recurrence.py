"""What a step of the recurrence holds in memory, what the Cayley transform adds to it, and how its cost grows.

python benchmarks/recurrence.py
"""

import ctypes
import gc
import math
from pathlib import Path

import torch

from scornn.functional import scaled_cayley
from scornn.program.cli._bench import SHAPES, Shape, Step, contenders, shortest
from scornn.program.cli.bench import table

GROWTH = {
    "T × 10": (Shape("", 170, 50, 78, 1, "last"), Shape("", 170, 50, 780, 1, "last")),
    "B × 4": (Shape("", 170, 50, 196, 1, "last"), Shape("", 170, 200, 196, 1, "last")),
}
LONG = Shape("", 8, 1, 100_000, 1, "last")
ROUNDS = 10


def ours(shape: Shape) -> Step:
    """A step of the best backend."""
    return next(iter(contenders(shape).values()))


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


def cayley(n: int, train: bool) -> Step:
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


def main() -> None:
    rows = []
    for shape in SHAPES:
        step, train = ours(shape), shape.use != "inference"
        best = shortest({"step": step, "cayley": cayley(shape.n, train)}, ROUNDS)
        memory, states = peak_memory(step), 4 * (shape.T + 1) * shape.B * shape.n
        rows.append(
            {
                "shape": shape.name,
                "ms": 1e3 * best["step"],
                "memory / states": memory and memory / states,
                "Cayley": f"{100 * best['cayley'] / (best['cayley'] + best['step']):.0f} %",
            }
        )
    print(table(rows), end="\n\n")
    grown = []
    for change, (small, large) in GROWTH.items():
        best = shortest({"small": ours(small), "large": ours(large)}, ROUNDS)
        grown.append({"growth": f"cost of {change}", "measured": f"× {best['large'] / best['small']:.2f}"})
    long = shortest({"long": ours(LONG)}, ROUNDS)["long"]
    print(table([*grown, {"growth": f"training step, T = {LONG.T:,}, n = {LONG.n}", "measured": f"{long:.2f} s"}]))


if __name__ == "__main__":
    main()
