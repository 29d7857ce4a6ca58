"""Layers of 2 × 2 rotations on disjoint pairs of units, of tunable number or in the pattern of the FFT."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from scornn.matrices.checks import check_choice, check_integer, precise
from scornn.matrices.complex import ProductMatrix
from scornn.ops import rotations

# Size of the state, for each layer of rotations, from which the product is applied in every step.
PRODUCT_FROM = 20  # on the kernel
PRODUCT_FROM_WITHOUT_KERNEL = 1000


class Rotations(ProductMatrix):
    r""":math:`W = \mathrm{diag}(e^{iω})\, R_L \cdots R_2 R_1`: the W of EURNN, and its real part that of GORU.

    Each R is a layer of 2 × 2 rotations on disjoint pairs, :math:`h_a' = \cos θ\, h_a - e^{iφ} \sin θ\, h_b` and
    :math:`h_b' = \sin θ\, h_a + e^{iφ} \cos θ\, h_b`. Real layers have no φ and no ω. All angles from U(−π, π).

    Args:
        n: number of units.
        complex: complex units, or real ones.
        style: ``tunable``, L layers on neighbours; or ``fft``, log₂ n layers of butterflies, n a power of two.
        capacity: L of the tunable style.
        form: ``dense``, ``product`` or ``auto``.

    Attributes:
        angle: θ of all layers one after the other.
        phase, turn: φ and ω of complex layers.
    """

    def __init__(
        self,
        n: int,
        complex: bool = True,
        style: str = "tunable",
        capacity: int = 2,
        form: str = "auto",
        **where: Any,
    ) -> None:
        super().__init__(n, form)
        self.complex, self.style = complex, check_choice("style", style, rotations.STYLES)
        self.capacity = check_integer("capacity, the number of layers of rotations,", capacity, 1)
        if style == "fft" and n & (n - 1):
            raise ValueError(f'style="fft" needs a hidden_size that is a power of two, got {n}')
        self.layers = rotations.layers(n, style, capacity)
        angles = sum(layer.pairs for layer in self.layers)
        for name, size in {"angle": angles, "phase": angles, "turn": n}.items() if complex else [("angle", angles)]:
            self.register_parameter(name, nn.Parameter(torch.empty(size, **where)))
        self.reset()

    def reset(self) -> None:
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -math.pi, math.pi)

    def complex_form(self) -> Tensor:
        """W ``(n, n)``, complex or real."""
        angle, phase, turn = [*map(precise, self.factors()[1]), None, None][:3]
        assert angle is not None
        made = rotations.Rotations.of(self.layers, angle, phase, turn)
        I = torch.eye(self.n, dtype=angle.dtype, device=angle.device)
        return rotations.apply(I if made.last is None else I.to(made.last.dtype), made).mT

    def factors(self) -> tuple[str, list[Tensor]]:
        name = f"rotations/{'complex' if self.complex else 'real'}/{self.style}/{self.capacity}"
        return name, [getattr(self, factor) for factor in ("angle", "phase", "turn")[: 3 if self.complex else 1]]

    def pays(self, on_kernel: bool) -> bool:
        return self.size >= (PRODUCT_FROM if on_kernel else PRODUCT_FROM_WITHOUT_KERNEL) * len(self.layers)

    def extra_repr(self) -> str:
        layers = f"capacity={self.capacity}" if self.style == "tunable" else f"style={self.style}"
        return f"complex={self.complex}, {layers}"
