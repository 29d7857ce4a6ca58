"""The unitary networks: uRNN of restricted and of full capacity, and scuRNN."""

from __future__ import annotations

import math

import torch
from torch import nn

from scornn.matrices import FourierProduct, Unitary, UnitaryCayley
from scornn.nn.catalogue import model
from scornn.nn.rnn import RNN, uniform


@model(
    "urnn",
    label="restricted uRNN",
    colour=2,
    marker="^",
    summary="unitary, restricted capacity",
    equation="W = D₃R₂F⁻¹D₂ΠR₁FD₁",
    source="Arjovsky, Shah and Bengio, ICML 2016",
    bench=(512, 2170),
)
class URNN(RNN):
    r"""Unitary evolution network of restricted capacity (Arjovsky, Shah and Bengio, 2016).

    .. math::
        W = D_3 R_2 F^{-1} D_2 Π R_1 F D_1, \qquad h_t = \mathrm{modReLU}(U x_t + W h_{t-1})

    The matrix and its option ``form`` are :class:`scornn.matrices.FourierProduct`'s. The state is adjacent pairs
    (Re, Im), and a head reads both. U Glorot-uniform, b from U(±0.01), h_0 from U(±√(3/2n)) and trained.

    Example:
        >>> output, h_n = URNN(3, 5)(torch.randn(7, 2, 3))
        >>> output.shape, h_n.shape
        (torch.Size([7, 2, 10]), torch.Size([1, 2, 10]))
    """

    matrix_class = FourierProduct
    default_nonlinearity = "modrelu"
    learn_h0 = True

    @torch.no_grad()
    def reset(self, suffix: str) -> None:
        U, b, h0 = self.others(suffix)
        self.matrix(suffix).reset()
        nn.init.xavier_uniform_(U)
        uniform(0.01, b)
        uniform(math.sqrt(3 / (2 * self.hidden_size)), h0)


@model(
    "full-urnn",
    label="full uRNN",
    colour=3,
    marker="D",
    summary="unitary, full capacity; needs optim.StiefelStep",
    equation="W ← (I + λB/2)⁻¹(I − λB/2)W, B = GW* − WG*",
    source="Wisdom et al., NIPS 2016",
    bench=(116, 360, 512),
)
class FullURNN(URNN):
    r"""Unitary network of full capacity (Wisdom, Powers, Hershey, Le Roux and Atlas, 2016).

    .. math::
        h_t = \mathrm{modReLU}(U x_t + W h_{t-1}), \qquad
        W \leftarrow (I + \tfrac{λ}{2}B)^{-1}(I - \tfrac{λ}{2}B)W, \quad B = GW^* - WG^*

    W, ``unitary_hh_l{k}``, is itself the parameter. It stays unitary only if :class:`~scornn.optim.StiefelStep` steps
    it,
    and even then rounding errors add up, as the paper's figure on orthogonality shows: :meth:`orthogonality_error`
    measures it. Starts as :class:`URNN`. W has n² degrees of freedom, which the paper counts, in 2n² stored numbers.
    """

    matrix_class = Unitary  # type: ignore[assignment]


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
class ScuRNN(RNN):
    r"""Scaled Cayley unitary network (Maduranga, Helfrich and Ye, 2019).

    .. math::
        W = (I + A)^{-1}(I - A)D, \quad A^* = -A, \quad D = \mathrm{diag}(e^{iθ}), \qquad
        h_t = \mathrm{modReLU}(U x_t + W h_{t-1})

    A and the phases θ are trained (:class:`scornn.matrices.UnitaryCayley`): what is the choice of rho in
    :class:`~scornn.nn.ScoRNN` is learned here. U Glorot-uniform, b and h_0 from U(±0.01), h_0 trained. Deviation: θ is
    in the same parameter group as A; the authors give it an Adagrad of its own.
    """

    matrix_class = UnitaryCayley
    default_nonlinearity = "modrelu"
    learn_h0 = True

    @torch.no_grad()
    def reset(self, suffix: str) -> None:
        U, b, h0 = self.others(suffix)
        self.matrix(suffix).reset()
        nn.init.xavier_uniform_(U)
        uniform(0.01, b, h0)
