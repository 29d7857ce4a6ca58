"""The W of the uRNN's: a product with Fourier transforms, of restricted capacity; and itself the parameter, of full."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from scornn.matrices.checks import precise
from scornn.matrices.complex import ComplexMatrix, ProductMatrix, as_complex
from scornn.ops import fourier

FFT_FROM = 64  # hidden size from which the kernel applies the product in every step
FFT_FROM_WITHOUT_KERNEL = 4096


class FourierProduct(ProductMatrix):
    r""":math:`W = D_3 R_2 F^{-1} D_2 Π R_1 F D_1`, from 7n numbers.

    D_j = diag(e^{iθ}), R_j complex reflections, F the unitary Fourier transform, Π a fixed random permutation. θ from
    U(−π, π), the reflections Glorot-uniform.

    Args:
        n: number of complex units.
        form: ``dense``, ``fft`` or ``auto``.

    Attributes:
        phase: θ of D_1, D_2, D_3 ``(3, n)``.
        reflection: vectors of R_1, R_2 as (Re, Im) ``(2, n, 2)``.
        permutation: Π, a buffer.
    """

    applied_form = "fft"
    permutation: Tensor

    def __init__(self, n: int, form: str = "auto", **where: Any) -> None:
        super().__init__(n, form)
        self.phase = nn.Parameter(torch.empty(3, n, **where))
        self.reflection = nn.Parameter(torch.empty(2, n, 2, **where))
        self.register_buffer("permutation", torch.empty(n, dtype=torch.long, device=where.get("device")))
        self.reset()

    @torch.no_grad()
    def reset(self) -> None:
        self.permutation.copy_(torch.randperm(self.n, device="cpu"))
        nn.init.uniform_(self.phase, -math.pi, math.pi)
        limit = math.sqrt(6 / (2 + 2 * self.n))  # Glorot for a 2 × 2n matrix
        nn.init.uniform_(self.reflection, -limit, limit)

    def complex_form(self) -> Tensor:
        factors = fourier.Factors.of(precise(self.phase), precise(self.reflection), self.permutation)
        I = torch.eye(self.n, dtype=factors.phases.dtype, device=self.phase.device)
        return fourier.apply(I, factors).mT

    def factors(self) -> tuple[str, list[Tensor]]:
        return "fourier", [self.phase, self.reflection, self.permutation]

    def pays(self, on_kernel: bool) -> bool:
        return self.n >= (FFT_FROM if on_kernel else FFT_FROM_WITHOUT_KERNEL)

    def extra_repr(self) -> str:
        return "" if self.form == "auto" else f"form={self.form}"


class Unitary(ComplexMatrix):
    """Any unitary W, moved along the manifold by :class:`scornn.optim.StiefelStep`; another step leaves it at once.

    It starts as a :class:`FourierProduct`.

    Attributes:
        unitary: W as (Re, Im) ``(n, n, 2)``.
    """

    orthogonal = True

    def __init__(self, n: int, **where: Any) -> None:
        super().__init__(n)
        self.constraints = n**2  # W has n² degrees of freedom in 2n² stored numbers
        self.unitary = nn.Parameter(torch.empty(n, n, 2, **where))
        self.reset()

    @torch.no_grad()
    def reset(self) -> None:
        n = self.n
        theta = torch.empty(3, n, dtype=torch.float64, device="cpu").uniform_(-math.pi, math.pi)
        v = torch.empty(2, n, 2, dtype=torch.float64, device="cpu").uniform_(-1, 1)  # its length does not matter
        factors = fourier.Factors.of(theta, v, torch.randperm(n, device="cpu"))
        W = fourier.apply(torch.eye(n, dtype=torch.complex128, device="cpu"), factors).mT
        self.unitary.copy_(torch.view_as_real(W.contiguous()))

    def complex_form(self) -> Tensor:
        return as_complex(self.unitary)

    @torch.no_grad()
    def retract_(self) -> None:
        """Replace W by the unitary matrix nearest to it: an average of unitary matrices is not one."""
        left, _, right = torch.linalg.svd(self.complex_form().to(torch.complex128))
        self.unitary.copy_(torch.view_as_real(left @ right))
