"""oRNN: W is a product of Householder reflections."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from scornn.nn.base import OrthogonalRecurrentLayer
from scornn.nn.catalogue import model
from scornn.nn.checks import check_choice, check_integer, precise
from scornn.ops.activations import REAL


def householder_product(U: Tensor) -> Tensor:
    r"""The product :math:`H(u_1) \cdots H(u_k)` of reflections :math:`H(u) = I - 2uu^T`, in its WY form.

    :math:`W = I - U T^{-1} U^T` with :math:`T = \mathrm{striu}(U^T U) + \tfrac12 I`: one triangular solve.

    Args:
        U: ``(n, k)``, columns of length 1.

    Example:
        >>> householder_product(torch.tensor([[0.0], [1.0]]))
        tensor([[ 1.,  0.],
                [ 0., -1.]])
    """
    I = torch.eye(U.shape[0], dtype=U.dtype, device=U.device)
    T = torch.triu(U.mT @ U, 1) + torch.eye(U.shape[1], dtype=U.dtype, device=U.device) / 2
    return I - U @ torch.linalg.solve_triangular(T, U.mT, upper=True)


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
class ORNN(OrthogonalRecurrentLayer):
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

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "leaky_relu",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        reflections: int | None = None,
        learn_h0: bool = True,
        backend: str = "auto",
    ) -> None:
        super().__init__(input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional)
        self.activation = check_choice("nonlinearity", nonlinearity, REAL)
        k = max(hidden_size // 8, 1) if reflections is None else reflections
        check_integer("reflections", k, 1, hidden_size)
        self.nonlinearity, self.reflections, self.learn_h0, self.backend = nonlinearity, k, learn_h0, backend
        self.build(device, dtype)

    def recurrent_shapes(self) -> dict[str, tuple[int, ...]]:
        n, k = self.hidden_size, self.reflections
        return {"reflection_hh": (n * k - k * (k - 1) // 2,)}

    def reset(self, suffix: str) -> None:
        nn.init.xavier_uniform_(self.tensor(f"weight_ih{suffix}"))
        nn.init.normal_(self.tensor(f"reflection_hh{suffix}"), std=0.01)
        if self.bias:
            nn.init.zeros_(self.tensor(f"bias{suffix}"))
        if self.learn_h0:
            limit = (3 / (2 * self.hidden_size)) ** 0.5
            nn.init.uniform_(self.tensor(f"h0{suffix}"), -limit, limit)

    def reflection_vectors(self, suffix: str) -> Tensor:
        """(u_1 … u_k) ``(n, k)``, columns of length 1."""
        n, k = self.hidden_size, self.reflections
        v = precise(self.tensor(f"reflection_hh{suffix}"))
        row, column = torch.tril_indices(n, k, device=v.device)
        U = v.new_zeros(n * k).index_copy(0, row * k + column, v).view(n, k)
        return U / torch.linalg.vector_norm(U, dim=0)

    def recurrent_matrix(self, suffix: str) -> Tensor:
        v = self.tensor(f"reflection_hh{suffix}")
        U = self.reflection_vectors(suffix)
        if self.reflections < self.hidden_size:
            return householder_product(U).to(v.dtype)
        W = householder_product(U[:, :-1])
        sign = torch.cat([W.new_ones(self.hidden_size - 1), U[-1:, -1].detach()])
        return (W * sign).to(v.dtype)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, reflections={self.reflections}"
