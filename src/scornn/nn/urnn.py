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

    D_j = diag(e^{iθ}), R_j complex reflections, F the unitary Fourier transform, Π a fixed random permutation: 7n
    numbers make W. The state is adjacent pairs (Re, Im), and a head reads both.

    θ from U(−π, π), the reflections Glorot-uniform, U Glorot-uniform, b from U(±0.01), h_0 from U(±√(3/2n)) and
    trained.

    Args:
        form: ``dense`` makes W once per forward by applying the product to the identity, and runs one dense matrix;
            ``fft`` applies the product in every step, which is cheaper for large n; ``auto`` is ``fft`` from n = 64 on
            where the kernel runs, from 4096 on elsewhere. Equal to rounding.
        learn_h0: train the state before the first step.

    Attributes:
        phase_hh_l{k}: θ of D_1, D_2, D_3 ``(3, n)``.
        reflection_hh_l{k}: vectors of R_1, R_2 as (Re, Im) ``(2, n, 2)``.
        permutation_hh_l{k}: Π, a buffer.

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

    W is itself the parameter. It stays unitary only if it is stepped by :class:`scornn.optim.StiefelStep`, and even
    then rounding errors add up, as the paper's figure on orthogonality shows: :meth:`orthogonality_error` measures
    it. Any other optimizer leaves the manifold at once.

    W starts as the product of :class:`URNN`; the rest as there. W has n² degrees of freedom, the
    number that the paper counts, in 2n² stored numbers.

    Args:
        learn_h0: train the state before the first step.

    Attributes:
        unitary_hh_l{k}: W as (Re, Im) ``(n, n, 2)``.

    Example:
        >>> layer = FullURNN(3, 5)
        >>> bool(layer.orthogonality_error() < 1e-5)
        True
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

    matrix_class = UnitaryCayley
    default_nonlinearity = "modrelu"
    learn_h0 = True

    @torch.no_grad()
    def reset(self, suffix: str) -> None:
        U, b, h0 = self.others(suffix)
        self.matrix(suffix).reset()
        nn.init.xavier_uniform_(U)
        uniform(0.01, b, h0)
