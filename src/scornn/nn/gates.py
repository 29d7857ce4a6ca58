"""What LSTM and GRU share: torch's parameters, their start, and torch's own loop, one layer and direction at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from scornn.nn.checks import full_precision
from scornn.nn.layer import RecurrentLayer
from scornn.ops import native


class GatedLayer(RecurrentLayer):
    """A layer with the parameters of torch.nn.LSTM or GRU, their gates one above the other.

    torch keeps two bias vectors where one is enough: the second, ``bias_hh``, stays zero and is not trained.
    """

    BACKENDS: ClassVar[tuple[str, ...]] = ("auto", "native", "naive")
    backend: str = "auto"
    gates: int
    forget_bias: float
    proj_size: int = 0

    def make_parameters(
        self, suffix: str, input_size: int, device: torch.device | str | None, dtype: torch.dtype | None
    ) -> None:
        rows = self.gates * self.hidden_size
        shapes: dict[str, tuple[int, ...]] = {"weight_ih": (rows, input_size), "weight_hh": (rows, self.state_size)}
        if self.bias:
            shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)}
        if self.proj_size:
            shapes["weight_hr"] = (self.proj_size, self.hidden_size)
        for name, shape in shapes.items():
            made = nn.Parameter(torch.empty(shape, device=device, dtype=dtype), requires_grad=name != "bias_hh")
            self.register_parameter(f"{name}{suffix}", made)

    @torch.no_grad()
    def reset(self, suffix: str) -> None:
        """Glorot-uniform over input and state together; ``forget_bias`` in the second gate."""
        n, U = self.hidden_size, self.tensor(f"weight_ih{suffix}")
        limit = (6 / (U.shape[1] + n + U.shape[0])) ** 0.5
        U.uniform_(-limit, limit)
        self.tensor(f"weight_hh{suffix}").uniform_(-limit, limit)
        if self.bias:
            self.tensor(f"bias_ih{suffix}").zero_()[n : 2 * n] = self.forget_bias
            self.tensor(f"bias_hh{suffix}").zero_()
        if self.proj_size:
            nn.init.xavier_uniform_(self.tensor(f"weight_hr{suffix}"))

    def loop(
        self,
        function: Callable[..., tuple[Tensor, ...]],
        suffix: str,
        x: Tensor,
        h0: Any,
        batch_sizes: Tensor | None,
        reverse: bool,
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """torch's own loop, ``torch._VF.lstm`` or ``gru``; arguments as :meth:`run`."""
        names = ["weight_ih", "weight_hh"] + ["bias_ih", "bias_hh"] * self.bias + ["weight_hr"] * bool(self.proj_size)
        weights = [self.tensor(f"{name}{suffix}") for name in names]
        state = tuple(h.unsqueeze(0) for h in h0) if isinstance(h0, tuple) else h0.unsqueeze(0)
        order = reversal(batch_sizes) if reverse and batch_sizes is not None else None
        settings = (self.bias, 1, 0.0, self.training, False)
        with full_precision(x):
            if batch_sizes is None:
                output, *last = function(x.flip(0) if reverse else x, state, weights, *settings, False)
                return output.flip(0) if reverse else output, tuple(h.squeeze(0) for h in last)
            output, *last = function(x if order is None else x[order], batch_sizes, state, weights, *settings)
            return output if order is None else output[order], tuple(h.squeeze(0) for h in last)

    def runs_on_kernel(self, x: Tensor) -> bool:
        """Whether the kernel, and not torch's loop, runs an input such as x."""
        if self.backend == "naive":
            return False
        why_not = "it has no projections (proj_size)" if self.proj_size else native.RUNG.why_not(x)
        if why_not is not None and self.backend == "native":
            raise RuntimeError(f'backend="native" cannot run: {why_not}')
        return why_not is None

    def slow_when_packed(self, x: Tensor) -> bool:
        return not self.bidirectional and not self.runs_on_kernel(x)

    def extra_repr(self) -> str:
        return super().extra_repr() + (f", proj_size={self.proj_size}" if self.proj_size else "")


def reversal(batch_sizes: Tensor) -> Tensor:
    """The order of packed rows in which each sequence runs backwards.

    Example:
        >>> reversal(torch.tensor([2, 1, 1]))  # rows 0, 2, 3 are one sequence, row 1 is another
        tensor([3, 1, 2, 0])
    """
    steps = torch.arange(len(batch_sizes)).repeat_interleave(batch_sizes)
    first = batch_sizes.cumsum(0) - batch_sizes
    sample = torch.arange(len(steps)) - first[steps]
    lengths = (batch_sizes.unsqueeze(1) > torch.arange(int(batch_sizes[0]))).sum(0)
    return first[lengths[sample] - 1 - steps] + sample
