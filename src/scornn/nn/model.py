"""A whole network: a recurrent layer and a linear head on its states."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class _HeadOverTime(torch.autograd.Function):
    """y_t = V h_t + c for all t, with a faster gradient of h.

    One product of (T·B, p) by (p, n) with a small p runs at a fraction of the speed of T products of (B, p) by (p, n).
    """

    @staticmethod
    def forward(ctx: Any, h: Tensor, V: Tensor, c: Tensor) -> Tensor:
        ctx.save_for_backward(h, V)
        return nn.functional.linear(h, V, c)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        h, V = ctx.saved_tensors
        dh = torch.bmm(g, V.expand(h.shape[0], *V.shape))
        dV = g.flatten(0, 1).mT @ h.flatten(0, 1)
        return dh, dV, g.sum((0, 1))


def _every_state(h: Tensor, V: Tensor, c: Tensor) -> Tensor:
    y: Tensor = _HeadOverTime.apply(h, V, c)  # type: ignore[no-untyped-call]
    return y


class SequenceModel(nn.Module):
    r"""The paper's network: :math:`y_t = V h_t + c` on every state, or on the last one alone.

    Args:
        layer: any layer with torch.nn.RNN's contract and ``batch_first=False``.
        output_size: p.
        read: ``all`` states, or the ``last`` state of each sequence.

    The head is Glorot-uniform with a zero bias, as in the authors' program.

    Example:
        >>> from scornn.nn import ScoRNN
        >>> SequenceModel(ScoRNN(1, 16), 10, read="last")(torch.randn(784, 3, 1)).shape
        torch.Size([3, 10])
    """

    def __init__(self, layer: Any, output_size: int, read: Literal["all", "last"] = "all") -> None:
        super().__init__()
        if read not in ("all", "last"):
            raise ValueError(f'read must be "all" or "last", got {read!r}')
        self.layer = layer
        self.read = read
        weight = next(layer.parameters())
        self._directions = 2 if layer.bidirectional else 1
        size = getattr(layer, "readout_size", None) or int(layer.hidden_size) * self._directions  # torch's have none
        self.head = nn.Linear(size, output_size, device=weight.device, dtype=weight.dtype)
        nn.init.xavier_uniform_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, inputs: Tensor, lengths: Tensor | None = None) -> Tensor:
        """``inputs (T, B, m)``, with padding after ``lengths`` steps where they are given.

        Returns ``(T, B, p)``, or ``(B, p)`` when only the last state is read. What stands in the padding reaches
        neither the output (the head sees zeros there) nor the gradient.
        """
        if lengths is None:
            output, state = self.layer(inputs)
        else:
            packed = pack_padded_sequence(inputs, lengths, enforce_sorted=False)
            packed_output, state = self.layer(packed)
            if self.read == "all":
                output, _ = pad_packed_sequence(packed_output, total_length=inputs.shape[0])
        h = output if self.read == "all" else self._last(state)
        h = self.layer.readout(h) if hasattr(self.layer, "readout") else h
        if h.dim() == 3 and h.device.type == "cpu" and not torch.is_autocast_enabled("cpu"):
            return _every_state(h, self.head.weight, self.head.bias)
        y: Tensor = self.head(h)
        return y

    def _last(self, state: Tensor | tuple[Tensor, Tensor]) -> Tensor:
        """The last state of the top layer, ``(B, output_size)``: both directions side by side."""
        h_n = state[0] if isinstance(state, tuple) else state
        return torch.cat(tuple(h_n[-self._directions :]), -1)
