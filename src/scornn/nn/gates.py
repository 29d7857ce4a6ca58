"""LSTM and GRU: torch's parameters under our start, on the kernel where it runs and else in torch's own loop."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from scornn.matrices.checks import check_integer, check_number, check_sizes
from scornn.nn.catalogue import model
from scornn.nn.layer import RecurrentLayer
from scornn.ops.rung import CELLS, Operands, choose, like, run


class GatedLayer(RecurrentLayer):
    """A layer with the parameters of torch.nn.LSTM or GRU, their gates one above the other.

    torch keeps two bias vectors where one is enough: the second, ``bias_hh``, stays zero and is not trained, so that
    the number of trained parameters is the paper's.

    Args:
        forget_bias: what the bias of the second gate starts at; the others start at zero.
        backend: ``auto``, scornn's kernel where it runs and torch's own loop elsewhere; ``native``, the kernel or an
            error; ``torch``, torch's own loop; or ``naive``, a loop of plain steps, which torch.func can transform.
            These two have second derivatives.
    """

    kind: str
    proj_size: int = 0

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
        self.forget_bias = check_number("forget_bias", forget_bias)
        self.backend = backend
        self.build(device, dtype)

    @property
    def state_size(self) -> int:
        return self.proj_size or self.hidden_size

    def operands(self, suffix: str) -> tuple[Tensor, Tensor, Tensor | None]:
        """W, U and b, as :mod:`scornn.ops.gated` takes them."""
        raise NotImplementedError

    def parameter_shapes(self, input_size: int) -> dict[str, tuple[int, ...]]:
        rows = CELLS[self.kind].gates * self.hidden_size
        shapes: dict[str, tuple[int, ...]] = {"weight_ih": (rows, input_size), "weight_hh": (rows, self.state_size)}
        if self.bias:
            shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)}
        return shapes | ({"weight_hr": (self.proj_size, self.hidden_size)} if self.proj_size else {})

    def build(self, device: torch.device | str | None, dtype: torch.dtype | None) -> None:
        super().build(device, dtype)
        for suffix in self.suffixes() if self.bias else ():
            getattr(self, f"bias_hh{suffix}").requires_grad_(False)

    @torch.no_grad()
    def reset(self, suffix: str) -> None:
        """Glorot-uniform over input and state together; ``forget_bias`` in the second gate."""
        n, U = self.hidden_size, getattr(self, f"weight_ih{suffix}")
        limit = (6 / (U.shape[1] + self.state_size + U.shape[0])) ** 0.5
        U.uniform_(-limit, limit)
        getattr(self, f"weight_hh{suffix}").uniform_(-limit, limit)
        if self.bias:
            getattr(self, f"bias_ih{suffix}").zero_()[n : 2 * n] = self.forget_bias
            getattr(self, f"bias_hh{suffix}").zero_()
        if self.proj_size:
            nn.init.xavier_uniform_(getattr(self, f"weight_hr{suffix}"))

    def run(self, suffix: str, x: Tensor, h0: Any, batch_sizes: Tensor | None, reverse: bool) -> tuple[Tensor, Any]:
        h, *c = h0 if isinstance(h0, tuple) else (h0,)
        R = getattr(self, f"weight_hr{suffix}") if self.proj_size else None
        operands = Operands(x, h, *self.operands(suffix), self.kind, batch_sizes, reverse, c[0] if c else None, R)
        output, *last = run(operands, self.backend)
        return output, tuple(last) if c else last[0]

    def slow_when_packed(self, x: Tensor) -> bool:
        return not self.bidirectional and choose(like(x, self.kind), self.backend).name != "native"

    def extra_repr(self) -> str:
        return super().extra_repr() + (f", proj_size={self.proj_size}" if self.proj_size else "")


@model(
    "lstm",
    label="LSTM",
    colour=1,
    marker="s",
    summary="long short-term memory",
    equation="c' = f ⊙ c + i ⊙ g, h' = o ⊙ tanh c'",
    source="Hochreiter and Schmidhuber, 1997",
    bench=(128, 256, 512),
)
class LSTM(GatedLayer):
    r"""torch.nn.LSTM started as TensorFlow 1's BasicLSTMCell, and faster on the CPU.

    .. math::
        i, f, o = σ(U x_t + W h_{t-1} + b), \quad g = \tanh(U x_t + W h_{t-1} + b), \qquad
        c_t = f \odot c_{t-1} + i \odot g, \quad h_t = o \odot \tanh c_t

    Glorot-uniform kernel over input and state together, zero biases, and ``forget_bias`` in the forget gate
    (the paper tunes it over −4..4). Parameters, their names and shapes, and the state ``(h, c)`` are those of
    torch.nn.LSTM; ``backend`` is :class:`GatedLayer`'s.

    Example:
        >>> output, (h_n, c_n) = LSTM(3, 5, forget_bias=-4)(torch.randn(7, 2, 3))
        >>> output.shape
        torch.Size([7, 2, 5])
    """

    kind = "lstm"

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
        check_sizes(hidden_size=hidden_size)
        self.proj_size = check_integer("proj_size", proj_size, 0, hidden_size - 1)
        size = (input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional)
        super().__init__(*size, device, dtype, forget_bias=forget_bias, backend=backend)

    def state_sizes(self) -> tuple[int, ...]:
        """Of h and c."""
        return self.state_size, self.hidden_size

    def operands(self, suffix: str) -> tuple[Tensor, Tensor, Tensor | None]:
        b = getattr(self, f"bias_ih{suffix}") + getattr(self, f"bias_hh{suffix}") if self.bias else None
        return getattr(self, f"weight_hh{suffix}"), getattr(self, f"weight_ih{suffix}"), b


@model(
    "gru",
    label="GRU",
    colour=4,
    marker="X",
    summary="gated recurrent unit",
    equation="h' = z ⊙ h + (1 − z) ⊙ c",
    source="Cho et al., 2014",
    bench=(128,),
)
class GRU(GatedLayer):
    r"""torch.nn.GRU with Glorot-uniform kernels and a bias that makes it remember.

    .. math::
        r, z = σ(U x_t + W h_{t-1} + b), \qquad c = \tanh(U x_t + b + r \odot W h_{t-1}), \qquad
        h_t = z \odot h_{t-1} + (1 - z) \odot c

    The reset gate r, the update gate z and the candidate c each have a U, W and b of their own. ``forget_bias`` is
    added in z: above 0 the state is kept at the start, below 0 overwritten. Parameters, their names and shapes are
    those of torch.nn.GRU; ``backend`` is :class:`GatedLayer`'s.

    Example:
        >>> output, h_n = GRU(3, 5, forget_bias=2)(torch.randn(7, 2, 3))
        >>> output.shape
        torch.Size([7, 2, 5])
    """

    kind = "gru"

    def operands(self, suffix: str) -> tuple[Tensor, Tensor, Tensor | None]:
        W, U, b = getattr(self, f"weight_hh{suffix}"), getattr(self, f"weight_ih{suffix}"), None
        if self.bias:
            first, second = getattr(self, f"bias_ih{suffix}"), getattr(self, f"bias_hh{suffix}")
            gates = 2 * self.hidden_size
            b = torch.cat([first[:gates] + second[:gates], first[gates:], second[gates:]])
        return W, U, b
