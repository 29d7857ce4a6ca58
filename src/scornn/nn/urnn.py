"""The uRNN, of restricted capacity: W is a product of Fourier transforms, reflections, phases and a permutation; and of
full capacity: W is any unitary matrix, moved along the manifold by the optimizer.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from scornn.nn.catalogue import model
from scornn.nn.checks import check_choice, precise
from scornn.nn.unitary import UnitaryRecurrentLayer, as_complex
from scornn.ops import fourier

FORMS = ("auto", "dense", "fft")
FFT_FROM = 64  # hidden size from which the kernel applies the product in every step
FFT_FROM_WITHOUT_KERNEL = 4096


def _reset_rest(layer: UnitaryRecurrentLayer, suffix: str) -> None:
    """What starts alike in both: U, b and h_0."""
    nn.init.xavier_uniform_(layer.tensor(f"weight_ih{suffix}"))
    if layer.bias:
        nn.init.uniform_(layer.tensor(f"bias{suffix}"), -0.01, 0.01)
    if layer.learn_h0:
        limit = math.sqrt(3 / (2 * layer.hidden_size))
        nn.init.uniform_(layer.tensor(f"h0{suffix}"), -limit, limit)


@model(
    "urnn",
    label="restricted uRNN",
    colour=2,
    marker="^",
    summary="unitary, restricted capacity",
    equation="W = D₃R₂F⁻¹D₂ΠR₁FD₁",
    source="Arjovsky, Shah and Bengio, ICML 2016",
    bench=(512, 2170),
)
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
            ``fft`` applies the product in every step, which is cheaper for large n; ``auto`` is ``fft`` from n = 64 on
            where the kernel runs, from 4096 on elsewhere. Equal to rounding.
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
        self.form = check_choice("form", form, FORMS)
        size = (input_size, hidden_size, num_layers, nonlinearity, bias, batch_first, dropout, bidirectional)
        super().__init__(*size, device, dtype, learn_h0=learn_h0, backend=backend)

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
        self.tensor(f"permutation_hh{suffix}").copy_(torch.randperm(n, device="cpu"))
        nn.init.uniform_(self.tensor(f"phase_hh{suffix}"), -math.pi, math.pi)
        limit = math.sqrt(6 / (2 + 2 * n))  # Glorot for a 2 × 2n matrix
        nn.init.uniform_(self.tensor(f"reflection_hh{suffix}"), -limit, limit)
        _reset_rest(self, suffix)

    def unitary_matrix(self, suffix: str) -> Tensor:
        theta, v = self.tensor(f"phase_hh{suffix}"), self.tensor(f"reflection_hh{suffix}")
        factors = fourier.Factors.of(precise(theta), precise(v), self.tensor(f"permutation_hh{suffix}"))
        I = torch.eye(self.hidden_size, dtype=factors.phases.dtype, device=theta.device)
        return fourier.apply(I, factors).mT

    def runs_as_product(self) -> bool:
        if self.form != "auto":
            return self.form == "fft"
        return self.hidden_size >= (FFT_FROM if self.product_on_kernel() else FFT_FROM_WITHOUT_KERNEL)

    def product(self, suffix: str) -> tuple[str, list[Tensor]]:
        names = ("phase_hh", "reflection_hh", "permutation_hh")
        return "fourier", [self.tensor(f"{name}{suffix}") for name in names]

    def extra_repr(self) -> str:
        return super().extra_repr() + ("" if self.form == "auto" else f", form={self.form}")


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

    W starts as the product of :class:`URNN`; the rest as there. W has n² degrees of freedom, the
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
        _reset_rest(self, suffix)

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
