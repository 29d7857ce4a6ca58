"""Complex matrices in real form, and those that are applied as a product of cheap factors in every step.

A complex recurrence of n units runs as a real one of 2n on the same sequence operator. Input, output and state are
real tensors; unit j of a state h is ``h[..., 2j] + i h[..., 2j + 1]``, which is ``torch.view_as_complex(h.unflatten(-1,
(-1, 2)))`` without a copy.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from scornn.functional import full_precision, orthogonality_error
from scornn.matrices.base import Head, Matrix, read
from scornn.matrices.checks import check_choice, precise
from scornn.ops.layout import complex_pairs
from scornn.ops.product import Product
from scornn.ops.rung import CELLS, Operands, like, run


def real_form(M: Tensor) -> Tensor:
    r"""The real matrix that acts on adjacent pairs (Re, Im) as the complex matrix M does on complex numbers.

    Each entry a + ib becomes the block [[a, −b], [b, a]]; a unitary M becomes an orthogonal matrix.

    Args:
        M: ``(..., n, m)``, complex.

    Returns:
        ``(..., 2n, 2m)``, real.

    Example:
        >>> real_form(torch.tensor([[3 + 4j]]))
        tensor([[ 3., -4.],
                [ 4.,  3.]])
    """
    rows = torch.stack([torch.stack([M.real, -M.imag], -1), torch.stack([M.imag, M.real], -1)], -3)
    return rows.flatten(-4, -3).flatten(-2)


def as_complex(v: Tensor) -> Tensor:
    """Adjacent pairs ``(..., n, 2)`` as complex numbers ``(..., n)``, in float32 or better."""
    return complex_pairs(precise(v))


def unit(theta: Tensor) -> Tensor:
    """e^{iθ}."""
    theta = precise(theta)
    return torch.complex(theta.cos(), theta.sin())


class ComplexMatrix(Matrix):
    """A matrix that gives :meth:`complex_form`; W is its real form."""

    complex = True

    def complex_form(self) -> Tensor:
        """W ``(n, n)``, complex."""
        raise NotImplementedError

    def forward(self) -> Tensor:
        W = self.complex_form()
        return (real_form(W) if W.is_complex() else W).to(self.like.dtype)

    @torch.no_grad()
    def error(self) -> float | None:
        """‖W*W − I‖_F of the complex W as it is used."""
        with full_precision(self.like):
            W, dtype = self.complex_form(), self.like.dtype
            parts = (W.real, W.imag) if W.is_complex() else (W,)
            used = [precise(part.to(dtype)) for part in parts]  # each part rounded as W is
            return float(orthogonality_error(torch.complex(*used) if W.is_complex() else used[0]))


class ProductMatrix(ComplexMatrix):
    """A product of factors, run as one dense matrix or applied factor by factor in every step. Equal to rounding.

    Args:
        form: ``dense``, what :attr:`applied_form` calls the other, or ``auto``, the cheaper one.
    """

    orthogonal = True
    applied_form: str = "product"

    def __init__(self, n: int, form: str) -> None:
        super().__init__(n)
        self.form = check_choice("form", form, ("auto", "dense", self.applied_form))

    def factors(self) -> tuple[str, list[Tensor]]:
        """What :func:`scornn.ops.product.find` calls the product, and its factors."""
        raise NotImplementedError

    def pays(self, on_kernel: bool) -> bool:
        """Whether applying the factors costs less than the dense matrix."""
        raise NotImplementedError

    def runs_as_product(self, backend: str = "auto") -> bool:
        if self.form != "auto":
            return self.form == self.applied_form
        kernel = CELLS["product"].rungs[0]
        return self.pays(backend in ("auto", kernel.name) and kernel.why_not(like(self.like)) is None)

    def recurrence(
        self, x: Tensor, h0: Tensor, U: Tensor, b: Tensor | None, head: Head | None = None, **settings: Any
    ) -> tuple[Tensor, Tensor]:
        if not self.runs_as_product(settings["backend"]) or x.numel() == 0:  # torch.fft takes no empty batch
            return super().recurrence(x, h0, U, b, head, **settings)
        backend = settings.pop("backend")
        with full_precision(x):
            name, factors = self.factors()
            W = Product(name, [precise(factor) for factor in factors])
            U, b = precise(U), None if b is None else precise(b)
            order = (settings[key] for key in ("activation", "batch_sizes", "reverse"))
            output, h_n = run(Operands(precise(x), precise(h0), W, U, b, *order), backend)
        return read((output.to(x.dtype), h_n.to(x.dtype)), head)
