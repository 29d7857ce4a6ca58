"""A whole network: a recurrent layer and a linear head on its states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.module import _has_any_global_hook
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from scornn.matrices.checks import check_sizes
from scornn.nn.layer import RecurrentLayer


def _is_watched(module: nn.Module) -> bool:
    """Whether its forward is watched, or replaced on the module itself, as by accelerate."""
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    return any(hooks) or bool(_has_any_global_hook()) or "forward" in vars(module)


def checked_lengths(inputs: Tensor, lengths: Tensor | Sequence[int]) -> Tensor:
    """The steps that count of each sequence of ``inputs (T, B, m)``, int64 on the CPU as torch packs them."""
    if inputs.dim() != 3:
        raise RuntimeError(f"lengths are for inputs (T, B, m), got {inputs.dim()}-D inputs")
    steps, batch = inputs.shape[:2]
    lengths = torch.as_tensor(lengths, device="cpu")
    if lengths.numel() and (lengths.dtype == torch.bool or lengths.is_floating_point() or lengths.is_complex()):
        raise TypeError(f"lengths must be integers, got {lengths.dtype}")
    lengths = lengths.long()
    if lengths.shape != (batch,):
        raise RuntimeError(f"expected one length for each of the {batch} sequences, got {tuple(lengths.shape)}")
    if batch and (int(lengths.min()) < 1 or int(lengths.max()) > steps):
        raise RuntimeError(f"lengths must lie in 1..{steps}, the steps of the inputs; got {lengths.tolist()}")
    return lengths


class SequenceModel(nn.Module):
    r"""The paper's network: :math:`y_t = V h_t + c` on every state, or on the last one alone.

    Args:
        layer: any :class:`RecurrentLayer` with ``batch_first=False``.
        output_size: size p of y_t.
        read: ``all`` states, the ``last`` state of each sequence, or the ``mean`` of its states (beyond the paper).
        width: None for the paper's linear head. A number makes it another network: a head with hidden layers of so
            many units, GELU and dropout.
        depth: how many hidden layers such a head has.
        norm: whether their sums are batch-normalised; not for a head on all states.
        dropout: of the hidden units.
        input_dropout: of the inputs.

    The head is Glorot-uniform with a zero bias, as in the authors' program.

    Example:
        >>> from scornn.nn import ScoRNN
        >>> SequenceModel(ScoRNN(1, 16), 10, read="last")(torch.randn(784, 3, 1)).shape
        torch.Size([3, 10])
    """

    def __init__(
        self,
        layer: RecurrentLayer,
        output_size: int,
        read: Literal["all", "last", "mean"] = "all",
        *,
        width: int | None = None,
        depth: int = 1,
        norm: bool = False,
        dropout: float = 0.0,
        input_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if read not in ("all", "last", "mean"):
            raise ValueError(f'read must be "all", "last" or "mean", got {read!r}')
        if not isinstance(layer, RecurrentLayer):
            name = type(layer).__name__
            raise TypeError(f"layer must be one of scornn.nn, or derive from scornn.nn.RecurrentLayer; got {name}")
        if layer.batch_first:
            raise ValueError(
                "layer has batch_first=True, but the inputs of a SequenceModel are (T, B, m); build it with "
                "batch_first=False"
            )
        self.layer: Any = layer  # parameters and matrices are its attributes
        if norm and read == "all":
            raise ValueError("norm: a head on all states has no batch normalisation, which would mix their steps")
        check_sizes(depth=depth, **({} if width is None else {"width": width}))
        if width is None and (depth != 1 or norm or dropout):
            raise ValueError("depth, norm and dropout are of a head with hidden layers: give its width")
        self.read, self.input_dropout = read, nn.Dropout(input_dropout)
        size = layer.readout_size
        make: dict[str, Any] = {"device": layer.like.device, "dtype": layer.like.dtype}
        self.head: nn.Linear | nn.Sequential
        if width is None:
            self.head = nn.Linear(size, output_size, **make)
        else:
            hidden: list[nn.Module] = []
            for k in range(depth):
                hidden.append(nn.Linear(width if k else size, width, **make))
                hidden += [nn.BatchNorm1d(width, **make)] if norm else []
                hidden += [nn.GELU(), nn.Dropout(dropout)]
            self.head = nn.Sequential(*hidden, nn.Linear(width, output_size, **make))
        for linear in (module for module in self.head.modules() if isinstance(module, nn.Linear)):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, inputs: Any, lengths: Tensor | Sequence[int] | None = None) -> Any:
        """``inputs (T, B, m)``, with padding after ``lengths`` steps where they are given; or a ``PackedSequence``.

        Returns ``(T, B, p)``, zero in the padding, or ``(B, p)`` when the last state or the mean is read. What stands
        in the padding of the inputs reaches neither the output nor the gradient. Of packed inputs every output is
        packed too.
        """
        if isinstance(inputs, PackedSequence) and lengths is not None:
            raise ValueError("a PackedSequence has its own lengths; give lengths with padded inputs only")
        if self.input_dropout.p and self.training:
            dropped = self.input_dropout
            packed = isinstance(inputs, PackedSequence)
            inputs = inputs._replace(data=dropped(inputs.data)) if packed else dropped(inputs)
        sequence: Any = inputs
        if lengths is not None:
            lengths = checked_lengths(inputs, lengths)
            lengths = lengths if len(lengths) else None  # torch packs no empty batch
        if lengths is not None:
            if self.layer.slow_when_packed(inputs):
                return self._on_padding(inputs, lengths)
            sequence = pack_padded_sequence(inputs, lengths, enforce_sorted=False)
        if self.read != "all":
            h = self._last(sequence) if self.read == "last" else self._mean(sequence)
            return self.head(self.layer.readout(h))
        every = self._every_state(sequence)
        return every if lengths is None else pad_packed_sequence(every, total_length=inputs.shape[0])[0]

    def _every_state(self, sequence: Any) -> Any:
        """The head on every state of a batch of sequences, packed where they are."""
        if self._reads_in_one_pass():
            return self.layer(sequence, head=(self.head.weight, self.head.bias))[0]
        output = self.layer(sequence)[0]
        if isinstance(output, PackedSequence):
            return output._replace(data=self.head(self.layer.readout(output.data)))
        return self.head(self.layer.readout(output))

    def _reads_in_one_pass(self) -> bool:
        """Whether the layer takes the head's weights: hooks, such as those of pruning, see the modules one by one."""
        plain = type(self.head) is nn.Linear and self.head.bias is not None
        return plain and not (_is_watched(self.head) or _is_watched(self.layer))

    def _on_padding(self, inputs: Tensor, lengths: Tensor) -> Tensor:
        """For torch's loops of an LSTM and a GRU, which take several times longer on packed sequences.

        In one direction what comes after the end of a sequence changes nothing before it, and their states are
        bounded, so that none overflows there.
        """
        lengths = lengths.to(inputs.device)
        padding = (torch.arange(inputs.shape[0], device=inputs.device).unsqueeze(1) >= lengths).unsqueeze(-1)
        output = self.layer(inputs.masked_fill(padding, 0))[0]
        if self.read == "all":
            return self.head(output).masked_fill(padding, 0)
        if self.read == "mean":
            return self.head(output.masked_fill(padding, 0).sum(0) / lengths.unsqueeze(-1))
        return self.head(output[lengths - 1, torch.arange(len(lengths), device=inputs.device)])

    def _last(self, sequence: Any) -> Tensor:
        """What the top layer gives at its last step, ``(B, output_size)``: both directions side by side."""
        if not (_is_watched(self.layer) and self.layer.output_is_state):
            return self.layer(sequence, need_output="last")[0]
        state = self.layer(sequence, need_output=True)[1]  # hooks may read the output
        h_n = state[0] if isinstance(state, tuple) else state
        return torch.cat(tuple(h_n[-self.layer.num_directions :]), -1)

    def _mean(self, sequence: Any) -> Tensor:
        """The mean of the outputs over the steps of each sequence, ``(B, output_size)``."""
        output = self.layer(sequence)[0]
        if not isinstance(output, PackedSequence):
            return output.sum(0) / output.shape[0]
        # pad_packed_sequence would write step by step, and copy the whole gradient for each.
        data, sizes, order = output.data, output.batch_sizes, output.unsorted_indices
        counted = torch.arange(int(sizes[0]), device=sizes.device) < sizes.unsqueeze(1)  # (T, B), longest first
        rows, count = counted.flatten().nonzero().squeeze(1), counted.sum(0).unsqueeze(-1)
        padded = data.new_zeros(counted.numel(), data.shape[1]).index_copy(0, rows.to(data.device), data)
        mean = padded.unflatten(0, counted.shape).sum(0) / count.to(data.device)
        return mean if order is None else mean[order]
