"""A network as constants: every recurrent matrix made once, the state an input and an output.

What is exported and what streams is this one form: the layer's own frozen form, and the head on it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from scornn.errors import UsageError
from scornn.nn import SequenceModel
from scornn.nn.frozen import FrozenLayer, plain_head


class Frozen(nn.Module):
    """A network whose weights are constants.

    ``y, *state = frozen(x, *state)`` takes ``x (T, B, m)`` and the state, and gives outputs as the network does and
    the state after the last step: ``h (layers · directions, B, n)``, and for an LSTM ``c``. Without a state it starts
    from the network's own. Run over a sequence in pieces, it gives what it gives for the whole.

    Args:
        network: the network, on the CPU or elsewhere.
        plain: run on torch's own operators, not on scornn's.

    Example:
        >>> from scornn.nn import ScoRNN, SequenceModel
        >>> frozen = Frozen(SequenceModel(ScoRNN(3, 8), 2))
        >>> x = torch.randn(10, 1, 3)
        >>> whole, _ = frozen(x)
        >>> first, h = frozen(x[:4])
        >>> rest, h = frozen(x[4:], h)
        >>> torch.allclose(torch.cat([first, rest]), whole, atol=1e-5)
        True
    """

    def __init__(self, network: SequenceModel, *, plain: bool = False) -> None:
        super().__init__()
        if network.read == "mean":
            raise UsageError("a network that reads the mean over its steps cannot be frozen: a state does not hold it")
        try:
            self.layer: FrozenLayer = network.layer.frozen(plain=plain)
            self.head = nn.Sequential(*plain_head(network.head))
        except TypeError as error:
            raise UsageError(str(error)) from error
        self.read = network.read
        self.state_names = ("h", "c")[: len(self.layer.state_sizes())]
        self.requires_grad_(False).eval()

    @property
    def input_size(self) -> int:
        return self.layer.input_size

    def initial_state(self, batch: int) -> tuple[Tensor, ...]:
        """The state before the first step of ``batch`` sequences."""
        layer = self.layer
        states = [layer.initial_state(suffix, batch, layer.like) for suffix in layer.suffixes()]
        every = zip(*(s if isinstance(s, tuple) else (s,) for s in states), strict=True)
        return tuple(torch.stack(parts) for parts in every)

    def forward(self, x: Tensor, h0: Tensor | None = None, c0: Tensor | None = None) -> tuple[Tensor, ...]:
        state = tuple(s for s in (h0, c0) if s is not None) or self.initial_state(x.shape[1])
        if len(state) != len(self.state_names):
            raise ValueError(f"expected the state {', '.join(self.state_names)}; got {len(state)} tensors")
        need = "last" if self.read == "last" else True  # the states of a long sequence are not held for its end alone
        output, last = self.layer(x, state if len(state) > 1 else state[0], need_output=need)
        return (self.head(self.layer.readout(output)), *(last if isinstance(last, tuple) else (last,)))
