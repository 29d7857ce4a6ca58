"""LSTM as the paper compares with: torch's own, with TensorFlow's initialisation, on the kernel where it runs."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from scornn.nn.base import check_choice
from scornn.nn.catalogue import model
from scornn.ops import lstm, native
from scornn.ops.custom import NOT_UNDER_TRANSFORM, under_transform

State = tuple[Tensor, Tensor]
"""h and c."""


@model(
    "lstm",
    label="LSTM",
    colour=1,
    marker="s",
    summary="long short-term memory",
    equation="c' = f ⊙ c + i ⊙ g, h' = o ⊙ tanh c'",
    source="Hochreiter and Schmidhuber, 1997",
)
class LSTM(nn.LSTM):
    r"""torch.nn.LSTM started as TensorFlow 1's BasicLSTMCell, and faster on the CPU.

    Glorot-uniform kernel over input and state together, zero biases, and ``forget_bias`` in the forget gate
    (the paper tunes it over −4..4; 1 unless said otherwise). torch keeps two bias vectors where the paper counts one:
    the second, ``bias_hh``, stays zero and is not trained, so that the number of trained parameters is the paper's
    :math:`4(mn + n^2 + n)`.

    ``backend`` is ``auto``, scornn's kernel where it runs and torch's own loop elsewhere; ``native``, the kernel or an
    error; or ``naive``, torch's own loop, which has second derivatives.

    Example:
        >>> output, (h_n, c_n) = LSTM(3, 5, forget_bias=-4)(torch.randn(7, 2, 3))
        >>> output.shape
        torch.Size([7, 2, 5])
    """

    BACKENDS: ClassVar[tuple[str, ...]] = ("auto", "native", "naive")
    backend: str = "auto"

    def __init__(self, *args: Any, forget_bias: float = 1.0, backend: str = "auto", **kwargs: Any) -> None:
        self.forget_bias, self.backend = forget_bias, check_choice("backend", backend, self.BACKENDS)
        super().__init__(*args, **kwargs)

    def runs_on_kernel(self, x: Tensor) -> bool:
        """Whether the kernel, and not torch's loop, runs an input such as x."""
        if self.backend == "naive":
            return False
        why_not = native.unavailable()
        if why_not is None and x.device.type not in ("cpu", "meta"):
            why_not = f"it runs on the CPU, got an input on {x.device}"
        if why_not is None and x.dtype not in (torch.float32, torch.float64):
            why_not = f"it takes float32 or float64, got {x.dtype}"
        if why_not is None and self.proj_size:
            why_not = "it has no projections (proj_size)"
        if why_not is None and x.device.type == "cpu" and torch.is_autocast_enabled("cpu"):
            why_not = "it does not take part in autocast"
        if why_not is None and under_transform():
            why_not = NOT_UNDER_TRANSFORM
        if why_not is not None and self.backend == "native":
            raise RuntimeError(f'backend="native" cannot run: {why_not}')
        return why_not is None

    def forward(self, input: Tensor | PackedSequence, hx: State | None = None) -> Any:
        """As torch.nn.LSTM."""
        packed = isinstance(input, PackedSequence)
        data, batch_sizes, order, back = input if isinstance(input, PackedSequence) else (input, None, None, None)
        if not self.runs_on_kernel(data):
            return super().forward(input, hx)
        batched = data.dim() == 3
        x = data if packed or batched else data.unsqueeze(1)
        if batched and self.batch_first:
            x = x.transpose(0, 1)
        weight, batch = self.weight_ih_l0, x.shape[1] if batch_sizes is None else int(batch_sizes[0])
        states = self._states(x, hx, batch, packed or batched)
        sizes_fit = x.dim() == (2 if packed else 3) and x.shape[-1] == self.input_size and 0 not in x.shape[:-1]
        if states is None or not sizes_fit or (x.dtype, x.device) != (weight.dtype, weight.device):
            return super().forward(input, hx)  # which refuses it, or knows what to do
        if order is not None:
            states = (states[0].index_select(1, order), states[1].index_select(1, order))
        output, (h_n, c_n) = self._run(x, states, batch_sizes)
        if packed:
            if back is not None:
                h_n, c_n = h_n.index_select(1, back), c_n.index_select(1, back)
            return PackedSequence(output, batch_sizes, order, back), (h_n, c_n)
        if not batched:
            return output.squeeze(1), (h_n.squeeze(1), c_n.squeeze(1))
        return output.transpose(0, 1) if self.batch_first else output, (h_n, c_n)

    def _states(self, x: Tensor, hx: State | None, batch: int, batched: bool) -> State | None:
        """h and c before the first step, ``(layers · directions, batch, n)``; None if hx does not fit."""
        shape = (self.num_layers * (2 if self.bidirectional else 1), batch, self.hidden_size)
        if hx is None:
            return x.new_zeros(shape), x.new_zeros(shape)
        if len(hx) != 2:
            return None
        if not batched:
            hx = (hx[0].unsqueeze(1), hx[1].unsqueeze(1))
        return hx if all(s.shape == shape and s.dtype == x.dtype and s.device == x.device for s in hx) else None

    def _run(self, x: Tensor, states: State, batch_sizes: Tensor | None) -> tuple[Tensor, State]:
        last: list[State] = []
        for layer in range(self.num_layers):
            outputs = []
            for suffix in (f"_l{layer}", f"_l{layer}_reverse")[: 2 if self.bidirectional else 1]:
                W, U = getattr(self, f"weight_hh{suffix}"), getattr(self, f"weight_ih{suffix}")
                b = getattr(self, f"bias_ih{suffix}") + getattr(self, f"bias_hh{suffix}") if self.bias else None
                h0, c0 = states[0][len(last)], states[1][len(last)]
                output, h_n, c_n = lstm.kernel(x, h0, c0, W, U, b, batch_sizes, suffix.endswith("_reverse"))
                outputs.append(output)
                last.append((h_n, c_n))
            x = outputs[0] if len(outputs) == 1 else torch.cat(outputs, -1)
            if self.dropout and layer < self.num_layers - 1:
                x = F.dropout(x, self.dropout, self.training)
        h_n, c_n = (torch.stack(part) for part in zip(*last, strict=True))
        return x, (h_n, c_n)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        reset_gates(self, self.forget_bias)  # torch's gates: input, forget, cell, output

    def recurrent_parameter_names(self) -> list[str]:
        return []

    def orthogonality_error(self) -> None:
        """None: nothing is constrained."""


@torch.no_grad()
def reset_gates(layer: nn.RNNBase, forget_bias: float) -> None:
    """Glorot-uniform over input and state together; ``forget_bias`` in the second gate; one bias vector frozen at 0."""
    n = layer.hidden_size
    for name, parameter in layer.named_parameters():
        if name.startswith("weight_ih"):
            hidden = getattr(layer, f"weight_hh{name.removeprefix('weight_ih')}")
            limit = (6 / (parameter.shape[1] + n + parameter.shape[0])) ** 0.5
            parameter.uniform_(-limit, limit)
            hidden.uniform_(-limit, limit)
        elif name.startswith("bias"):
            parameter.zero_()
            if name.startswith("bias_ih"):
                parameter[n : 2 * n] = forget_bias
            else:
                parameter.requires_grad_(False)
