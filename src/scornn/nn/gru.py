"""GRU as a yardstick: torch's own, started and counted as the LSTM beside it, on the kernel where it runs."""

from __future__ import annotations

import torch
from torch import Tensor

from scornn.nn.catalogue import model
from scornn.nn.checks import check_choice
from scornn.nn.gates import GatedLayer
from scornn.ops import gated


@model(
    "gru",
    label="GRU",
    colour=7,
    marker="X",
    summary="gated recurrent unit",
    equation="h' = z ⊙ h + (1 − z) ⊙ n",
    source="Cho et al., 2014",
)
class GRU(GatedLayer):
    r"""torch.nn.GRU with Glorot-uniform kernels and a bias that makes it remember.

    .. math::
        h_t = z \odot h_{t-1} + (1 - z) \odot n

    ``forget_bias`` is added in the update gate z: above 0 the state is kept at the start, below 0 overwritten.
    Parameters, their names and shapes are those of torch.nn.GRU. Of its two bias vectors the second, ``bias_hh``, stays
    zero and is not trained, so that the number of trained parameters of a layer is :math:`3(mn + n^2 + n)`.

    ``backend`` is ``auto``, scornn's kernel where it runs and torch's own loop elsewhere; ``native``, the kernel or an
    error; or ``naive``, torch's own loop, which has second derivatives.

    Example:
        >>> output, h_n = GRU(3, 5, forget_bias=2)(torch.randn(7, 2, 3))
        >>> output.shape
        torch.Size([7, 2, 5])
    """

    gates = 3

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        forget_bias: float = 1.0,
        backend: str = "auto",
    ) -> None:
        super().__init__(input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional)
        self.forget_bias, self.backend = forget_bias, check_choice("backend", backend, self.BACKENDS)
        self.build(device, dtype)

    def run(
        self, suffix: str, x: Tensor, h0: Tensor, batch_sizes: Tensor | None, reverse: bool
    ) -> tuple[Tensor, Tensor]:
        if not self.runs_on_kernel(x) or x.numel() == 0:  # the kernel takes no empty batch
            output, (h_n,) = self.loop(torch._VF.gru, suffix, x, h0, batch_sizes, reverse)
            return output, h_n
        W, U, b = self.tensor(f"weight_hh{suffix}"), self.tensor(f"weight_ih{suffix}"), None
        if self.bias:
            first, second = self.tensor(f"bias_ih{suffix}"), self.tensor(f"bias_hh{suffix}")
            gates = 2 * self.hidden_size
            b = torch.cat([first[:gates] + second[:gates], first[gates:], second[gates:]])
        return gated.kernel(x, h0, W, U, b, "gru", batch_sizes, reverse)
