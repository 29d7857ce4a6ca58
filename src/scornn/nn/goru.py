"""GORU: a gated unit whose candidate state comes from an orthogonal matrix."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor

from scornn.matrices import Rotations
from scornn.nn.catalogue import model
from scornn.nn.rnn import RNN, uniform, zero
from scornn.ops.rung import Operands, run


class RealRotations(Rotations):
    """Of real units, in the pattern of the FFT unless said otherwise, and always a dense matrix."""

    def __init__(self, n: int, style: str = "fft", capacity: int = 2, **where: Any) -> None:
        super().__init__(n, False, style, capacity, "dense", **where)

    def extra_repr(self) -> str:
        return super().extra_repr().removeprefix("complex=False, ")


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
class GORU(RNN):
    r"""Gated orthogonal recurrent unit (Jing, Gulcehre, Peurifoy, Shen, Tegmark, Soljačić and Bengio, 2017).

    .. math::
        r = σ(U_r x_t + W_r h_{t-1} + b_r), \qquad g = σ(U_g x_t + W_g h_{t-1} + b_g), \qquad
        c = \mathrm{modReLU}(r \odot (W h_{t-1}) + U_c x_t), \qquad h_t = g \odot h_{t-1} + (1 - g) \odot c

    W is a real product of rotations, with the options ``style`` and ``capacity`` of :class:`scornn.matrices.Rotations`;
    the gates' matrices, ``weight_gates_l{k}``, W_r above W_g, are free. U and b are those of r, g and c one above the
    other. U, W_r and W_g from U(±0.01); b_r = 2, b_g from U(±√(3/n)), b_c = 0.011: the authors' 0.01 together with the
    0.001 that they add to the modulus.
    """

    kind = "goru"
    matrix_class = RealRotations
    nonlinearities: ClassVar[tuple[str, ...]] = ("modrelu",)
    default_nonlinearity = "modrelu"

    def parameter_shapes(self, input_size: int) -> dict[str, tuple[int, ...]]:
        n = self.hidden_size
        bias: dict[str, tuple[int, ...]] = {"bias": (3 * n,)} if self.bias else {}
        return {"weight_ih": (3 * n, input_size), "weight_gates": (2 * n, n), **bias}

    @torch.no_grad()
    def reset(self, suffix: str) -> None:
        U, b, h0 = self.others(suffix)
        self.matrix(suffix).reset()
        uniform(0.01, U, getattr(self, f"weight_gates{suffix}"))
        if b is not None:
            b_r, b_g, b_c = b.chunk(3)
            b_r.fill_(2)
            uniform(math.sqrt(3 / self.hidden_size), b_g)
            b_c.fill_(0.011)
        zero(h0)

    def run(
        self, suffix: str, x: Tensor, h0: Tensor, batch_sizes: Tensor | None, reverse: bool
    ) -> tuple[Tensor, Tensor]:
        output, h_n = run(Operands(x, h0, *self.operands(suffix), self.kind, batch_sizes, reverse), self.backend)
        return output, h_n

    def operands(self, suffix: str) -> tuple[Tensor, Tensor, Tensor | None]:
        """The gates above W, U, and b with zeros beside W h, as :mod:`scornn.ops.gated` takes them."""
        W, U, b = super().operands(suffix)
        nothing = U.new_zeros(self.hidden_size)
        return torch.cat([getattr(self, f"weight_gates{suffix}"), W]), U, None if b is None else torch.cat([b, nothing])
