"""The restricted-capacity uRNN: W is a product of Fourier transforms, reflections, phases and a permutation."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from scornn.nn.base import check_choice
from scornn.nn.unitary import NONLINEARITIES, UnitaryRecurrentLayer, as_complex, unit

FORMS = ("auto", "dense", "fft")


def reflect(h: Tensor, v: Tensor) -> Tensor:
    """h − 2 (h·v) v̄ / |v|² over the last dimension, h·v without a conjugate: unitary."""
    return h - (2 / v.abs().square().sum()) * (h @ v).unsqueeze(-1) * v.conj()


def unitary_product(h: Tensor, phases: Tensor, reflections: Tensor, permutation: Tensor) -> Tensor:
    r"""Apply :math:`W = D_3 R_2 F^{-1} D_2 Π R_1 F D_1` to the last dimension of h.

    Args:
        h: ``(..., n)``, complex.
        phases: e^{iθ} of D_1, D_2, D_3: ``(3, n)``.
        reflections: vectors of R_1, R_2: ``(2, n)``, complex.
        permutation: ``(n,)``.
    """
    h = torch.fft.fft(h * phases[0], norm="ortho")
    h = reflect(h, reflections[0])[..., permutation] * phases[1]
    h = reflect(torch.fft.ifft(h, norm="ortho"), reflections[1])
    return h * phases[2]


def adjoint_product(g: Tensor, phases: Tensor, reflections: Tensor, permutation: Tensor) -> Tensor:
    """Apply W* = W⁻¹ to the last dimension of g. A reflection is its own inverse."""
    back = torch.argsort(permutation)
    g = torch.fft.fft(reflect(g * phases[2].conj(), reflections[1]), norm="ortho")
    g = reflect((g * phases[1].conj())[..., back], reflections[0])
    h: Tensor = torch.fft.ifft(g, norm="ortho") * phases[0].conj()
    return h


class URNN(UnitaryRecurrentLayer):
    r"""Unitary evolution network of restricted capacity (Arjovsky, Shah and Bengio, 2016).

    .. math::
        W = D_3 R_2 F^{-1} D_2 Π R_1 F D_1, \qquad h_t = \mathrm{modReLU}(U x_t + W h_{t-1})

    D_j = diag(e^{iθ}), R_j complex reflections, F the unitary Fourier transform, Π a fixed random permutation: 7n
    numbers make W. The state is adjacent pairs (Re, Im), and a head reads both.

    θ from U(−π, π), the reflections Glorot-uniform, U Glorot-uniform, b from U(±0.01), h_0 from U(±√(3/2n)) and
    trained.

    Args:
        form: ``dense`` makes W once per forward by applying the product to the identity, and runs one dense matrix;
            ``fft`` applies the product in every step, which is cheaper for large n; ``auto`` is ``fft`` from n = 1024
            on. Equal to rounding.
        learn_h0: train the state before the first step.

    Attributes:
        phase_hh_l{k}: θ of D_1, D_2, D_3 ``(3, n)``.
        reflection_hh_l{k}: vectors of R_1, R_2 as (Re, Im) ``(2, n, 2)``.
        permutation_hh_l{k}: Π, a buffer.

    Example:
        >>> output, h_n = URNN(3, 5)(torch.randn(7, 2, 3))
        >>> output.shape, h_n.shape
        (torch.Size([7, 2, 10]), torch.Size([1, 2, 10]))
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
        form: str = "auto",
        learn_h0: bool = True,
        backend: str = "auto",
    ) -> None:
        super().__init__(input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional)
        self.activation = NONLINEARITIES[check_choice("nonlinearity", nonlinearity, tuple(NONLINEARITIES))]
        self.form = check_choice("form", form, FORMS)
        self.nonlinearity, self.learn_h0, self.backend = nonlinearity, learn_h0, backend
        self.build(device, dtype)

    def recurrent_shapes(self) -> dict[str, tuple[int, ...]]:
        return {"phase_hh": (3, self.hidden_size), "reflection_hh": (2, self.hidden_size, 2)}

    def make_parameters(
        self, suffix: str, input_size: int, device: torch.device | str | None, dtype: torch.dtype | None
    ) -> None:
        super().make_parameters(suffix, input_size, device, dtype)
        permutation = torch.empty(self.hidden_size, device=device, dtype=torch.long)
        self.register_buffer(f"permutation_hh{suffix}", permutation)

    @torch.no_grad()
    def reset(self, suffix: str) -> None:
        n = self.hidden_size
        self.tensor(f"permutation_hh{suffix}").copy_(torch.randperm(n))
        nn.init.uniform_(self.tensor(f"phase_hh{suffix}"), -math.pi, math.pi)
        limit = math.sqrt(6 / (2 + 2 * n))  # Glorot for a 2 × 2n matrix
        nn.init.uniform_(self.tensor(f"reflection_hh{suffix}"), -limit, limit)
        nn.init.xavier_uniform_(self.tensor(f"weight_ih{suffix}"))
        if self.bias:
            nn.init.uniform_(self.tensor(f"bias{suffix}"), -0.01, 0.01)
        if self.learn_h0:
            limit = math.sqrt(3 / (2 * n))
            nn.init.uniform_(self.tensor(f"h0{suffix}"), -limit, limit)

    def factors(self, suffix: str) -> tuple[Tensor, Tensor, Tensor]:
        """Phases, reflections and permutation, as :func:`unitary_product` takes them."""
        reflections = as_complex(self.tensor(f"reflection_hh{suffix}"))
        return unit(self.tensor(f"phase_hh{suffix}")), reflections, self.tensor(f"permutation_hh{suffix}")

    def unitary_matrix(self, suffix: str) -> Tensor:
        phases, reflections, permutation = self.factors(suffix)
        I = torch.eye(self.hidden_size, dtype=phases.dtype, device=phases.device)
        return unitary_product(I, phases, reflections, permutation).mT

    def extra_repr(self) -> str:
        return super().extra_repr() + ("" if self.form == "auto" else f", form={self.form}")
