"""Orthogonal initialisation alone: W starts as a block-diagonal rotation and is free afterwards."""

from __future__ import annotations

import torch
from torch import Tensor

from scornn.functional import skew
from scornn.nn import init
from scornn.nn.catalogue import model
from scornn.nn.rnn import RNN


@model(
    "henaff",
    label="Henaff",
    colour=7,
    marker="P",
    summary="orthogonal at the start only",
    equation="h' = σ(Ux + Wh), W = exp(A) at the start",
    source="Henaff, Szlam and LeCun, ICML 2016",
    bench=(170,),
)
class Henaff(RNN):
    r"""A plain network that starts at a random rotation (Henaff, Szlam and LeCun, 2016).

    .. math::
        h_t = \sigma(U x_t + W h_{t-1}), \qquad
        W = \exp(A) \text{ at the start, } A = \mathrm{diag}\begin{pmatrix}0 & t_j\\ -t_j & 0\end{pmatrix},
        \quad t_j \sim U(-\pi, \pi)

    W is trained without any constraint, which shows what keeping it orthogonal adds. σ is modReLU unless said
    otherwise, so that only the constraint sets it apart from :class:`~scornn.nn.ScoRNN`; the publication studies
    linear transitions (``nonlinearity="identity"``). U is Glorot-uniform, b = 0.

    Example:
        >>> layer = Henaff(3, 6)
        >>> bool(scornn.functional.orthogonality_error(layer.weight_hh_l0) < 1e-5)
        True
    """

    default_nonlinearity = "modrelu"

    @torch.no_grad()
    def reset_recurrent_matrix(self, W: Tensor) -> None:
        n = self.hidden_size
        t = init.rotation_angles_(torch.empty(n * (n - 1) // 2, dtype=torch.float64, device="cpu"), n)
        W.copy_(torch.linalg.matrix_exp(skew(t, n)))
