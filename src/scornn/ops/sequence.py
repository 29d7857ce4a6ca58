"""The sequence operator and its table of rungs: checks the arguments and picks the rung that runs them.

A backend is one file with a ``RUNG`` in it and one entry of :data:`RUNGS`; the program, its help and its reports read
this table and keep no other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from scornn.functional import full_precision, under_autocast
from scornn.ops import manual, naive, native
from scornn.ops.activations import ACTIVATIONS
from scornn.ops.rung import CELLS, PLAINER, Cell, Head, Operands, Rung, check, choose, like, run

RUNGS: tuple[Rung, ...] = (native.RUNG, manual.RUNG, naive.RUNG)
"""Fastest first: ``auto`` takes the first that runs."""

CELLS |= {name: Cell(RUNGS, a.number, biases=1 / a.units_per_bias) for name, a in ACTIVATIONS.items()}

BACKENDS: tuple[str, ...] = ("auto", *dict.fromkeys([*(rung.name for rung in RUNGS[:-1]), *PLAINER]))

MAX_HEAD_SHARE = 4
"""A head is read in the same pass where it has at most 1/MAX_HEAD_SHARE as many outputs as there are states: the kernel
carries dy along in products with x and W, which for a wide head costs more than a pass of its own."""


def backends() -> dict[str, str]:
    """What can run here: for each backend "available", or the reason why it cannot run.

    Example:
        >>> backends()["manual"]
        'available'
    """
    return {rung.name: rung.unavailable() or "available" for rung in reversed(RUNGS)}


def chosen(device: torch.device | str, among: Sequence[str] = BACKENDS, dtype: torch.dtype = torch.float32) -> str:
    """The backend that ``auto`` stands for on such tensors, for a model that has the backends ``among``.

    Example:
        >>> chosen("cpu", ("auto", "manual", "naive"))
        'manual'
    """
    operands = like(torch.empty(0, device=device, dtype=dtype))
    return next(rung.name for rung in RUNGS if rung.name in among and rung.why_not(operands) is None)


def recurrence(
    x: Tensor,
    h0: Tensor,
    W: Tensor,
    U: Tensor,
    b: Tensor | None = None,
    *,
    activation: str = "modrelu",
    batch_sizes: Tensor | None = None,
    reverse: bool = False,
    backend: str = "auto",
) -> tuple[Tensor, Tensor]:
    r"""Run :math:`h_t = \mathrm{act}(U x_t + W h_{t-1})` over a whole sequence.

    Args:
        x: inputs ``(T, B, m)``, or packed rows ``(N, m)`` when ``batch_sizes`` is given.
        h0: initial states ``(B, n)``.
        W: recurrent matrix ``(n, n)``.
        U: input matrix ``(n, m)``.
        b: bias ``(n,)``; ``(n // 2,)`` for ``complex_modrelu``.
        activation: ``modrelu`` (b is added to \|z\|), ``relu``, ``leaky_relu``, ``tanh``, ``identity`` (b is added
            to z), or ``complex_modrelu`` (adjacent pairs of reals are complex units).
        batch_sizes: of a :class:`~torch.nn.utils.rnn.PackedSequence`: how many sequences reach each step.
        reverse: take the steps from the last to the first.
        backend: ``auto``, the first of :data:`RUNGS` that runs here, or the name of one.

    Returns:
        The states ``(T, B, n)`` or ``(N, n)``, and the last state of each sequence ``(B, n)``.

    Example:
        >>> I, x = torch.eye(2), torch.ones(3, 1, 2)
        >>> recurrence(x, torch.zeros(1, 2), I, I, activation="identity")[1]
        tensor([[3., 3.]])
    """
    output, h_n = run(_dense(x, h0, W, U, b, activation, batch_sizes, reverse), backend)
    return output, h_n


def _dense(x: Tensor, h0: Tensor, W: Tensor, U: Tensor, b: Tensor | None, activation: str, *order: Any) -> Operands:
    if activation not in ACTIVATIONS:
        raise ValueError(f"unknown activation {activation!r}; expected one of {', '.join(ACTIVATIONS)}")
    return Operands(x, h0, W, U, b, activation, *order)


def readout(
    x: Tensor,
    h0: Tensor,
    W: Tensor,
    U: Tensor,
    b: Tensor | None,
    V: Tensor,
    c: Tensor,
    *,
    activation: str = "modrelu",
    batch_sizes: Tensor | None = None,
    reverse: bool = False,
    backend: str = "auto",
) -> tuple[Tensor, Tensor]:
    r"""Run :math:`h_t = \mathrm{act}(U x_t + W h_{t-1})` and read :math:`y_t = V h_t + c`.

    What defines it is :func:`torch.nn.functional.linear` on the states. On the kernel the head reads a state while it
    is in cache, and the gradient that comes in is that of y, thin as y, where the plain way writes and reads one as
    large as all the states.

    The other arguments are those of :func:`scornn.ops.recurrence`. Of the backends ``native`` reads in the same pass
    whatever the sizes, ``auto`` where that is faster.

    Args:
        V: ``(p, n)``.
        c: ``(p,)``.

    Returns:
        y ``(T, B, p)`` or ``(N, p)``, and the last state of each sequence ``(B, n)``.

    Example:
        >>> I, x = torch.eye(2), torch.ones(3, 1, 2)
        >>> readout(x, torch.zeros(1, 2), I, I, None, torch.ones(1, 2), torch.zeros(1), activation="identity")[0][-1]
        tensor([[6.]])
    """
    operands = _dense(x, h0, W, U, b, activation, batch_sizes, reverse)
    check(operands)
    if V.dim() != 2 or V.shape[1] != W.shape[0] or c.shape != V.shape[:1]:
        raise ValueError(
            f"expected V of shape (p, {W.shape[0]}) and c of shape (p,), got {tuple(V.shape)} and {tuple(c.shape)}"
        )
    rung = choose(operands, backend)
    alike = V.dtype == c.dtype == x.dtype and V.device == c.device == x.device
    worth_it = backend != "auto" or MAX_HEAD_SHARE * V.shape[0] <= V.shape[1]
    if rung.read is not None and alike and worth_it and not under_autocast(x):
        _, h_n, y = rung.read(operands, Head(V, c))
        return y, h_n
    with full_precision(x):
        output, h_n = rung.run(operands)
    return F.linear(output, V, c), h_n
