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

    The matrix and its option ``reflections`` are :class:`scornn.matrices.Householder`'s. U Glorot-uniform, b = 0, h_0
    from U(±√(3/2n)) and trained; slope 0.1. Deviation: the program of the authors scales every u_j to length 1 after
    each step; here the length is divided out whenever W is made, which gives the same W.
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
