"""LSTM as the paper compares with: torch's own, with TensorFlow's initialisation, on the kernel where it runs."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from scornn.nn.catalogue import model
from scornn.nn.checks import check_choice
from scornn.nn.gates import GatedLayer
from scornn.ops import lstm


@model(
    "lstm",
    label="LSTM",
    colour=1,
    marker="s",
    summary="long short-term memory",
    equation="c' = f ⊙ c + i ⊙ g, h' = o ⊙ tanh c'",
    source="Hochreiter and Schmidhuber, 1997",
)
class LSTM(GatedLayer):
    r"""torch.nn.LSTM started as TensorFlow 1's BasicLSTMCell, and faster on the CPU.

    .. math::
        i, f, o = σ(U x_t + W h_{t-1} + b), \quad g = \tanh(U x_t + W h_{t-1} + b), \qquad
        c_t = f \odot c_{t-1} + i \odot g, \quad h_t = o \odot \tanh c_t

    Glorot-uniform kernel over input and state together, zero biases, and ``forget_bias`` in the forget gate
    (the paper tunes it over −4..4; 1 unless said otherwise). Parameters, their names and shapes, and the state
    ``(h, c)`` are those of torch.nn.LSTM. Of its two bias vectors the second, ``bias_hh``, stays zero and is not
    trained, so that the number of trained parameters is the paper's :math:`4(mn + n^2 + n)`.

    ``backend`` is ``auto``, scornn's kernel where it runs and torch's own loop elsewhere; ``native``, the kernel or an
    error; or ``naive``, torch's own loop, which has second derivatives.

    Example:
        >>> output, (h_n, c_n) = LSTM(3, 5, forget_bias=-4)(torch.randn(7, 2, 3))
        >>> output.shape
        torch.Size([7, 2, 5])
    """

    BACKENDS: ClassVar[tuple[str, ...]] = ("auto", "native", "naive")
    gates = 4

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        forget_bias: float = 1.0,
        backend: str = "auto",
    ) -> None:
        super().__init__(input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional)
        if isinstance(proj_size, bool) or not isinstance(proj_size, int) or not 0 <= proj_size < hidden_size:
            raise ValueError(f"proj_size must be an integer in 0..{hidden_size - 1} (hidden_size), got {proj_size!r}")
        self.forget_bias, self.backend = forget_bias, check_choice("backend", backend, self.BACKENDS)
        self.proj_size = proj_size
        self.build(device, dtype)

    @property
    def state_size(self) -> int:
        return self.proj_size or self.hidden_size

    def state_sizes(self) -> tuple[int, ...]:
        """Of h and c."""
        return self.state_size, self.hidden_size

    def run(self, suffix: str, x: Tensor, h0: Any, batch_sizes: Tensor | None, reverse: bool) -> tuple[Tensor, Any]:
        if not self.runs_on_kernel(x) or x.numel() == 0:  # the kernel takes no empty batch
            return self.loop(torch._VF.lstm, suffix, x, h0, batch_sizes, reverse)
        W, U = self.tensor(f"weight_hh{suffix}"), self.tensor(f"weight_ih{suffix}")
        b = self.tensor(f"bias_ih{suffix}") + self.tensor(f"bias_hh{suffix}") if self.bias else None
        h, c = h0
        output, h_n, c_n = lstm.kernel(x, h, c, W, U, b, batch_sizes, reverse)
        return output, (h_n, c_n)
