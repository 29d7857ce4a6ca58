"""Blocks on the linear memory: what it remembers, a gated network computes with. Beyond the paper."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scornn.functional import full_precision, under_autocast
from scornn.matrices.bank import STARTS
from scornn.matrices.checks import check_choice, check_number, check_sizes, precise
from scornn.nn.catalogue import model
from scornn.nn.layer import RecurrentLayer
from scornn.nn.linear_memory import LinearMemory
from scornn.ops.bank import Bank
from scornn.ops.bank_last import frames
from scornn.ops.bank_scan import every_state
from scornn.ops.layout import Order


class MemoryBlock(nn.Module):
    r"""norm → linear memory → gated network → residual, in one direction; :class:`MemoryBlocks` is a stack of them.

    .. math::
        h_t = R h_{t-1} + U\,\mathrm{norm}(x_t), \qquad
        (a_t, g_t) = W_1\,\mathrm{norm}(h_t) + W_x\,\mathrm{norm}(x_t) + c_1, \qquad
        y_t = x_t + W_2\,(\mathrm{gelu}(a_t) \odot σ(g_t)) + c_2

    All that is not linear is within a step, so that the memory runs without a loop, and steps given one by one make the
    same numbers. The state grows with √t, which the second norm takes out. Where ``input_size`` is not ``width``, as in
    the first block of a network, :math:`x_t` is read as it is, and :math:`E x_t` stands for it in the sum. A gate that
    reads the step's input beside the state can let some steps pass and not others: a linear memory alone cannot.

    Args:
        input_size: m of x_t.
        hidden_size: n, the state of the memory.
        width: size of y_t.
        expand: a_t and g_t have ``expand`` · width numbers.
        dropout: of what the gate lets through.
        stride: the state is read, and y made, at every so-many-th step alone.
        norm: whether x_t and h_t are normed. A norm gives every step the same weight: leave it out where few of many
            steps count.
        closed: the gates start with the bias −closed, and W_x 1 + closed times as large: few steps get through at
            first, by what they bring. It ends the plateau of problems such as adding (``docs/linear.md``).
        top: whether y is normed too.
        start, backend: the memory's.

    Example:
        >>> y, h_n = MemoryBlock(8, 16, 8)(torch.randn(5, 2, 8), torch.zeros(2, 16))
        >>> y.shape, h_n.shape
        (torch.Size([5, 2, 8]), torch.Size([2, 16]))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        width: int,
        *,
        expand: int = 2,
        dropout: float = 0.0,
        stride: int = 1,
        norm: bool = True,
        closed: float = 0.0,
        top: bool = False,
        start: str = "uniform",
        backend: str = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_sizes(input_size=input_size, hidden_size=hidden_size, width=width, expand=expand, stride=stride)
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        within = input_size == width
        self.stride, self.backend = stride, backend
        self.closed = check_number("closed", closed, "a finite number of 0 or more", lambda number: number >= 0)
        self.norm: nn.Module = nn.LayerNorm(width, **where) if norm and within else nn.Identity()
        self.enter: nn.Module = nn.Identity() if within else nn.Linear(input_size, width, bias=False, **where)
        self.memory = LinearMemory(input_size, hidden_size, start=start, input_scale=input_size**-0.5, **where)
        self.state_norm: nn.Module = nn.LayerNorm(hidden_size, **where) if norm else nn.Identity()
        self.gates = nn.Linear(hidden_size, 2 * expand * width, **where)
        self.gates_ih = nn.Linear(input_size, 2 * expand * width, bias=False, **where)
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(expand * width, width, **where)
        self.top: nn.Module = nn.LayerNorm(width, **where) if top else nn.Identity()
        self._close()

    def reset_parameters(self) -> None:
        for part in self.children():
            if callable(reset := getattr(part, "reset_parameters", None)):
                reset()
        self._close()

    @torch.no_grad()
    def _close(self) -> None:
        if self.closed:
            self.gates_ih.weight.mul_(1 + self.closed)
            self.gates.bias.chunk(2)[1].fill_(-self.closed)

    def forward(
        self, x: Tensor, h0: Tensor, batch_sizes: Tensor | None = None, reverse: bool = False
    ) -> tuple[Tensor, Tensor]:
        """x ``(T, B, m)``, or packed as rows, and h_0 ``(B, n)``: y and the last state."""
        x, h0 = self._checked(x, h0, batch_sizes, reverse)
        with full_precision(x):
            bank, U = self.memory.matrix("_l0").parts(), self.memory.weight_ih_l0
            read = seen = self.norm(x)
            if self.stride > 1:
                bank = Bank(precise(bank.angle), precise(bank.sign))
                read, bank, U = frames(precise(read), bank, precise(U), self.stride)
                h0 = precise(h0)
                x, seen = x[self.stride - 1 :: self.stride], seen[self.stride - 1 :: self.stride]
            states, h_n = every_state(read, h0, bank, U, None, batch_sizes, reverse, self.backend)
            return self._compute(x, seen, states.to(x.dtype)), h_n.to(x.dtype)

    def last(
        self, x: Tensor, h0: Tensor, batch_sizes: Tensor | None = None, reverse: bool = False
    ) -> tuple[Tensor, Tensor]:
        """y of the last step alone, ``(B, width)``, and the last state."""
        if self.backend != "auto":
            y, h_n = self(x, h0, batch_sizes, reverse)
            order = Order(y, batch_sizes, reverse)
            return order.last_of(order.steps_of(y)), h_n
        x, h0 = self._checked(x, h0, batch_sizes, reverse)
        with full_precision(x):
            order, matrix = Order(x, batch_sizes, reverse), self.memory.matrix("_l0")
            h_n = matrix.last_state(self.norm(x), h0, self.memory.weight_ih_l0, None, batch_sizes, reverse)
            x = order.last_of(order.steps_of(x))
            return self._compute(x, self.norm(x), h_n), h_n

    def _checked(self, x: Tensor, h0: Tensor, batch_sizes: Tensor | None, reverse: bool) -> tuple[Tensor, Tensor]:
        """Under autocast in the weights' precision, as every layer: a state rounded at each step is lost."""
        if self.stride > 1 and (reverse or batch_sizes is not None or len(x) % self.stride):
            packed = "packed sequences" if batch_sizes is not None else f"{len(x)} steps"
            raise RuntimeError(
                f"memory blocks with stride {self.stride} read sequences of one length, a multiple of it, in one "
                f"direction; got {packed}" + ", reversed" * reverse
            )
        dtype = self.out.weight.dtype
        return (x.to(dtype), h0.to(dtype)) if under_autocast(x) else (x, h0)

    def _compute(self, x: Tensor, seen: Tensor, h: Tensor) -> Tensor:
        """y of steps whose input is x, normed ``seen``, and whose state is h."""
        a, g = (self.gates(self.state_norm(h)) + self.gates_ih(seen)).chunk(2, -1)
        return self.top(self.enter(x) + self.out(self.dropout(F.gelu(a) * torch.sigmoid(g))))


