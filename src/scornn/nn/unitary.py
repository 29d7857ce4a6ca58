"""What the complex models share: the real form of a complex matrix, and states as adjacent pairs (Re, Im).

A complex recurrence of n units runs as a real one of 2n on the same sequence operator. Input, output and state are
real tensors; unit j of a state h is ``h[..., 2j] + i h[..., 2j + 1]``, which is ``torch.view_as_complex(h.unflatten(-1,
(-1, 2)))`` without a copy.
"""

from __future__ import annotations

import torch
from torch import Tensor

from scornn.functional import orthogonality_error
from scornn.nn.base import DenseRecurrentLayer, precise

NONLINEARITIES = {"modrelu": "complex_modrelu", "identity": "identity"}


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
    return torch.view_as_complex(precise(v).contiguous())


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

    def unitary_matrix(self, suffix: str) -> Tensor:
        """W ``(n, n)``, complex."""
        raise NotImplementedError

    def recurrent_matrix(self, suffix: str) -> Tensor:
        W = real_form(self.unitary_matrix(suffix))
        return W.to(self.tensor(f"weight_ih{suffix}").dtype)

    @torch.no_grad()
    def orthogonality_error(self) -> float | None:
        """Largest ‖W*W − I‖_F of the complex W over layers and directions."""
        return max(float(orthogonality_error(self.unitary_matrix(suffix))) for suffix in self.suffixes())
