"""Singular values kept near 1: within a margin by construction, or drawn there by a penalty."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from scornn.matrices import Matrix, Spectral
from scornn.matrices.free import deviation
from scornn.nn.catalogue import model
from scornn.nn.rnn import RNN, zero


def soft_orthogonality(model: nn.Module) -> Tensor:
    r"""The soft constraint :math:`\sum \|W^TW - I\|_F^2` over every recurrent matrix of a model.

    To be added to a loss with a factor λ.

    Example:
        >>> soft_orthogonality(scornn.nn.build("irnn", 3, 5)).item()
        0.0
    """
    terms = [deviation(module.W()) for module in model.modules() if isinstance(module, Matrix)]
    if not terms:
        raise ValueError(f"soft_orthogonality: {type(model).__name__} has no layer with a recurrent matrix")
    return torch.stack(terms).sum()


@model(
    "spectral",
    label="spectral RNN",
    colour=6,
    marker="^",
    summary="singular values within a margin of 1",
    equation="W = P diag(s) Q, |s − 1| ≤ margin",
    source="Vorontsov et al., ICML 2017",
    bench=(170,),
)
class SpectralRNN(RNN):
    r"""Singular values within a margin of 1 (Vorontsov, Trabelsi, Kadoury and Pal, 2017).

    .. math::
        W = P\,\mathrm{diag}(s)\,Q, \qquad s = 1 + 2\,\mathrm{margin}\,(\mathrm{sigmoid}(q) - \tfrac12), \qquad
        h_t = \sigma(U x_t + W h_{t-1} + b)

    The matrix and its option ``margin`` are :class:`scornn.matrices.Spectral`'s. Deviations: P and Q come from the
    scaled Cayley transform rather than from multiplicative updates with a rate of their own, so that any optimizer can
    train them and none lets them drift. Instead of a smaller rate for q there is the margin in its gradient.

    Example:
        >>> layer = SpectralRNN(3, 5, margin=0.1)
        >>> bool(torch.linalg.svdvals(layer.weight_hh_l0).sub(1).abs().max() <= 0.1)
        True
    """

    matrix_class = Spectral

    @torch.no_grad()
    def reset(self, suffix: str) -> None:
        U, b, h0 = self.others(suffix)
        self.matrix(suffix).reset()
        nn.init.xavier_uniform_(U)
        zero(b, h0)
