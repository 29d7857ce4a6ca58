"""Checks the arguments of the sequence operator and picks the rung that runs it."""

from __future__ import annotations

import warnings
from functools import cache

import torch
from torch import Tensor

from scornn.ops import custom, manual, naive, native
from scornn.ops.activations import ACTIVATIONS

BACKENDS = ("auto", "native", "manual", "naive")


def backends() -> dict[str, str]:
    """What can run here: for each backend "available", or the reason why it cannot run.

    Example:
        >>> backends()["manual"]
        'available'
    """
    return {"naive": "available", "manual": "available", "native": native.unavailable() or "available"}


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
        backend: ``auto``, ``native``, ``manual`` or ``naive``.

    Returns:
        The states ``(T, B, n)`` or ``(N, n)``, and the last state of each sequence ``(B, n)``.

    Example:
        >>> I, x = torch.eye(2), torch.ones(3, 1, 2)
        >>> recurrence(x, torch.zeros(1, 2), I, I, activation="identity")[1]
        tensor([[3., 3.]])
    """
    check(x, h0, W, U, b, activation, batch_sizes)
    rung = choose_rung(backend, x)
    return rung(x, h0, W, U, b, activation, batch_sizes, reverse)


def check(
    x: Tensor, h0: Tensor, W: Tensor, U: Tensor, b: Tensor | None, activation: str, batch_sizes: Tensor | None
) -> None:
    """Raise where the arguments of the operator do not belong together."""
    if activation not in ACTIVATIONS:
        raise ValueError(f"unknown activation {activation!r}; expected one of {', '.join(ACTIVATIONS)}")
    n, m = U.shape
    dims = 3 if batch_sizes is None else 2
    if x.dim() != dims or x.shape[-1] != m:
        raise ValueError(f"expected x with {dims} dimensions, the last of size {m}; got shape {tuple(x.shape)}")
    if x.shape[0] == 0:
        raise RuntimeError("Expected sequence length to be larger than 0")
    expected: dict[str, tuple[int, ...]] = {
        "h0": (x.shape[1] if batch_sizes is None else int(batch_sizes[0]), n),
        "W": (n, n),
    }
    if b is not None:
        expected["b"] = (n // ACTIVATIONS[activation].units_per_bias,)
    for name, tensor in (("h0", h0), ("W", W), ("b", b)):
        if tensor is not None and tuple(tensor.shape) != expected[name]:
            raise ValueError(f"expected {name} of shape {expected[name]}, got {tuple(tensor.shape)}")
    for name, tensor in (("h0", h0), ("W", W), ("U", U), ("b", b)):
        if tensor is not None and (tensor.dtype != x.dtype or tensor.device != x.device):
            raise ValueError(
                f"x is {x.dtype} on {x.device}, but {name} is {tensor.dtype} on {tensor.device}; they must agree"
            )


def choose_rung(backend: str, x: Tensor) -> custom.Recurrence:
    """What runs ``backend`` on tensors such as x."""
    if backend not in BACKENDS:
        raise ValueError(f"unknown backend {backend!r}; expected one of {', '.join(BACKENDS)}")
    if custom.takes_plain_loop(backend):
        return naive.recurrence
    if backend == "manual":
        return manual.recurrence
    reason = _why_not_native()
    runs_here = x.device.type in ("cpu", "meta") and x.dtype in (torch.float32, torch.float64)
    if reason is None and runs_here:
        return native.recurrence
    if backend == "native":
        raise RuntimeError(
            'backend="native" cannot run: '
            + (reason or f"it takes float32 or float64 on the CPU, got {x.dtype} on {x.device}")
        )
    if reason is not None and runs_here:
        _warn_once(reason)
    return manual.recurrence


def _why_not_native() -> str | None:
    return native.unavailable()


# What torch.compiler.assume_constant_result does; calling it would import the compiler, a second at every start.
vars(_why_not_native)["_dynamo_marked_constant"] = True


@cache
def _warn_once(reason: str) -> None:
    warnings.warn(f"the native kernel cannot run ({reason}); using PyTorch, which is slower", stacklevel=4)
