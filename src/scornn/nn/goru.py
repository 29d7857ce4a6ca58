"""GORU: a gated unit whose candidate state comes from an orthogonal matrix."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from scornn.nn.base import OrthogonalRecurrentLayer
from scornn.nn.catalogue import model
from scornn.nn.checks import check_choice, precise
from scornn.nn.eurnn import check_rotations
from scornn.ops import rotations
from scornn.ops.rung import Operands, run


@model(
    "goru",
    label="GORU",
    colour=2,
    marker="s",
    summary="gated unit with an orthogonal matrix inside",
    equation="h' = g ⊙ h + (1 − g) ⊙ modReLU(r ⊙ (Wh) + Ux), W = R_L ⋯ R₁",
    source="Jing et al., Neural Computation 2019",
    bench=(128,),
)
class GORU(OrthogonalRecurrentLayer):
    r"""Gated orthogonal recurrent unit (Jing, Gulcehre, Peurifoy, Shen, Tegmark, Soljačić and Bengio, 2017).

    .. math::
        r = σ(U_r x_t + W_r h_{t-1} + b_r), \qquad g = σ(U_g x_t + W_g h_{t-1} + b_g), \qquad
        c = \mathrm{modReLU}(r \odot (W h_{t-1}) + U_c x_t), \qquad h_t = g \odot h_{t-1} + (1 - g) \odot c

    W is a real product of rotations as in :class:`~scornn.nn.eurnn.EURNN`; the gates' matrices are free.

    Angles from U(−π, π); U, W_r and W_g from U(±0.01); b_r = 2, b_g from U(±√(3/n)), b_c = 0.011: the authors' 0.01
    together with the 0.001 that they add to the modulus.

    Args:
        style: ``fft``, log₂ n layers of butterflies, n a power of two; or ``tunable``.
        capacity: L of the tunable style.
        backend: ``auto``, ``native``, ``manual`` (hand-written backward) or ``naive``.

    Attributes:
        angle_hh_l{k}: angles of the rotations that make W, which is ``weight_hh_l{k}``.
        weight_gates_l{k}: W_r and W_g, one above the other.
        weight_ih_l{k}, bias_l{k}: U and b, for r, g and c one above the other.

    Example:
        >>> output, h_n = GORU(3, 8)(torch.randn(7, 2, 3))
        >>> output.shape
        torch.Size([7, 2, 8])
    """

    kind = "goru"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "modrelu",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        style: str = "fft",
        capacity: int = 2,
        backend: str = "auto",
    ) -> None:
        super().__init__(input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional)
        self.activation = self.nonlinearity = check_choice("nonlinearity", nonlinearity, ("modrelu",))
        self.backend = backend
        check_rotations(hidden_size, style, capacity)
        self.style, self.capacity = style, capacity
        self.layers = rotations.layers(hidden_size, style, capacity)
        self.build(device, dtype)

    def recurrent_shapes(self) -> dict[str, tuple[int, ...]]:
        return {"angle_hh": (sum(layer.pairs for layer in self.layers),)}

    def parameter_shapes(self, input_size: int) -> dict[str, tuple[int, ...]]:
        n = self.hidden_size
        bias: dict[str, tuple[int, ...]] = {"bias": (3 * n,)} if self.bias else {}
        return {"weight_ih": (3 * n, input_size), "weight_gates": (2 * n, n), **self.recurrent_shapes(), **bias}

    @torch.no_grad()
    def reset(self, suffix: str) -> None:
        nn.init.uniform_(self.tensor(f"angle_hh{suffix}"), -math.pi, math.pi)
        for name in ("weight_ih", "weight_gates"):
            nn.init.uniform_(self.tensor(f"{name}{suffix}"), -0.01, 0.01)
        if self.bias:
            b_r, b_g, b_c = self.tensor(f"bias{suffix}").chunk(3)
            limit = math.sqrt(3 / self.hidden_size)
            b_r.fill_(2)
            b_g.uniform_(-limit, limit)
            b_c.fill_(0.011)

    def recurrent_matrix(self, suffix: str) -> Tensor:
        angle = self.tensor(f"angle_hh{suffix}")
        made = rotations.Rotations.of(self.layers, precise(angle), None, None)
        I = torch.eye(self.hidden_size, dtype=precise(angle).dtype, device=angle.device)
        return rotations.apply(I, made).mT.to(angle.dtype)

    def run(
        self, suffix: str, x: Tensor, h0: Tensor, batch_sizes: Tensor | None, reverse: bool
    ) -> tuple[Tensor, Tensor]:
        output, h_n = run(Operands(x, h0, *self.operands(suffix), self.kind, batch_sizes, reverse), self.backend)
        return output, h_n

    def operands(self, suffix: str) -> tuple[Tensor, Tensor, Tensor | None]:
        """The gates above W, U, and b with zeros beside W h, as :mod:`scornn.ops.gated` takes them."""
        W, U, b = super().operands(suffix)
        nothing = U.new_zeros(self.hidden_size)
        return torch.cat([self.tensor(f"weight_gates{suffix}"), W]), U, None if b is None else torch.cat([b, nothing])

    def extra_repr(self) -> str:
        layers = f"capacity={self.capacity}" if self.style == "tunable" else f"style={self.style}"
        return f"{super().extra_repr()}, {layers}"
