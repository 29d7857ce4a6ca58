"""scuRNN: the scaled Cayley transform over the complex numbers, with the scaling matrix trained too."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from scornn.functional import scaled_cayley, skew
from scornn.nn import init
from scornn.nn.catalogue import model
from scornn.nn.checks import precise
from scornn.nn.unitary import UnitaryRecurrentLayer, unit


def symmetric(v: Tensor, n: int) -> Tensor:
    """Arrange n(n+1)/2 numbers, row by row from the diagonal on, as a symmetric matrix.

    Example:
        >>> symmetric(torch.tensor([1.0, 2.0, 3.0]), 2)
        tensor([[1., 2.],
                [2., 3.]])
    """
    row, column = torch.triu_indices(n, n, device=v.device)
    upper = v.new_zeros(n * n).index_copy(0, row * n + column, v).view(n, n)
    return upper + torch.triu(upper, 1).mT


@model(
    "scurnn",
    label="scuRNN",
    colour=5,
    marker="v",
    summary="unitary by the scaled Cayley transform, phases trained",
    equation="W = (I + A)⁻¹(I − A)D, A* = −A, D = diag(e^{iθ})",
    source="Maduranga, Helfrich and Ye, AAAI 2019",
    bench=(116,),
)
class ScuRNN(UnitaryRecurrentLayer):
    r"""Scaled Cayley unitary network (Maduranga, Helfrich and Ye, 2019).

    .. math::
        W = (I + A)^{-1}(I - A)D, \quad A^* = -A, \quad D = \mathrm{diag}(e^{iθ}), \qquad
        h_t = \mathrm{modReLU}(U x_t + W h_{t-1})

    A (skew-Hermitian, n² real numbers) and the phases θ are trained: what is the choice of rho in
    :class:`~scornn.nn.ScoRNN` is learned here. The state is adjacent pairs (Re, Im).

    A starts with the paper's real rotation blocks, θ from U(0, 2π), U Glorot-uniform, b and h_0 from U(±0.01), h_0
    trained. Deviation: θ is in the same parameter group as A; the authors give it an Adagrad of its own.

    Args:
        learn_h0: train the state before the first step.

    Attributes:
        skew_hh_l{k}: the n(n−1)/2 real parts above the diagonal of A.
        symmetric_hh_l{k}: the n(n+1)/2 imaginary parts on and above it.
        phase_hh_l{k}: θ.

    Example:
        >>> layer = ScuRNN(3, 5)
        >>> bool(layer.orthogonality_error() < 1e-5)
        True
    """

    def recurrent_shapes(self) -> dict[str, tuple[int, ...]]:
        n = self.hidden_size
        return {"skew_hh": (n * (n - 1) // 2,), "symmetric_hh": (n * (n + 1) // 2,), "phase_hh": (n,)}

    def reset(self, suffix: str) -> None:
        init.cayley_rotations_(self.tensor(f"skew_hh{suffix}"), self.hidden_size)
        nn.init.zeros_(self.tensor(f"symmetric_hh{suffix}"))
        nn.init.uniform_(self.tensor(f"phase_hh{suffix}"), 0, 2 * math.pi)
        nn.init.xavier_uniform_(self.tensor(f"weight_ih{suffix}"))
        for name in ["bias"] * self.bias + ["h0"] * self.learn_h0:
            nn.init.uniform_(self.tensor(f"{name}{suffix}"), -0.01, 0.01)

    def unitary_matrix(self, suffix: str) -> Tensor:
        n = self.hidden_size
        real = skew(precise(self.tensor(f"skew_hh{suffix}")), n)
        imaginary = symmetric(precise(self.tensor(f"symmetric_hh{suffix}")), n)
        return scaled_cayley(torch.complex(real, imaginary), unit(self.tensor(f"phase_hh{suffix}")))
