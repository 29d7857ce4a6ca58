"""EURNN: W is a product of layers of 2 × 2 rotations on disjoint pairs of units."""

from __future__ import annotations

import torch
from torch import nn

from scornn.matrices import Rotations
from scornn.nn.catalogue import model
from scornn.nn.rnn import RNN, uniform


@model(
    "eurnn",
    label="EURNN",
    colour=6,
    marker="v",
    summary="unitary by layers of rotations, tunable capacity",
    equation="W = diag(e^{iω}) R_L ⋯ R₁",
    source="Jing et al., ICML 2017",
    bench=(512,),
)
class EURNN(RNN):
    r"""Efficient unitary network of tunable capacity (Jing, Shen, Dubček, Peurifoy, Skirlo, LeCun, Tegmark and
    Soljačić, 2017).

    .. math::
        W = \mathrm{diag}(e^{iω})\, R_L \cdots R_2 R_1, \qquad h_t = \mathrm{modReLU}(U x_t + W h_{t-1})

    The matrix and its options ``complex``, ``style``, ``capacity`` and ``form`` are those of
    :class:`scornn.matrices.Rotations`. U from U(±0.01); h_0, where it is trained, from U(±0.01). The authors' modulus
    is \|z\| + 0.01, which for real z is a bias 0.01 higher: b starts at 0.01 here instead of 0. Deviation: in the
    complex case the same 0.01 stands in their denominator, where here it is 1e-5. A head reads the real part alone.

    Example:
        >>> layer = EURNN(3, 8, capacity=4)
        >>> output, h_n = layer(torch.randn(7, 2, 3))
        >>> output.shape, layer.angle_hh_l0.shape
        (torch.Size([7, 2, 16]), torch.Size([14]))
    """

    matrix_class = Rotations
    default_nonlinearity = "modrelu"

    @torch.no_grad()
    def reset(self, suffix: str) -> None:
        U, b, h0 = self.others(suffix)
        uniform(0.01, U)
        self.matrix(suffix).reset()
        if b is not None:
            nn.init.constant_(b, 0.01)
        uniform(0.01, h0)

    @property
    def readout_stride(self) -> int:  # type: ignore[override]
        """Of complex units a head reads the real parts."""
        return 2 if self.matrix("_l0").complex else 1
