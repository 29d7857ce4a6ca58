"""Operands of any cell, what a rung makes of them, and the comparison with the loop that defines the cell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from scornn.ops import Operands, rotations
from scornn.ops.activations import ACTIVATIONS
from scornn.ops.bank import Bank
from scornn.ops.product import Product
from scornn.ops.rung import CELLS, Rung, cell_of

F64 = torch.float64
PRODUCTS = (
    "fourier",
    "rotations/complex/tunable/3",
    "rotations/real/tunable/2",
    "rotations/complex/fft/0",
    "rotations/real/fft/0",
)
GATED = ("lstm", "gru", "goru")
KINDS = (*ACTIVATIONS, *GATED, "bank", *PRODUCTS)


def problem(
    kind: str, T: int, B: int, n: int, m: int, packed: bool = False, bias: bool = True, **order: Any
) -> Operands:
    """A kind is a cell, or W as a product of that name. n counts units; h0 and the bias have either sign."""
    if "fft" in kind:
        n = 1 << (n.bit_length() - 1)
    random = torch.Generator().manual_seed(T + 10 * B + 100 * n + 1000 * m)
    make = lambda *shape: torch.randn(*shape, generator=random, dtype=F64)  # noqa: E731
    cell = ("modrelu" if "real" in kind else "complex_modrelu") if kind in PRODUCTS else kind
    states = 2 * n if cell == "complex_modrelu" else n
    batch_sizes, rows = None, (T, B)
    if packed:
        lengths = torch.randint(1, T + 1, (B,), generator=random)
        lengths[0] = T
        batch_sizes = (lengths > torch.arange(T).unsqueeze(1)).sum(1)
        rows = (int(batch_sizes.sum()),)
    W: Any
    gates = CELLS[cell].gates * states
    if kind == "fourier":
        W = Product(kind, [3 * make(3, n), make(2, n, 2), torch.randperm(n, generator=random)])
    elif kind in PRODUCTS:
        _, numbers, style, capacity = kind.split("/")
        pairs = sum(layer.pairs for layer in rotations.layers(n, style, int(capacity)))
        W = Product(kind, [3 * make(pairs), *([3 * make(pairs), 3 * make(n)] if numbers == "complex" else [])])
    elif kind == "bank":
        W = Bank(2 * make((n - 1) // 2), make(n - (n - 1) // 2 * 2).sign())
    elif kind in GATED:
        W = make(gates, states) / states**0.5
    else:
        W = torch.linalg.qr(make(states, states))[0]
    b = 0.3 * make(int(CELLS[cell].biases * states)) if bias else None
    c0 = make(B, n) if kind == "lstm" else None
    tensors = (make(*rows, m), make(B, states), W, 0.5 * make(gates, m), b)
    return Operands(*tensors, cell, batch_sizes, **order, c0=c0)


def changed(operands: Operands, change: Callable[[Tensor], Tensor]) -> Operands:
    """With every tensor that may have a gradient changed."""
    W = operands.W
    if isinstance(W, Bank):
        angle = change(W.angle)
        W = Bank(angle, W.sign.to(angle.dtype))
    elif isinstance(W, Product):
        W = Product(W.name, [change(f) if f.is_floating_point() else f for f in W.factors])
    else:
        W = change(W)
    names = ("x", "h0", "U", "b", "c0")
    others = {name: change(t) for name in names if (t := getattr(operands, name)) is not None}
    return operands._replace(W=W, **others)


def leaves(operands: Operands) -> list[Tensor]:
    W = operands.W
    inside = [W.angle] if isinstance(W, Bank) else W.factors if isinstance(W, Product) else [W]
    every = (operands.x, operands.h0, operands.c0, *inside, operands.U, operands.b)
    return [t for t in every if t is not None and t.requires_grad and t.numel()]


def rung(name: str, operands: Operands) -> Rung:
    return next(rung for rung in cell_of(operands).rungs if rung.name == name)


def results(name: str, operands: Operands, use: int | None = None, dtype: torch.dtype = F64) -> list[Tensor]:
    """Outputs of a rung, and all gradients for random gradients of every output, or of the one to ``use``."""
    given = changed(operands, lambda t: t.detach().to(dtype).requires_grad_())
    outputs = rung(name, given).run(given)
    random = torch.Generator().manual_seed(5)
    weights = [torch.randn(t.shape, generator=random, dtype=F64).to(dtype) for t in outputs]
    chosen = range(len(outputs)) if use is None else [use]
    return [
        *(t.detach() for t in outputs),
        *torch.autograd.grad([outputs[k] for k in chosen], leaves(given), [weights[k] for k in chosen]),
    ]


def assert_like_naive(name: str, operands: Operands, use: int | None = None, dtype: torch.dtype = F64) -> None:
    """Where a result is float32 its error is large beside that of the loop in float64."""
    expected, ours = results("naive", operands, use), results(name, operands, use, dtype)
    steps = len(operands.x) if operands.batch_sizes is None else len(operands.batch_sizes)
    depth = steps * (operands.h0.shape[1] + operands.x.shape[-1]) + len(operands.h0)
    factor = 8 if operands.cell in ACTIVATIONS and isinstance(operands.W, Tensor) else 64
    for k, (want, got) in enumerate(zip(expected, ours, strict=True)):
        tolerance = factor * torch.finfo(dtype).eps * depth * (1 + float(want.abs().max() if want.numel() else 0))
        torch.testing.assert_close(
            got.double(), want, rtol=0, atol=tolerance, msg=lambda s, k=k: f"result or gradient {k}: {s}"
        )
