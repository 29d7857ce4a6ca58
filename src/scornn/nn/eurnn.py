"""EURNN: W is a product of layers of 2 × 2 rotations on disjoint pairs of units."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from scornn.nn.base import check_choice
from scornn.nn.unitary import UnitaryRecurrentLayer, unit

STYLES = ("tunable", "fft")


def rotation_layers(n: int, style: str, capacity: int) -> list[tuple[int, int, int]]:
    """For each layer (offset, stride, pairs): the pairs of units that it rotates.

    Tunable layers pair neighbours, from unit 0 and from unit 1 in turn: offset 0 or 1, stride 1. Layer i of the FFT
    style pairs units at a distance of n / 2^{i+1} inside blocks of twice that.
    """
    if style == "tunable":
        return [(i % 2, 1, (n - i % 2) // 2) for i in range(capacity)]
    return [(0, n >> (i + 1), n // 2) for i in range(n.bit_length() - 1)]


def rotate(h: Tensor, layers: list[tuple[int, int, int]], cos: Tensor, sin: Tensor, turn: Tensor | None) -> Tensor:
    r"""Apply the layers in turn to the last dimension of h.

    A pair (a, b) with angle θ and, in the complex case, phase φ becomes

    .. math::
        h_a' = \cos θ\, h_a - e^{iφ} \sin θ\, h_b, \qquad h_b' = \sin θ\, h_a + e^{iφ} \cos θ\, h_b

    Args:
        h: ``(..., n)``.
        layers: of :func:`rotation_layers`.
        cos, sin: of the angles of all layers one after the other.
        turn: e^{iφ}, likewise; None for real rotations.
    """
    n, start = h.shape[-1], 0
    for offset, stride, pairs in layers:
        here = slice(start, start + pairs)
        start += pairs
        inside = h[..., offset : offset + 2 * pairs].unflatten(-1, (-1, 2, stride))
        a, b = inside[..., 0, :], inside[..., 1, :]
        if turn is not None:
            b = b * turn[here].view(-1, stride)
        c, s = cos[here].view(-1, stride), sin[here].view(-1, stride)
        turned = torch.stack([c * a - s * b, s * a + c * b], -2).flatten(-3)
        h = turned if 2 * pairs == n else torch.cat([h[..., :offset], turned, h[..., offset + 2 * pairs :]], -1)
    return h


def check_rotations(n: int, style: str, capacity: int) -> None:
    check_choice("style", style, STYLES)
    if isinstance(capacity, bool) or not isinstance(capacity, int) or capacity < 1:
        raise ValueError(
            f"capacity, the number of layers of rotations, must be an integer of at least 1; got {capacity!r}"
        )
    if style == "fft" and n & (n - 1):
        raise ValueError(f'style="fft" needs a hidden_size that is a power of two, got {n}')


class EURNN(UnitaryRecurrentLayer):
    r"""Efficient unitary network of tunable capacity (Jing, Shen, Dubček, Peurifoy, Skirlo, LeCun, Tegmark and
    Soljačić, 2017).

    .. math::
        W = \mathrm{diag}(e^{iω})\, R_L \cdots R_2 R_1, \qquad h_t = \mathrm{modReLU}(U x_t + W h_{t-1})

    Each R is a layer of 2 × 2 rotations on disjoint pairs (:func:`rotate`). Real layers have no φ and no ω. W is made
    by applying the rotations to the identity once per forward; the sequence then runs with one dense matrix.

    θ, φ, ω from U(−π, π); U from U(±0.01); h_0, where it is trained, from U(±0.01). The authors' modulus is
    |z| + 0.01, which for real z is a bias 0.01 higher: b starts at 0.01 here instead of 0. Deviation: in the complex
    case the same 0.01 stands in their denominator, where here it is 1e-5. A head reads the real part alone, as theirs.

    Args:
        complex: complex units, whose state is adjacent pairs (Re, Im); or real ones.
        style: ``tunable``, L layers on neighbours; or ``fft``, log₂ n layers of butterflies, n a power of two.
        capacity: L of the tunable style.
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
        learn_h0: bool = False,
        backend: str = "auto",
    ) -> None:
        super().__init__(input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional)
        check_choice("nonlinearity", nonlinearity, ("modrelu", "identity"))
        check_rotations(hidden_size, style, capacity)
        self.nonlinearity, self.complex, self.units_per_state = nonlinearity, complex, 2 if complex else 1
        self.activation = "complex_modrelu" if complex and nonlinearity == "modrelu" else nonlinearity
        self.style, self.capacity, self.learn_h0, self.backend = style, capacity, learn_h0, backend
        self.layers = rotation_layers(hidden_size, style, capacity)
        self.build(device, dtype)

    def recurrent_shapes(self) -> dict[str, tuple[int, ...]]:
        angles = (sum(pairs for _, _, pairs in self.layers),)
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
        rotation = unit(self.tensor(f"angle_hh{suffix}"))
        I = torch.eye(self.hidden_size, dtype=rotation.real.dtype, device=rotation.device)
        if not self.complex:
            return rotate(I, self.layers, rotation.real, rotation.imag, None).mT
        turn = unit(self.tensor(f"phase_hh{suffix}"))
        rows = rotate(I.to(turn.dtype), self.layers, rotation.real, rotation.imag, turn)
        return (rows * unit(self.tensor(f"turn_hh{suffix}"))).mT

    def recurrent_matrix(self, suffix: str) -> Tensor:
        if self.complex:
            return super().recurrent_matrix(suffix)
        return self.unitary_matrix(suffix).to(self.tensor(f"weight_ih{suffix}").dtype)

    def readout(self, h: Tensor) -> Tensor:
        """The real part of complex states."""
        return h[..., ::2] if self.complex else h

    @property
    def readout_size(self) -> int:
        return self.hidden_size * self.num_directions

    def extra_repr(self) -> str:
        layers = f"capacity={self.capacity}" if self.style == "tunable" else f"style={self.style}"
        return f"{super().extra_repr()}, complex={self.complex}, {layers}"
