"""EURNN: W is a product of layers of 2 × 2 rotations on disjoint pairs of units."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from scornn.nn.base import DenseRecurrentLayer
from scornn.nn.catalogue import model
from scornn.nn.checks import check_choice, check_integer, precise
from scornn.nn.unitary import UnitaryRecurrentLayer
from scornn.ops import rotations

FORMS = ("auto", "dense", "product")
# Size of the state, for each layer of rotations, from which the product is applied in every step.
PRODUCT_FROM = 20  # on the kernel
PRODUCT_FROM_WITHOUT_KERNEL = 1000


def check_rotations(n: int, style: str, capacity: int) -> None:
    check_choice("style", style, rotations.STYLES)
    check_integer("capacity, the number of layers of rotations,", capacity, 1)
    if style == "fft" and n & (n - 1):
        raise ValueError(f'style="fft" needs a hidden_size that is a power of two, got {n}')


@model(
    "eurnn",
    label="EURNN",
    colour=6,
    marker="v",
    summary="unitary by layers of rotations, tunable capacity",
    equation="W = diag(e^{iω}) R_L ⋯ R₁",
    source="Jing et al., ICML 2017",
    bench=(512,),
)
class EURNN(UnitaryRecurrentLayer):
    r"""Efficient unitary network of tunable capacity (Jing, Shen, Dubček, Peurifoy, Skirlo, LeCun, Tegmark and
    Soljačić, 2017).

    .. math::
        W = \mathrm{diag}(e^{iω})\, R_L \cdots R_2 R_1, \qquad h_t = \mathrm{modReLU}(U x_t + W h_{t-1})

    Each R is a layer of 2 × 2 rotations on disjoint pairs, :math:`h_a' = \cos θ\, h_a - e^{iφ} \sin θ\, h_b` and
    :math:`h_b' = \sin θ\, h_a + e^{iφ} \cos θ\, h_b`. Real layers have no φ and no ω.

    θ, φ, ω from U(−π, π); U from U(±0.01); h_0, where it is trained, from U(±0.01). The authors' modulus is
    \|z\| + 0.01, which for real z is a bias 0.01 higher: b starts at 0.01 here instead of 0. Deviation: in the complex
    case the same 0.01 stands in their denominator, where here it is 1e-5. A head reads the real part alone, as theirs.

    Args:
        complex: complex units, whose state is adjacent pairs (Re, Im); or real ones.
        style: ``tunable``, L layers on neighbours; or ``fft``, log₂ n layers of butterflies, n a power of two.
        capacity: L of the tunable style.
        form: ``dense`` makes W once per forward by applying the rotations to the identity, and runs one dense matrix;
            ``product`` applies the rotations in every step, which is cheaper for few layers and a large state;
            ``auto`` chooses. Equal to rounding.
        learn_h0: train the state before the first step.

    Attributes:
        angle_hh_l{k}: θ of all layers one after the other.
        phase_hh_l{k}, turn_hh_l{k}: φ and ω of complex layers.

    Example:
        >>> layer = EURNN(3, 8, capacity=4)
        >>> output, h_n = layer(torch.randn(7, 2, 3))
        >>> output.shape, layer.angle_hh_l0.shape
        (torch.Size([7, 2, 16]), torch.Size([14]))
    """

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
        complex: bool = True,
        style: str = "tunable",
        capacity: int = 2,
        form: str = "auto",
        learn_h0: bool = False,
        backend: str = "auto",
    ) -> None:
        size = (input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional)
        DenseRecurrentLayer.__init__(self, *size)  # real ones have other nonlinearities than the unitary models
        check_choice("nonlinearity", nonlinearity, ("modrelu",) if complex else ("modrelu", "identity"))
        check_rotations(hidden_size, style, capacity)
        self.nonlinearity, self.complex, self.units_per_state = nonlinearity, complex, 2 if complex else 1
        self.activation = "complex_modrelu" if complex else nonlinearity
        self.readout_stride = self.units_per_state  # the real parts
        self.style, self.capacity, self.learn_h0, self.backend = style, capacity, learn_h0, backend
        self.form = check_choice("form", form, FORMS)
        self.layers = rotations.layers(hidden_size, style, capacity)
        self.build(device, dtype)

    def recurrent_shapes(self) -> dict[str, tuple[int, ...]]:
        angles = (sum(layer.pairs for layer in self.layers),)
        shapes: dict[str, tuple[int, ...]] = {"angle_hh": angles}
        return shapes | {"phase_hh": angles, "turn_hh": (self.hidden_size,)} if self.complex else shapes

    def reset(self, suffix: str) -> None:
        nn.init.uniform_(self.tensor(f"weight_ih{suffix}"), -0.01, 0.01)
        for name in self.recurrent_shapes():
            nn.init.uniform_(self.tensor(f"{name}{suffix}"), -math.pi, math.pi)
        if self.bias:
            nn.init.constant_(self.tensor(f"bias{suffix}"), 0.01)
        if self.learn_h0:
            nn.init.uniform_(self.tensor(f"h0{suffix}"), -0.01, 0.01)

    def unitary_matrix(self, suffix: str) -> Tensor:
        """W ``(n, n)``, complex or real."""
        theta, *rest = [precise(self.tensor(f"{name}{suffix}")) for name in self.recurrent_shapes()]
        phase, omega = rest if self.complex else (None, None)
        made = rotations.Rotations.of(self.layers, theta, phase, omega)
        I = torch.eye(self.hidden_size, dtype=theta.dtype, device=theta.device)
        return rotations.apply(I if made.last is None else I.to(made.last.dtype), made).mT

    def runs_as_product(self) -> bool:
        if self.form != "auto":
            return self.form == "product"
        least = PRODUCT_FROM if self.product_on_kernel() else PRODUCT_FROM_WITHOUT_KERNEL
        return self.state_size >= least * len(self.layers)

    def product(self, suffix: str) -> tuple[str, list[Tensor]]:
        name = f"rotations/{'complex' if self.complex else 'real'}/{self.style}/{self.capacity}"
        return name, [self.tensor(f"{name}{suffix}") for name in self.recurrent_shapes()]

    def recurrent_matrix(self, suffix: str) -> Tensor:
        if self.complex:
            return super().recurrent_matrix(suffix)
        return self.unitary_matrix(suffix).to(self.tensor(f"weight_ih{suffix}").dtype)

    def extra_repr(self) -> str:
        layers = f"capacity={self.capacity}" if self.style == "tunable" else f"style={self.style}"
        return f"{super().extra_repr()}, complex={self.complex}, {layers}"
