"""The Cayley transform from the free numbers of A to W and back, beside torch's; one thread, float32.

python benchmarks/cayley.py
"""

import ctypes
import math
from functools import partial

import torch
from torch import Tensor

from scornn.functional import scaled_cayley, skew
from scornn.ops import library, native
from scornn.ops.cayley import _struct, cayley
from scornn.program.cli._bench import Row, Step, shortest
from scornn.program.cli.bench import table

SIZES = (12, 40, 170, 190, 360, 512)
SCALES = (1.0, 1e2, 1e4, 1e6)
ROUNDS = 40
PEAK_ITERATIONS = 30_000
"""Of fused multiply-adds in a turn: short, as the contenders are, so that no other program gets into all of them."""


def problem(n: int, scale: float = 1.0) -> tuple[Tensor, Tensor]:
    """Free numbers of float64, evenly drawn up to the scale, and D."""
    random = torch.Generator().manual_seed(n)
    D = torch.ones(n)
    D[n // 2 :] = -1
    return scale * (2 * torch.rand(n * (n - 1) // 2, dtype=torch.float64, generator=random) - 1), D


def gradient(run: Step, variable: Tensor, G: Tensor) -> None:
    torch.autograd.grad(run(), variable, G)


def kernel_calls(v: Tensor, D: Tensor, G: Tensor) -> Step:
    """The two functions of the kernel, without torch around them."""
    n, kernel = len(D), native.loaded()
    W, R, dv = torch.empty(n, n), torch.empty(n, n), torch.empty_like(v)
    forward = _struct(n, n - 1, v.dtype, v=v, D=D, W=W, R=R)
    backward = _struct(n, n - 1, v.dtype, D=D, R=R, dW=G, dv=dv)

    def step(_held: object = (v, D, G, W, R, dv)) -> None:
        kernel.cayley_forward(ctypes.byref(forward))
        kernel.cayley_backward(ctypes.byref(backward))

    return step


def main() -> None:
    torch.set_num_threads(1)
    kernel = native.loaded()
    rows = []
    for n in SIZES:
        v, D = problem(n, 1 / math.sqrt(n))
        v = v.float()
        free, G = v.clone().requires_grad_(), torch.randn(n, n)
        M = (torch.eye(n) + skew(v, n)).requires_grad_()
        steps: dict[str, Step] = {
            "inv": partial(gradient, partial(torch.linalg.inv, M), M, G),
            "torch": partial(gradient, lambda free=free, D=D: scaled_cayley(skew(free, len(D)), D), free, G),
            "ours": partial(gradient, partial(cayley, free, D), free, G),
            "kernel": kernel_calls(v, D, G),
            "peak": partial(kernel.peak, 0, kernel.isa, PEAK_ITERATIONS),
        }
        us = {way: 1e6 * seconds for way, seconds in shortest(steps, ROUNDS).items()}
        peak = kernel.peak(0, kernel.isa, PEAK_ITERATIONS) / us.pop("peak")
        row: Row = {"n": n} | {f"{way} µs": taken for way, taken in us.items()}
        row |= {"inv / ours": us["inv"] / us["ours"], "torch / ours": us["torch"] / us["ours"]}
        # 2 n³ for the inverse, and as many for each of the two products of the gradient.
        rows.append(row | {"of peak": 6 * n**3 / us["kernel"] / peak})
    print(f"kernel {library.instruction_set()}, torch {torch.__version__}, one thread, float32.\n")
    print(table(rows), end="\n\n")
    errors = []
    for n, scale in ((n, scale) for n in (170, 171) for scale in SCALES):
        v, D = problem(n, scale)
        exact = scaled_cayley(skew(v, n), D.double())
        found = {"LAPACK": scaled_cayley(skew(v.float(), n), D), "ours": cayley(v.float(), D)}
        row = {"n": n, "largest a": f"{scale:.0e}"}
        errors.append(row | {f"error of {way}": f"{(W - exact).abs().max():.1e}" for way, W in found.items()})
    print(table(errors))


if __name__ == "__main__":
    main()
