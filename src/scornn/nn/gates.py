"""LSTM and GRU: torch's parameters under our start, on the kernel where it runs and else in torch's own loop."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from scornn.functional import full_precision
from scornn.matrices.checks import check_integer, check_number, check_sizes
from scornn.nn.catalogue import model
from scornn.nn.layer import RecurrentLayer
from scornn.ops import gated, native
from scornn.ops.custom import under_transform
from scornn.ops.layout import Order, States
from scornn.ops.rung import Rung, choose


class GatedLayer(RecurrentLayer):
    """A layer with the parameters of torch.nn.LSTM or GRU, their gates one above the other.

    torch keeps two bias vectors where one is enough: the second, ``bias_hh``, stays zero and is not trained, so that
    the number of trained parameters is the paper's.

    Args:
        forget_bias: what the bias of the second gate starts at; the others start at zero.
        backend: ``auto``, scornn's kernel where it runs and torch's own loop elsewhere; ``native``, the kernel or an
            error; or ``naive``, torch's own loop, which has second derivatives.
    """

    BACKENDS: ClassVar[tuple[str, ...]] = ("auto", "native", "naive")
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
        rows = native.GATES[self.kind] * self.hidden_size
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

    @property
    def rungs(self) -> tuple[Rung, Rung]:
        """The ways to run, each a method: arguments and result as :meth:`run`, with the states always a tuple."""
        refuses = _no_projections if self.proj_size else native.RUNG.refuses
        return Rung("native", self.on_kernel, native.RUNG.unavailable, refuses), Rung("naive", self.loop, opaque=False)

    def run(self, suffix: str, x: Tensor, h0: Any, batch_sizes: Tensor | None, reverse: bool) -> tuple[Tensor, Any]:
        states = h0 if isinstance(h0, tuple) else (h0,)
        rung = choose(self.rungs, self.backend, x)
        output, *last = rung.run(suffix, x, states, batch_sizes, reverse)
        return output, tuple(last) if isinstance(h0, tuple) else last[0]

    def on_kernel(
        self, suffix: str, x: Tensor, states: States, batch_sizes: Tensor | None, reverse: bool
    ) -> tuple[Tensor, ...]:
        return gated.kernel(x, states[0], *self.operands(suffix), self.kind, batch_sizes, reverse, c0=_cell(states))

    def loop(
        self, suffix: str, x: Tensor, states: States, batch_sizes: Tensor | None, reverse: bool
    ) -> tuple[Tensor, ...]:
        """torch's own loop, or one of plain steps where that has no rule for torch.func's transforms."""
        if under_transform():
            R = getattr(self, f"weight_hr{suffix}") if self.proj_size else None
            operands = (x, states[0], *self.operands(suffix), self.kind, batch_sizes, reverse)
            with full_precision(x):
                return gated.naive(*operands, c0=_cell(states), R=R)
        function: Any = getattr(torch._VF, self.kind)
        names = ["weight_ih", "weight_hh"] + ["bias_ih", "bias_hh"] * self.bias + ["weight_hr"] * bool(self.proj_size)
        weights = [getattr(self, f"{name}{suffix}") for name in names]
        first: Any = tuple(h.unsqueeze(0) for h in states)
        first = first if len(first) > 1 else first[0]
        order = Order(x, batch_sizes, reverse).index if reverse and batch_sizes is not None else None
        settings = (self.bias, 1, 0.0, self.training, False)
        with full_precision(x):
            if batch_sizes is None:
                output, *last = function(x.flip(0) if reverse else x, first, weights, *settings, False)
                output = output.flip(0) if reverse else output
            else:
                output, *last = function(x if order is None else x[order], batch_sizes, first, weights, *settings)
                output = output if order is None else output[order]
        return output, *(h.squeeze(0) for h in last)

    def slow_when_packed(self, x: Tensor) -> bool:
        return not self.bidirectional and choose(self.rungs, self.backend, x).name != "native"

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


def _no_projections(x: Tensor) -> str:
    return "it has no projections (proj_size)"


def _cell(states: States) -> Tensor | None:
    """c of an LSTM's (h, c)."""
    return states[1] if len(states) > 1 else None
