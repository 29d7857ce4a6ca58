"""What the complex models share: the real form of a complex matrix, and states as adjacent pairs (Re, Im).

A complex recurrence of n units runs as a real one of 2n on the same sequence operator. Input, output and state are
real tensors; unit j of a state h is ``h[..., 2j] + i h[..., 2j + 1]``, which is ``torch.view_as_complex(h.unflatten(-1,
(-1, 2)))`` without a copy.
"""

from __future__ import annotations

import torch
from torch import Tensor

from scornn.functional import full_precision, orthogonality_error
from scornn.nn.base import DenseRecurrentLayer
from scornn.nn.checks import check_choice, precise
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


class UnitaryRecurrentLayer(DenseRecurrentLayer):
    """A layer whose W is a complex n × n matrix, run in its real form of 2n.

    A model gives :meth:`unitary_matrix`; ``weight_hh_l{k}`` is its real form. With a complex modReLU,
    h = z relu(|z| + b) / (|z| + 1e-5).
    """

    units_per_state = 2

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
        learn_h0: bool = True,
        backend: str = "auto",
    ) -> None:
        super().__init__(input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional)
        self.nonlinearity = check_choice("nonlinearity", nonlinearity, ("modrelu",))
        self.activation, self.learn_h0, self.backend = "complex_modrelu", learn_h0, backend
        self.build(device, dtype)

    def unitary_matrix(self, suffix: str) -> Tensor:
        """W ``(n, n)``, complex."""
        raise NotImplementedError

    def recurrent_matrix(self, suffix: str) -> Tensor:
        W = real_form(self.unitary_matrix(suffix))
        return W.to(self.tensor(f"weight_ih{suffix}").dtype)

    def product(self, suffix: str) -> tuple[str, list[Tensor]]:
        """The name of W among :func:`scornn.ops.product.find`, and its factors, where it can run as a product."""
        raise NotImplementedError

    def runs_as_product(self) -> bool:
        """Whether W is applied as a product in every step, rather than as a matrix."""
        return False

    def product_on_kernel(self) -> bool:
        """Whether a product runs on the kernel, which makes it worth while at sizes where PyTorch's loop is slower."""
        kernel = CELLS["product"].rungs[0]
        return self.backend in ("auto", kernel.name) and kernel.why_not(like(self.like, self.activation)) is None

    kind = DenseRecurrentLayer.kind

    def run(
        self, suffix: str, x: Tensor, h0: Tensor, batch_sizes: Tensor | None, reverse: bool
    ) -> tuple[Tensor, Tensor]:
        if not self.runs_as_product() or x.numel() == 0:  # torch.fft takes no empty batch
            return super().run(suffix, x, h0, batch_sizes, reverse)
        with full_precision(x):
            name, factors = self.product(suffix)
            b = self.bias_vector(suffix)
            W = Product(name, [precise(factor) for factor in factors])
            U, b = precise(self.input_matrix(suffix)), None if b is None else precise(b)
            operands = Operands(precise(x), precise(h0), W, U, b, self.activation, batch_sizes, reverse)
            output, h_n = run(operands, self.backend)
        return output.to(x.dtype), h_n.to(x.dtype)

    def reads_in_one_pass(self) -> bool:
        return super().reads_in_one_pass() and not self.runs_as_product()

    @torch.no_grad()
    def orthogonality_error(self) -> float | None:
        """Largest ‖W*W − I‖_F of the complex W as it is used, over layers and directions."""
        return max(float(orthogonality_error(self._used(suffix))) for suffix in self.suffixes())

    def _used(self, suffix: str) -> Tensor:
        """The complex W, each part rounded to the layer's precision."""
        W, dtype = self.unitary_matrix(suffix), self.like.dtype
        if not W.is_complex():
            return precise(W.to(dtype))
        return torch.complex(precise(W.real.to(dtype)), precise(W.imag.to(dtype)))
