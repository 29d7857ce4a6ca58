"""The full-capacity uRNN: W is any unitary matrix, moved along the manifold by the optimizer."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from scornn.nn.catalogue import model
from scornn.nn.unitary import UnitaryRecurrentLayer, as_complex
from scornn.ops import fourier


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
class FullURNN(UnitaryRecurrentLayer):
    r"""Unitary network of full capacity (Wisdom, Powers, Hershey, Le Roux and Atlas, 2016).

    .. math::
        h_t = \mathrm{modReLU}(U x_t + W h_{t-1}), \qquad
        W \leftarrow (I + \tfrac{λ}{2}B)^{-1}(I - \tfrac{λ}{2}B)W, \quad B = GW^* - WG^*

    W is itself the parameter. It stays unitary only if it is stepped by :class:`scornn.optim.StiefelStep`, and even
    then rounding errors add up, as the paper's figure on orthogonality shows: :meth:`orthogonality_error` measures
    it. Any other optimizer leaves the manifold at once.

    W starts as the product of :class:`~scornn.nn.urnn.URNN`; the rest as there. W has n² degrees of freedom, the
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

    def recurrent_shapes(self) -> dict[str, tuple[int, ...]]:
        return {"unitary_hh": (self.hidden_size, self.hidden_size, 2)}

    @torch.no_grad()
    def reset(self, suffix: str) -> None:
        n = self.hidden_size
        theta = torch.empty(3, n, dtype=torch.float64, device="cpu").uniform_(-math.pi, math.pi)
        v = torch.empty(2, n, 2, dtype=torch.float64, device="cpu").uniform_(-1, 1)  # its length does not matter
        factors = fourier.Factors.of(theta, v, torch.randperm(n, device="cpu"))
        W = fourier.apply(torch.eye(n, dtype=torch.complex128, device="cpu"), factors).mT
        self.tensor(f"unitary_hh{suffix}").copy_(torch.view_as_real(W.contiguous()))
        nn.init.xavier_uniform_(self.tensor(f"weight_ih{suffix}"))
        if self.bias:
            nn.init.uniform_(self.tensor(f"bias{suffix}"), -0.01, 0.01)
        if self.learn_h0:
            limit = math.sqrt(3 / (2 * n))
            nn.init.uniform_(self.tensor(f"h0{suffix}"), -limit, limit)

    def unitary_matrix(self, suffix: str) -> Tensor:
        return as_complex(self.tensor(f"unitary_hh{suffix}"))

    @torch.no_grad()
    def retract_(self) -> None:
        """Replace each W by the unitary matrix nearest to it: an average of unitary matrices is not one."""
        for suffix in self.suffixes():
            left, _, right = torch.linalg.svd(self.unitary_matrix(suffix).to(torch.complex128))
            self.tensor(f"unitary_hh{suffix}").copy_(torch.view_as_real(left @ right))

    def constraints(self) -> int:
        return len(self.suffixes()) * self.hidden_size**2
