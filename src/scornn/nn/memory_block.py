"""Blocks on the linear memory: what it remembers, a gated network computes with. Beyond the paper."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scornn.nn.checks import check_choice, check_sizes
from scornn.nn.linear_memory import LinearMemory


class MemoryBlock(nn.Module):
    r"""norm → linear memory → gated network → residual; a stack of them is :class:`MemoryNetwork`.

    .. math::
        h_t = R h_{t-1} + U\,\mathrm{norm}(x_t), \qquad (a_t, g_t) = W_1\,\mathrm{norm}(h_t) + c_1, \qquad
        y_t = x_t + W_2\,(\mathrm{gelu}(a_t) \odot σ(g_t)) + c_2

    All that is not linear is within a step, so that the memory runs without a loop, and steps given one by one make the
    same numbers. The state grows with √t, which the second norm takes out.

    Args:
        width: size of x_t and y_t.
        hidden_size: n, the state of the memory.
        expand: a_t and g_t have ``expand`` · width numbers.
        dropout: of what the gate lets through.
        start, backend: the memory's.

    Inputs: x ``(T, B, width)`` and h_0 ``(B, n)``, zero if not given. With ``last=True`` y is that of the last step
    alone, ``(B, width)``. Outputs: y and h_n ``(B, n)``.

    Example:
        >>> y, h_n = MemoryBlock(8, 16)(torch.randn(5, 2, 8))
        >>> y.shape, h_n.shape
        (torch.Size([5, 2, 8]), torch.Size([2, 16]))
    """

    def __init__(
        self,
        width: int,
        hidden_size: int,
        *,
        expand: int = 2,
        dropout: float = 0.0,
        start: str = "uniform",
        backend: str = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_sizes(width=width, hidden_size=hidden_size, expand=expand)
        self.norm = nn.LayerNorm(width, device=device, dtype=dtype)
        self.memory = LinearMemory(
            width, hidden_size, device=device, dtype=dtype, start=start, backend=backend, input_scale=width**-0.5
        )
        self.state_norm = nn.LayerNorm(hidden_size, device=device, dtype=dtype)
        self.gates = nn.Linear(hidden_size, 2 * expand * width, device=device, dtype=dtype)
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(expand * width, width, device=device, dtype=dtype)

    def forward(self, x: Tensor, h0: Tensor | None = None, *, last: bool = False) -> tuple[Tensor, Tensor]:
        hx = None if h0 is None else h0.unsqueeze(0)
        states, h_n = self.memory(self.norm(x), hx, need_output=not last)
        h_n = h_n.squeeze(0)
        a, g = self.gates(self.state_norm(h_n if last else states)).chunk(2, -1)
        y = self.out(self.dropout(F.gelu(a) * torch.sigmoid(g)))
        return (x[-1] if last else x) + y, h_n


class StreamState(NamedTuple):
    """What a :class:`MemoryNetwork` carries from step to step."""

    h: Tensor
    """The states of the memories, ``(depth, B, n)``."""
    total: Tensor
    """The sum of the top block's outputs so far, ``(B, width)``."""
    steps: int


class MemoryNetwork(nn.Module):
    """A whole network: a linear map to ``width``, ``depth`` blocks, and a linear head on what they give.

    Args:
        input_size, output_size: m and p.
        width, hidden_size, expand, dropout, start, backend: as :class:`MemoryBlock`.
        depth: how many blocks.
        read: ``all`` steps, the ``last`` one, or the ``mean`` over the steps.

    Example:
        >>> network = MemoryNetwork(1, 10, width=8, hidden_size=16, depth=2, read="mean")
        >>> network(torch.randn(20, 3, 1)).shape
        torch.Size([3, 10])
    """

    def __init__(
        self,
        input_size: int,
        output_size: int,
        *,
        width: int,
        hidden_size: int,
        depth: int = 2,
        read: Literal["all", "last", "mean"] = "last",
        expand: int = 2,
        dropout: float = 0.0,
        start: str = "uniform",
        backend: str = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_sizes(input_size=input_size, output_size=output_size, depth=depth)
        self.read = check_choice("read", read, ("all", "last", "mean"))
        self.enter = nn.Linear(input_size, width, device=device, dtype=dtype)
        self.blocks = nn.ModuleList(
            MemoryBlock(
                width,
                hidden_size,
                expand=expand,
                dropout=dropout,
                start=start,
                backend=backend,
                device=device,
                dtype=dtype,
            )
            for _ in range(depth)
        )
        self.norm = nn.LayerNorm(width, device=device, dtype=dtype)
        self.head = nn.Linear(width, output_size, device=device, dtype=dtype)

    def forward(self, inputs: Tensor, lengths: Tensor | None = None) -> Tensor:
        """``inputs (T, B, m)``, with padding after ``lengths`` steps where they are given.

        Returns ``(T, B, p)``, zero in the padding, or ``(B, p)``. What stands in the padding reaches nothing.
        """
        if lengths is not None:
            lengths = lengths.to(inputs.device)
            padding = (torch.arange(len(inputs), device=inputs.device).unsqueeze(1) >= lengths).unsqueeze(-1)
            inputs = inputs.masked_fill(padding, 0)
        x = self.enter(inputs)
        alone = self.read == "last" and lengths is None
        for k, block in enumerate(self.blocks):
            x, _ = block(x, last=alone and k == len(self.blocks) - 1)
        if alone:
            return self._head(x)
        if lengths is None:
            return self._head(x) if self.read == "all" else self._head(x.mean(0))
        if self.read == "last":
            return self._head(x[lengths - 1, torch.arange(x.shape[1], device=x.device)])
        if self.read == "all":
            return self._head(x).masked_fill(padding, 0)
        return self._head(x.masked_fill(padding, 0).sum(0) / lengths.unsqueeze(-1))

    def stream(self, inputs: Tensor, state: StreamState | None = None) -> tuple[Tensor, StreamState]:
        """Steps ``(T, B, m)`` that follow those of ``state``: what would be read at each, ``(T, B, p)``, and the state.

        Example:
            >>> network, x = MemoryNetwork(2, 3, width=4, hidden_size=6, read="mean"), torch.randn(9, 1, 2)
            >>> first, state = network.stream(x[:5])
            >>> second, state = network.stream(x[5:], state)
            >>> torch.allclose(second[-1], network(x), atol=1e-5)
            True
        """
        x = self.enter(inputs)
        last = []
        for k, block in enumerate(self.blocks):
            x, h_n = block(x, None if state is None else state.h[k])
            last.append(h_n)
        total, steps = (torch.zeros_like(x[0]), 0) if state is None else (state.total, state.steps)
        sums = total + x.cumsum(0)
        if self.read == "mean":
            x = sums / torch.arange(steps + 1, steps + len(x) + 1, device=x.device).view(-1, 1, 1)
        return self._head(x), StreamState(torch.stack(last), sums[-1], steps + len(inputs))

    def _head(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(self.norm(x))
        return y
