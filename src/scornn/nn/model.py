"""A whole network: a recurrent layer and a linear head on its states."""

from __future__ import annotations

from inspect import signature
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from scornn.nn.base import RecurrentLayer
from scornn.nn.lstm import LSTM


def _has_hooks(module: nn.Module) -> bool:
    return any((module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks))


def _check_lengths(inputs: Tensor, lengths: Tensor) -> None:
    steps, batch = inputs.shape[:2]
    if lengths.shape != (batch,):
        raise RuntimeError(f"expected one length for each of the {batch} sequences, got {tuple(lengths.shape)}")
    if int(lengths.min()) < 1 or int(lengths.max()) > steps:
        raise RuntimeError(f"lengths must lie in 1..{steps}, the steps of the inputs; got {lengths.tolist()}")


class SequenceModel(nn.Module):
    r"""The paper's network: :math:`y_t = V h_t + c` on every state, or on the last one alone.

    Args:
        layer: any layer with torch.nn.RNN's contract and ``batch_first=False``.
        output_size: p.
        read: ``all`` states, or the ``last`` state of each sequence.
        width: None for the paper's linear head. A number makes it another network: a head of two layers with so many
            units between them, GELU and dropout.
        dropout: of the units between the head's two layers.

    The head is Glorot-uniform with a zero bias, as in the authors' program.

    Example:
        >>> from scornn.nn import ScoRNN
        >>> SequenceModel(ScoRNN(1, 16), 10, read="last")(torch.randn(784, 3, 1)).shape
        torch.Size([3, 10])
    """

    def __init__(
        self,
        layer: Any,
        output_size: int,
        read: Literal["all", "last"] = "all",
        *,
        width: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if read not in ("all", "last"):
            raise ValueError(f'read must be "all" or "last", got {read!r}')
        self.layer = layer
        self.read = read
        weight = next(layer.parameters())
        self._directions = 2 if layer.bidirectional else 1
        self._takes_head = isinstance(layer, RecurrentLayer) and "head" in signature(layer.forward).parameters
        self._last_alone = isinstance(layer, RecurrentLayer) and "need_output" in signature(layer.forward).parameters
        size = getattr(layer, "readout_size", None) or int(layer.hidden_size) * self._directions  # torch's have none
        make: dict[str, Any] = {"device": weight.device, "dtype": weight.dtype}
        self.head: nn.Linear | nn.Sequential
        if width is None:
            self.head = nn.Linear(size, output_size, **make)
        else:
            inner, outer = nn.Linear(size, width, **make), nn.Linear(width, output_size, **make)
            self.head = nn.Sequential(inner, nn.GELU(), nn.Dropout(dropout), outer)
        for linear in (module for module in self.head.modules() if isinstance(module, nn.Linear)):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, inputs: Tensor, lengths: Tensor | None = None) -> Tensor:
        """``inputs (T, B, m)``, with padding after ``lengths`` steps where they are given.

        Returns ``(T, B, p)``, zero in the padding, or ``(B, p)`` when only the last state is read. What stands in the
        padding of the inputs reaches neither the output nor the gradient.
        """
        sequence: Any = inputs
        if lengths is not None:
            _check_lengths(inputs, lengths)
            if self._slow_when_packed(inputs):
                return self._on_padding(inputs, lengths)
            sequence = pack_padded_sequence(inputs, lengths, enforce_sorted=False)
        if self.read == "last":
            alone = {"need_output": False} if self._last_alone else {}
            h = self._last(self.layer(sequence, **alone)[1])
            y: Tensor = self.head(self._readout(h))
            return y
        every = self._every_state(sequence)
        y = every if lengths is None else pad_packed_sequence(every, total_length=inputs.shape[0])[0]
        return y

    def _every_state(self, sequence: Any) -> Any:
        """The head on every state of a batch of sequences, packed where they are."""
        if self._reads_in_one_pass():
            return self.layer(sequence, head=(self.head.weight, self.head.bias))[0]
        output = self.layer(sequence)[0]
        if isinstance(output, PackedSequence):
            return output._replace(data=self.head(self._readout(output.data)))
        return self.head(self._readout(output))

    def _readout(self, h: Tensor) -> Tensor:
        read: Tensor = self.layer.readout(h) if hasattr(self.layer, "readout") else h  # torch's layers have none
        return read

    def _reads_in_one_pass(self) -> bool:
        """Whether the layer takes the head's weights: hooks, such as those of pruning, see the modules one by one."""
        plain = type(self.head) is nn.Linear and self.head.bias is not None
        return self._takes_head and plain and not (_has_hooks(self.head) or _has_hooks(self.layer))

    def _slow_when_packed(self, inputs: Tensor) -> bool:
        """Whether torch's own loop of an LSTM or GRU runs it, and padding changes nothing."""
        if not isinstance(self.layer, nn.LSTM | nn.GRU) or self.layer.bidirectional:
            return False
        return not (isinstance(self.layer, LSTM) and self.layer.runs_on_kernel(inputs))

    def _on_padding(self, inputs: Tensor, lengths: Tensor) -> Tensor:
        """For torch's LSTM and GRU, which take several times longer on packed sequences.

        In one direction what comes after the end of a sequence changes nothing before it, and their states are
        bounded, so that none overflows there.
        """
        padding = (torch.arange(inputs.shape[0]).unsqueeze(1) >= lengths.cpu()).unsqueeze(-1).to(inputs.device)
        output = self.layer(inputs.masked_fill(padding, 0))[0]
        if self.read == "all":
            every: Tensor = self.head(output).masked_fill(padding, 0)
            return every
        last: Tensor = self.head(output[lengths - 1, torch.arange(len(lengths))])
        return last

    def _last(self, state: Tensor | tuple[Tensor, Tensor]) -> Tensor:
        """The last state of the top layer, ``(B, output_size)``: both directions side by side."""
        h_n = state[0] if isinstance(state, tuple) else state
        return torch.cat(tuple(h_n[-self._directions :]), -1)
