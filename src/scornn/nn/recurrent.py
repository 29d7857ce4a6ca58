"""What layers and cells share: their parameters, and what training must know of them."""

from __future__ import annotations

from itertools import chain
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from scornn.nn.checks import is_sharded
from scornn.ops import BACKENDS
from scornn.ops.layout import States


class Recurrent(nn.Module):
    """What layers and cells are to the program: parameters under suffixes, and what training must know of them."""

    BACKENDS: ClassVar[tuple[str, ...]] = BACKENDS
    """What ``backend`` can be."""

    backend: str = "auto"
    hidden_size: int
    bias: bool

    units_per_state: int = 1
    """Reals that one hidden unit takes in the state: 2 for complex models, stored as adjacent (Re, Im)."""

    learn_h0: bool = False
    """Whether the state before the first step is a parameter ``h0{suffix}``; zero otherwise."""

    averages: bool = True
    """Whether an average of its parameters over training means anything."""

    signs: tuple[str, ...] = ()
    """Names, without suffix, of the buffers that hold 1 and −1 alone, and that training does not change."""

    def suffixes(self) -> list[str]:
        """What the names of the parameters of each recurrence in it end with."""
        raise NotImplementedError

    def parameter_shapes(self, input_size: int) -> dict[str, tuple[int, ...]]:
        """Name, without suffix, and shape of every parameter of one layer in one direction."""
        raise NotImplementedError

    def buffer_shapes(self) -> dict[str, tuple[int, ...]]:
        """Of every buffer."""
        return {}

    def make_parameters(
        self, suffix: str, input_size: int, device: torch.device | str | None, dtype: torch.dtype | None
    ) -> None:
        """Register the parameters and buffers of one layer in one direction."""
        for name, shape in self.parameter_shapes(input_size).items():
            self.register_parameter(f"{name}{suffix}", nn.Parameter(torch.empty(shape, device=device, dtype=dtype)))
        for name, shape in self.buffer_shapes().items():
            self.register_buffer(f"{name}{suffix}", torch.empty(shape, device=device, dtype=dtype))

    def tensor(self, name: str) -> Tensor:
        """A parameter or buffer, or what stands in its place (``torch.func.functional_call``).

        After ``fully_shard`` it is gathered from all processes, which have to ask for it together.
        """
        value: Tensor = getattr(self, name)
        if type(value) in (Tensor, nn.Parameter) or torch.compiler.is_compiling() or not is_sharded(value):
            return value
        return value.full_tensor()  # type: ignore[attr-defined]

    @property
    def like(self) -> Tensor:
        """One of its numbers, for their dtype and device."""
        return next(chain(self.parameters(), self.buffers()))

    @property
    def state_size(self) -> int:
        """Reals in one direction's h."""
        return self.hidden_size * self.units_per_state

    def state_sizes(self) -> tuple[int, ...]:
        """Reals in each tensor of one direction's state."""
        return (self.state_size,)

    def initial_state(self, suffix: str, batch: int, like: Tensor) -> Any:
        """The state ``(batch, state_size)`` before the first step, where the caller gives none: learned, or zero."""
        if self.learn_h0:
            return self.tensor(f"h0{suffix}").expand(batch, -1)
        return joined(tuple(like.new_zeros(batch, size) for size in self.state_sizes()))

    def flatten_parameters(self) -> None:
        """Nothing: for programs that were written for torch.nn.RNN."""

    @property
    def all_weights(self) -> list[list[nn.Parameter]]:
        """The parameters of each layer and direction, as torch.nn.RNN's."""
        named = list(self.named_parameters(recurse=False))
        return [[p for name, p in named if name.endswith(suffix)] for suffix in self.suffixes()]

    def recurrent_parameter_names(self) -> list[str]:
        """Names of the parameters that make the recurrent matrix, for :func:`scornn.optim.parameter_groups`."""
        return []

    def recurrent_bias_names(self) -> list[str]:
        """Names of the biases inside the recurrence that may learn at a rate of their own."""
        return []

    def orthogonality_error(self) -> float | None:
        """Largest ‖WᵀW − I‖_F over layers and directions; None where W is not constrained."""
        return None

    def penalty(self) -> Tensor | None:
        """What the training loss should add for this layer, or None."""
        return None

    def constraints(self) -> int:
        """How many of the trained numbers a constraint takes away: their count less this is the paper's count."""
        return 0

    def retract_(self) -> None:
        """Put parameters that were averaged back to where they belong; nothing to do where every number is free."""


def joined(states: States) -> Any:
    """A state as callers see it: the tensor alone where there is one."""
    return states[0] if len(states) == 1 else states
