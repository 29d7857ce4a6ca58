"""expRNN and dtriv: W by the exponential map, around the identity or around a base that moves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from scornn.matrices import Exponential, Matrix, MovingExponential
from scornn.nn.catalogue import model
from scornn.nn.rnn import RNN, uniform, zero


@model(
    "exprnn",
    label="expRNN",
    colour=3,
    marker="d",
    summary="orthogonal by the exponential map",
    equation="W = exp(A), Aᵀ = −A",
    source="Lezcano-Casado and Martínez-Rubio, ICML 2019",
    bench=(170,),
)
class ExpRNN(RNN):
    r"""Orthogonal by the exponential map (Lezcano-Casado and Martínez-Rubio, 2019).

    .. math::
        W = \exp(A), \quad A^T = -A, \qquad h_t = \mathrm{modReLU}(U x_t + W h_{t-1})

    The matrix and its option ``start`` are :class:`scornn.matrices.Exponential`'s. U Kaiming-normal, b from U(±0.01).
    With ``backend="naive"`` W too can be differentiated twice.
    """

    matrix_class = Exponential
    default_nonlinearity = "modrelu"

    def make_matrix(self, suffix: str, make: Callable[..., Matrix]) -> Matrix:
        matrix = make()
        assert isinstance(matrix, Exponential)
        matrix.differentiable_twice = self.backend == "naive"  # as the loop of that backend is
        return matrix

    @torch.no_grad()
    def reset(self, suffix: str) -> None:
        U, b, h0 = self.others(suffix)
        self.matrix(suffix).reset()
        nn.init.kaiming_normal_(U)
        uniform(0.01, b)
        zero(h0)


@model(
    "dtriv",
    label="dtriv",
    colour=4,
    marker="D",
    summary="the exponential map around a base that follows W",
    equation="W = B exp(A); every K steps B ← W, A ← 0",
    source="Lezcano-Casado, NeurIPS 2019",
    bench=(170,),
)
class DTriv(ExpRNN):
    r"""Dynamic trivialisation (Lezcano-Casado, 2019): the exponential map around a base that follows W.

    .. math::
        W = B\exp(A), \quad A^T = -A; \qquad \text{every K steps } B \leftarrow W,\; A \leftarrow 0

    Near A = 0 the gradient in A is the one on the manifold, so moving the base keeps the map from bending the steps.
    Moving it changes neither W nor the outputs, beyond rounding. A training loop calls :meth:`after_step` after each
    step of the optimizer, as the program's does; steps are counted in a buffer, so that a run resumes bit for bit.
    Options: ``rebase_every``, K, and ``start`` of :class:`scornn.matrices.MovingExponential`.

    Deviation: each new base is made orthogonal to rounding by one Newton–Schulz step in float64, where the authors'
    program projects by an SVD after some dozens of moves.

    Example:
        >>> layer = DTriv(3, 5, rebase_every=100)
        >>> layer.after_step()  # after optimizer.step()
    """

    matrix_class = MovingExponential

    def rebase(self) -> None:
        """B ← W, A ← 0, in every layer and direction."""
        for suffix in self.suffixes():
            self.matrix(suffix).rebase()

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        if (count := state_dict.pop(f"{prefix}forwards", None)) is not None:  # one count for all, up to version 0.2
            state_dict |= {f"{prefix}steps_hh{suffix}": count for suffix in self.suffixes()}
        super()._load_from_state_dict(state_dict, prefix, *others)
