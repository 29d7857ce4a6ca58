"""oRNN: W is a product of Householder reflections."""

from __future__ import annotations

import torch
from torch import nn

from scornn.matrices import Householder
from scornn.nn.catalogue import model
from scornn.nn.rnn import RNN, uniform, zero


@model(
    "ornn",
    label="oRNN",
    colour=5,
    marker="P",
    summary="orthogonal by Householder reflections",
    equation="W = H(u₁) ⋯ H(u_k), H(u) = I − 2uuᵀ/uᵀu",
    source="Mhammedi et al., ICML 2017",
    bench=(256,),
)
class ORNN(RNN):
    r"""Orthogonal by k Householder reflections (Mhammedi, Hellicar, Rahman and Bailey, 2017).

    .. math::
        W = H(u_1) H(u_2) \cdots H(u_k), \quad H(u) = I - 2\frac{uu^T}{u^Tu}, \qquad
        h_t = \mathrm{leaky\_relu}(U x_t + W h_{t-1} + b)

    u_j is zero above row j. For k = n the last reflection, which has one number, is replaced by that number's sign on
    the last coordinate, so that both determinants can be had; the sign gets no gradient.

    U Glorot-uniform, the numbers of u_j from N(0, 0.01), b = 0, h_0 from U(±√(3/2n)) and trained; slope 0.1.

    Deviation: the program of the authors scales every u_j to length 1 after each step; here the length is divided out
    whenever W is made, which gives the same W, and no step after the optimizer is needed.

    Args:
        nonlinearity: ``leaky_relu``, ``relu``, ``tanh``, ``identity`` or ``modrelu``.
        reflections: k, 1..n. Default n // 8, the paper's ratio, and at least 1.
        learn_h0: train the state before the first step.

    Attributes:
        reflection_hh_l{k}: the nk − k(k−1)/2 numbers on and below the diagonal of (u_1 … u_k), row by row.

    Example:
        >>> layer = ORNN(3, 8, reflections=2)
        >>> layer.reflection_hh_l0.shape, bool(layer.orthogonality_error() < 1e-5)
        (torch.Size([15]), True)
    """

    matrix_class = Householder
    default_nonlinearity = "leaky_relu"
    learn_h0 = True

    @torch.no_grad()
    def reset(self, suffix: str) -> None:
        U, b, h0 = self.others(suffix)
        nn.init.xavier_uniform_(U)
        self.matrix(suffix).reset()
        zero(b)
        uniform((3 / (2 * self.hidden_size)) ** 0.5, h0)
