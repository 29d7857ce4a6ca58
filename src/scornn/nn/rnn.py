"""RNN and IRNN: the recurrent matrix is itself the parameter, free to go anywhere."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from scornn.nn.base import DenseRecurrentLayer
from scornn.nn.catalogue import model
from scornn.nn.checks import check_choice, check_number
from scornn.nn.spectral import soft_orthogonality
from scornn.ops.activations import REAL


@model(
    "rnn",
    label="RNN",
    colour=6,
    marker="*",
    summary="plain recurrent network",
    equation="h' = tanh(Ux + Wh + b)",
    source="Elman, 1990",
    bench=(116, 360, 512),
)
class RNN(DenseRecurrentLayer):
    r"""The plain recurrent network.

    .. math::
        h_t = \tanh(U x_t + W h_{t-1} + b)

    U and W Glorot-uniform, b = 0. Takes what :class:`torch.nn.RNN` takes, with one bias vector where that has two,
    and runs on the same sequence operator as :class:`~scornn.nn.ScoRNN`.

    Args:
        nonlinearity: ``tanh``, the default, ``relu``, ``leaky_relu``, ``identity``, or ``modrelu``, which adds b to
            \|z\|.
        learn_h0: train the state before the first step (starts at zero). The paper's counts are without it.
        soft_orthogonality: λ of the penalty :math:`λ\|W^TW - I\|_F^2` that the training loss adds; see
            :meth:`penalty`.

    Example:
        >>> output, h_n = RNN(3, 5)(torch.randn(7, 2, 3))
        >>> output.shape, h_n.shape
        (torch.Size([7, 2, 5]), torch.Size([1, 2, 5]))
    """

    default_nonlinearity = "tanh"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        learn_h0: bool = False,
        soft_orthogonality: float = 0.0,
        backend: str = "auto",
    ) -> None:
        super().__init__(input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional)
        nonlinearity = self.default_nonlinearity if nonlinearity is None else nonlinearity
        self.activation = check_choice("nonlinearity", nonlinearity, REAL)
        self.nonlinearity, self.learn_h0, self.backend = nonlinearity, learn_h0, backend
        least = "a finite number of at least 0"
        self.soft_orthogonality = check_number(
            "soft_orthogonality", soft_orthogonality, least, lambda number: number >= 0
        )
        self.build(device, dtype)

    def recurrent_shapes(self) -> dict[str, tuple[int, ...]]:
        return {"weight_hh": (self.hidden_size, self.hidden_size)}

    def recurrent_matrix(self, suffix: str) -> Tensor:
        return self.tensor(f"weight_hh{suffix}")

    def reset(self, suffix: str) -> None:
        nn.init.xavier_uniform_(self.tensor(f"weight_ih{suffix}"))
        self.reset_recurrent_matrix(self.tensor(f"weight_hh{suffix}"))
        if self.bias:
            nn.init.zeros_(self.tensor(f"bias{suffix}"))
        if self.learn_h0:
            nn.init.zeros_(self.tensor(f"h0{suffix}"))

    def reset_recurrent_matrix(self, W: Tensor) -> None:
        nn.init.xavier_uniform_(W)

    def penalty(self) -> Tensor | None:
        """λ Σ ‖WᵀW − I‖²_F over layers and directions; None where λ is 0."""
        return self.soft_orthogonality * soft_orthogonality(self) if self.soft_orthogonality else None


@model(
    "irnn",
    label="IRNN",
    colour=1,
    marker="o",
    summary="ReLU network started at the identity",
    equation="h' = relu(Ux + Wh + b), W = I at the start",
    source="Le et al., 2015",
    bench=(170,),
)
class IRNN(RNN):
    r"""The ReLU network that starts at the identity (Le, Jaitly and Hinton, 2015).

    .. math::
        h_t = \mathrm{relu}(U x_t + W h_{t-1} + b), \qquad W = I,\; b = 0 \text{ at the start}

    U is Glorot-uniform, as in the uRNN authors' program; the publication draws it from N(0, 0.001).

    Example:
        >>> torch.equal(IRNN(3, 5).weight_hh_l0, torch.eye(5))
        True
    """

    default_nonlinearity = "relu"

    @torch.no_grad()
    def reset_recurrent_matrix(self, W: Tensor) -> None:
        W.zero_().fill_diagonal_(1)
