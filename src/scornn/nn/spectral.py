"""Singular values kept near 1: within a margin by construction, or drawn there by a penalty."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from scornn.functional import full_precision, orthogonality_error, scaled_cayley, skew
from scornn.nn import init
from scornn.nn.base import DenseRecurrentLayer
from scornn.nn.catalogue import model
from scornn.nn.checks import check_choice, check_number, precise
from scornn.ops.activations import REAL


def soft_orthogonality(model: nn.Module) -> Tensor:
    r"""The soft constraint :math:`\sum \|W^TW - I\|_F^2` over every dense recurrent matrix of a model.

    To be added to a loss with a factor λ.

    Example:
        >>> soft_orthogonality(scornn.nn.build("irnn", 3, 5)).item()
        0.0
    """
    terms = []
    for module in model.modules():
        if isinstance(module, DenseRecurrentLayer):
            for suffix in module.suffixes():
                with full_precision(module.like):
                    W = precise(module.recurrent_matrix(suffix))
                    terms.append((W.mT @ W - torch.eye(W.shape[0], dtype=W.dtype, device=W.device)).square().sum())
    if not terms:
        raise ValueError(f"soft_orthogonality: {type(model).__name__} has no layer with a dense recurrent matrix")
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
class SpectralRNN(DenseRecurrentLayer):
    r"""Singular values within a margin of 1 (Vorontsov, Trabelsi, Kadoury and Pal, 2017).

    .. math::
        W = P\,\mathrm{diag}(s)\,Q, \qquad s = 1 + 2\,\mathrm{margin}\,(\mathrm{sigmoid}(q) - \tfrac12), \qquad
        h_t = \sigma(U x_t + W h_{t-1} + b)

    P and Q are orthogonal, q = 0 at the start, so W starts orthogonal and every singular value stays inside
    1 ± margin. With margin 0 it stays orthogonal, and q is not made.

    Deviations: P and Q come from the scaled Cayley transform rather than from multiplicative updates with a
    learning rate of their own, so that any optimizer can train them and none lets them drift; they start as the
    paper's rotations. Instead of a smaller learning rate for q there is the margin in its gradient.

    Args:
        nonlinearity: ``tanh``, ``relu``, ``leaky_relu``, ``identity`` or ``modrelu``.
        margin: largest distance of a singular value from 1, in [0, 1].
        learn_h0: train the state before the first step (starts at zero).

    Attributes:
        skew_left_hh_l{k}, skew_right_hh_l{k}: free numbers of P and Q.
        sign_left_hh_l{k}, sign_right_hh_l{k}: their D, buffers.
        spectrum_hh_l{k}: the numbers q.

    Example:
        >>> layer = SpectralRNN(3, 5, margin=0.1)
        >>> bool(torch.linalg.svdvals(layer.weight_hh_l0).sub(1).abs().max() <= 0.1)
        True
    """

    signs = ("sign_left_hh", "sign_right_hh")

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        margin: float = 0.01,
        learn_h0: bool = False,
        backend: str = "auto",
    ) -> None:
        super().__init__(input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional)
        self.activation = check_choice("nonlinearity", nonlinearity, REAL)
        within = "margin, the largest distance of a singular value from 1,", margin, "a number in 0..1"
        self.margin = check_number(*within, lambda number: 0 <= number <= 1)
        self.nonlinearity, self.learn_h0, self.backend = nonlinearity, learn_h0, backend
        self.build(device, dtype)

    def recurrent_shapes(self) -> dict[str, tuple[int, ...]]:
        n = self.hidden_size
        free: tuple[int, ...] = (n * (n - 1) // 2,)
        return {"skew_left_hh": free, "skew_right_hh": free} | ({"spectrum_hh": (n,)} if self.margin else {})

    def buffer_shapes(self) -> dict[str, tuple[int, ...]]:
        return dict.fromkeys(self.signs, (self.hidden_size,))

    @torch.no_grad()
    def reset(self, suffix: str) -> None:
        n = self.hidden_size
        for side in ("left", "right"):
            init.cayley_rotations_(self.tensor(f"skew_{side}_hh{suffix}"), n)
            sign = self.tensor(f"sign_{side}_hh{suffix}").fill_(1)
            sign[n - n // 2 :] = -1
        nn.init.xavier_uniform_(self.tensor(f"weight_ih{suffix}"))
        for name in ["spectrum_hh"] * bool(self.margin) + ["bias"] * self.bias + ["h0"] * self.learn_h0:
            nn.init.zeros_(self.tensor(f"{name}{suffix}"))

    def singular_values(self, suffix: str) -> Tensor:
        """s, in no particular order."""
        if not self.margin:
            return torch.ones_like(precise(self.tensor(f"sign_left_hh{suffix}")))
        p = precise(self.tensor(f"spectrum_hh{suffix}"))
        return 1 + 2 * self.margin * (torch.sigmoid(p) - 0.5)

    def factors(self, suffix: str) -> Tensor:
        """P and Q, ``(2, n, n)``."""
        v = torch.stack([self.tensor(f"skew_{side}_hh{suffix}") for side in ("left", "right")])
        D = torch.stack([self.tensor(f"sign_{side}_hh{suffix}") for side in ("left", "right")])
        return scaled_cayley(skew(precise(v), self.hidden_size), precise(D))

    def recurrent_matrix(self, suffix: str) -> Tensor:
        P, Q = self.factors(suffix)
        W: Tensor = P * self.singular_values(suffix) @ Q
        return W.to(self.tensor(f"skew_left_hh{suffix}").dtype)

    @torch.no_grad()
    def orthogonality_error(self) -> float | None:
        """Largest ‖PᵀP − I‖_F and ‖QᵀQ − I‖_F: W itself is orthogonal only up to its margin."""
        return max(float(orthogonality_error(self.factors(suffix)).max()) for suffix in self.suffixes())

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, margin={self.margin:g}"