@model(
    "memory-blocks",
    label="memory blocks",
    colour=4,
    marker="P",
    summary="linear memories with gated networks between them",
    equation="h' = Rh + U norm(x), y = x + W₂(gelu(a)⊙σ(g)), (a, g) = W₁ norm(h') + Wₓ norm(x)",
    source="beyond the paper: its network with the identity for σ, in blocks",
)
class MemoryBlocks(RecurrentLayer):
    """A stack of :class:`MemoryBlock` with the contract of :class:`torch.nn.RNN`. Not the paper's network.

    What recurs is linear, n/2 angles to a block; what is not linear lies between the memories, within a step
    (``docs/linear.md``). The output is what the top block makes, normed unless ``norm`` is False; ``h_n`` holds the
    states of the memories.

    Args:
        input_size: size m of x_t.
        hidden_size: n, the state of each memory.
        num_layers: how many blocks.
        bias: as torch.nn.RNN's; there is none in the recurrence, so it must be False.
        dropout, bidirectional, batch_first: as torch.nn.RNN's.
        width: size of what blocks hand on, and of the output. Default: n.
        expand, norm, closed, start, backend: as :class:`MemoryBlock`.
        gate_dropout: dropout inside the blocks.
        stride: the first memory is read at every so-many-th step, and all above it runs on these steps alone: the
            output has T / stride of them. For sequences of one length, a multiple of it, in one direction.

    Example:
        >>> layer = MemoryBlocks(1, 16, num_layers=2, width=8, stride=4)
        >>> output, h_n = layer(torch.randn(20, 3, 1))
        >>> output.shape, h_n.shape
        (torch.Size([5, 3, 8]), torch.Size([2, 3, 16]))
    """

    output_is_state = False

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = False,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        width: int | None = None,
        expand: int = 2,
        gate_dropout: float = 0.0,
        stride: int = 1,
        norm: bool = True,
        closed: float = 0.0,
        start: str = "uniform",
        backend: str = "auto",
    ) -> None:
        super().__init__(input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional)
        self.width = hidden_size if width is None else width
        check_sizes(width=self.width, expand=expand, stride=stride)
        if bias:
            raise ValueError("MemoryBlocks has no bias in its recurrence: bias must be False, got True")
        if stride > 1 and bidirectional:
            raise ValueError(f"stride = {stride}: blocks in two directions read every step; stride must be 1")
        self.expand, self.stride, self.norm, self.closed = expand, stride, norm, closed
        self.gate_dropout = check_number("gate_dropout", gate_dropout, "a number in [0, 1)", lambda p: 0 <= p < 1)
        self.start = check_choice("start", start, STARTS)
        self.backend = backend
        self.build(device, dtype)

    def make_parameters(
        self, suffix: str, input_size: int, device: torch.device | str | None, dtype: torch.dtype | None
    ) -> None:
        block = MemoryBlock(
            input_size,
            self.hidden_size,
            self.width,
            expand=self.expand,
            dropout=self.gate_dropout,
            stride=self.stride if suffix == "_l0" else 1,
            norm=self.norm,
            closed=self.closed,
            top=self.norm and suffix in self._suffixes(self.num_layers - 1),
            start=self.start,
            backend=self.backend,
            device=device,
            dtype=dtype,
        )
        self.add_module(f"block{suffix}", block)

    def block(self, suffix: str) -> MemoryBlock:
        return self.get_submodule(f"block{suffix}")  # type: ignore[return-value]

    def reset(self, suffix: str) -> None:
        self.block(suffix).reset_parameters()

    @property
    def output_size(self) -> int:
        return self.width * self.num_directions

    def run(
        self, suffix: str, x: Tensor, h0: Tensor, batch_sizes: Tensor | None, reverse: bool
    ) -> tuple[Tensor, Tensor]:
        return self.block(suffix)(x, h0, batch_sizes, reverse)

    def run_last(
        self, suffix: str, x: Tensor, h0: Tensor, batch_sizes: Tensor | None, reverse: bool
    ) -> tuple[Tensor, Tensor]:
        """Of the top block only the last step is made."""
        return self.block(suffix).last(x, h0, batch_sizes, reverse)

    def _found(self, name: str) -> tuple[Any, str] | None:
        """``weight_hh{suffix}`` is that of the memory of a block."""
        suffix = name.removeprefix("weight_hh")
        block = self.__dict__.get("_modules", {}).get(f"block{suffix}")
        return None if suffix == name or block is None else (block.memory.matrix("_l0"), "weight")

    def extra_repr(self) -> str:
        text = super().extra_repr().replace(", bias=False", "")
        return f"{text}, width={self.width}" + ("" if self.stride == 1 else f", stride={self.stride}")
