"""What every recurrent layer shares: torch.nn.RNN's contract, written once.

A model family says how one layer in one direction runs (:meth:`RecurrentLayer.run`); stacking, directions,
dropout, packed and unbatched input, and the checks of sizes are here. Most models are a recurrent matrix made
from free parameters; they derive from :class:`DenseRecurrentLayer` and only say what W, U and b are.
"""

from __future__ import annotations

import warnings
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from scornn import ops
from scornn.functional import orthogonality_error

Head = tuple[Tensor, Tensor]
"""V and c of a linear head on the states."""


class RecurrentLayer(nn.Module):
    """A stack of recurrent layers with the constructor, shapes and errors of :class:`torch.nn.RNN`.

    Derived classes register their parameters in :meth:`make_parameters`, once for each suffix ``_l{k}`` and
    ``_l{k}_reverse``, fill them in :meth:`reset_parameters`, and run them in :meth:`run`. Their constructors call
    this one, set what is their own, and end with :meth:`build`.
    """

    units_per_state: int = 1
    """Reals that one hidden unit takes in the state: 2 for complex models, stored as adjacent (Re, Im)."""

    learn_h0: bool = False
    """Whether the state before the first step is a parameter ``h0{suffix}``; zero otherwise."""

    averages: bool = True
    """Whether an average of its parameters over training means anything."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
    ) -> None:
        super().__init__()
        check_sizes(input_size=input_size, hidden_size=hidden_size, num_layers=num_layers)
        if isinstance(dropout, bool) or not isinstance(dropout, (int, float)) or not 0 <= dropout <= 1:
            raise ValueError(
                "dropout should be a number in range [0, 1] representing the probability of an element being zeroed; "
                f"got {dropout!r}"
            )
        if dropout > 0 and num_layers == 1:
            warnings.warn(
                "dropout option adds dropout after all but last recurrent layer, so non-zero dropout expects "
                f"num_layers greater than 1, but got dropout={dropout} and num_layers={num_layers}",
                stacklevel=3,
            )
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional

    def build(self, device: torch.device | str | None, dtype: torch.dtype | None) -> None:
        """Make and fill the parameters of every layer and direction: the last line of a derived constructor."""
        for layer in range(self.num_layers):
            size = self.input_size if layer == 0 else self.output_size
            for suffix in self._suffixes(layer):
                self.make_parameters(suffix, size, device, dtype)
                if self.learn_h0:
                    h0 = torch.empty(self.state_size, device=device, dtype=dtype)
                    self.register_parameter(f"h0{suffix}", nn.Parameter(h0))
        self.reset_parameters()

    def make_parameters(
        self, suffix: str, input_size: int, device: torch.device | str | None, dtype: torch.dtype | None
    ) -> None:
        """Register the parameters of one layer in one direction."""
        raise NotImplementedError

    def reset_parameters(self) -> None:
        """Draw fresh parameters from the global random generator."""
        for suffix in self.suffixes():
            self.reset(suffix)

    def reset(self, suffix: str) -> None:
        """Draw the parameters of one layer in one direction."""
        raise NotImplementedError

    def run(
        self, suffix: str, x: Tensor, h0: Tensor, batch_sizes: Tensor | None, reverse: bool
    ) -> tuple[Tensor, Tensor]:
        """One layer in one direction; arguments and result as :func:`scornn.ops.recurrence`."""
        raise NotImplementedError

    def run_and_read(
        self, suffix: str, x: Tensor, h0: Tensor, batch_sizes: Tensor | None, reverse: bool, head: Head
    ) -> tuple[Tensor, Tensor]:
        """As :meth:`run`, with a linear head on every state; arguments and result as :func:`scornn.ops.readout`."""
        output, h_n = self.run(suffix, x, h0, batch_sizes, reverse)
        return F.linear(self.readout(output), *head), h_n

    def run_last(self, suffix: str, x: Tensor, h0: Tensor, batch_sizes: Tensor | None, reverse: bool) -> Tensor:
        """The last state alone, ``(B, state_size)``; arguments as :meth:`run`."""
        return self.run(suffix, x, h0, batch_sizes, reverse)[1]

    def tensor(self, name: str) -> Tensor:
        """A parameter or buffer, or what stands in its place (``torch.func.functional_call``)."""
        value: Tensor = getattr(self, name)
        return value

    def initial_state(self, suffix: str, batch: int, like: Tensor) -> Tensor:
        """The state ``(batch, state_size)`` before the first step, where the caller gives none: learned, or zero."""
        if self.learn_h0:
            return self.tensor(f"h0{suffix}").expand(batch, -1)
        return like.new_zeros(batch, self.state_size)

    def recurrent_parameter_names(self) -> list[str]:
        """Names of the parameters that make the recurrent matrix, for :func:`scornn.optim.parameter_groups`."""
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

    def readout(self, h: Tensor) -> Tensor:
        """What a head reads of states ``(…, output_size)``: all of it, ``(…, readout_size)``."""
        return h

    @property
    def readout_size(self) -> int:
        return self.output_size

    @property
    def state_size(self) -> int:
        """Reals in one direction's state."""
        return self.hidden_size * self.units_per_state

    @property
    def num_directions(self) -> int:
        return 2 if self.bidirectional else 1

    @property
    def output_size(self) -> int:
        """Size of the last dimension of the output."""
        return self.state_size * self.num_directions

    def suffixes(self) -> list[str]:
        """The parameter suffix of every layer and direction, in the order of ``h_n``."""
        return [suffix for layer in range(self.num_layers) for suffix in self._suffixes(layer)]

    def _suffixes(self, layer: int) -> list[str]:
        return [f"_l{layer}", f"_l{layer}_reverse"][: self.num_directions]

    def forward(
        self,
        input: Tensor | PackedSequence,
        hx: Tensor | None = None,
        *,
        head: Head | None = None,
        need_output: bool = True,
    ) -> tuple[Any, Tensor]:
        """As torch.nn.RNN. With a ``head`` (V, c) the first result is V·readout(h_t) + c in place of the states h_t.

        With ``need_output=False`` it is None.
        """
        if isinstance(input, PackedSequence):
            return self._forward_packed(input, hx, head, need_output)
        if input.dim() not in (2, 3):
            raise ValueError(f"{self._name}: Expected input to be 2D or 3D, got {input.dim()}D tensor instead")
        batched = input.dim() == 3
        if hx is not None and hx.dim() != input.dim():
            kind = "batched 3-D" if batched else "unbatched 2-D"
            raise RuntimeError(f"For {kind} input, hx should also be {input.dim()}-D but got {hx.dim()}-D tensor")
        x = input if batched else input.unsqueeze(1)
        if batched and self.batch_first:
            x = x.transpose(0, 1)
        if hx is not None and not batched:
            hx = hx.unsqueeze(1)
        output, h_n = self._stack(x, hx, x.shape[1], None, head, need_output)
        if output is None:
            return None, h_n if batched else h_n.squeeze(1)
        if not batched:
            return output.squeeze(1), h_n.squeeze(1)
        return output.transpose(0, 1) if self.batch_first else output, h_n

    def _forward_packed(
        self, input: PackedSequence, hx: Tensor | None, head: Head | None, need_output: bool
    ) -> tuple[PackedSequence | None, Tensor]:
        data, batch_sizes, sorted_indices, unsorted_indices = input
        if hx is not None:
            if hx.dim() != 3:
                raise RuntimeError(f"For packed input, hx should be 3-D but got {hx.dim()}-D tensor")
            if sorted_indices is not None:
                hx = hx.index_select(1, sorted_indices)
        output, h_n = self._stack(data, hx, int(batch_sizes[0]), batch_sizes, head, need_output)
        if unsorted_indices is not None:
            h_n = h_n.index_select(1, unsorted_indices)
        if output is None:
            return None, h_n
        return PackedSequence(output, batch_sizes, sorted_indices, unsorted_indices), h_n

    def _stack(
        self,
        x: Tensor,
        hx: Tensor | None,
        batch: int,
        batch_sizes: Tensor | None,
        head: Head | None,
        need_output: bool,
    ) -> tuple[Tensor | None, Tensor]:
        x, hx = self._check_input(x, hx, batch)
        last_states = []
        for layer in range(self.num_layers):
            outputs = []
            for direction, suffix in enumerate(self._suffixes(layer)):
                index = layer * self.num_directions + direction
                h0 = self.initial_state(suffix, batch, x) if hx is None else hx[index]
                if not need_output and layer == self.num_layers - 1:
                    last_states.append(self.run_last(suffix, x, h0, batch_sizes, reverse=direction == 1))
                    continue
                if head is not None and not self.bidirectional and layer == self.num_layers - 1:
                    output, h_n = self.run_and_read(suffix, x, h0, batch_sizes, False, head)
                else:
                    output, h_n = self.run(suffix, x, h0, batch_sizes, reverse=direction == 1)
                outputs.append(output)
                last_states.append(h_n)
            if not outputs:
                return None, torch.stack(last_states)
            x = outputs[0] if len(outputs) == 1 else torch.cat(outputs, -1)
            if self.dropout and layer < self.num_layers - 1:
                x = F.dropout(x, self.dropout, self.training)
        if head is not None and self.bidirectional:
            x = F.linear(self.readout(x), *head)
        return x, torch.stack(last_states)

    def _check_input(self, x: Tensor, hx: Tensor | None, batch: int) -> tuple[Tensor, Tensor | None]:
        weight = next(self.parameters())
        if x.dtype != weight.dtype:
            if not torch.is_autocast_enabled(x.device.type):
                raise ValueError(
                    f"{self._name}: input dtype ({x.dtype}) does not match weight dtype ({weight.dtype}). "
                    f"Convert input: input.to({weight.dtype}), or convert model: model.to({x.dtype})"
                )
            # Under autocast the recurrence stays in the weights' precision: a product of a thousand rounded
            # orthogonal matrices is not orthogonal.
            x = x.to(weight.dtype)
        if x.device != weight.device:
            raise RuntimeError(
                f"{self._name}: input is on {x.device}, but the weights are on {weight.device}; move one of them"
            )
        if x.shape[-1] != self.input_size:
            raise RuntimeError(
                f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got {x.shape[-1]}"
            )
        if x.shape[0] == 0:
            raise RuntimeError(f"Expected sequence length to be larger than 0 in {self._name}")
        if hx is None:
            return x, None
        expected = (self.num_layers * self.num_directions, batch, self.state_size)
        if tuple(hx.shape) != expected:
            raise RuntimeError(f"Expected hidden size {expected}, got {list(hx.shape)}")
        if hx.dtype != x.dtype and not torch.is_autocast_enabled(x.device.type):
            raise ValueError(f"{self._name}: hx is {hx.dtype}, but input is {x.dtype}; convert one of them")
        if hx.device != x.device:
            raise RuntimeError(f"{self._name}: hx is on {hx.device}, but input is on {x.device}; move one of them")
        return x, hx.to(x.dtype)

    @property
    def _name(self) -> str:
        return type(self).__name__

    def extra_repr(self) -> str:
        parts = [f"{self.input_size}, {self.hidden_size}"]
        defaults = {
            "num_layers": 1,
            "bias": True,
            "batch_first": False,
            "dropout": 0.0,
            "bidirectional": False,
        }
        parts += [f"{key}={getattr(self, key)}" for key, value in defaults.items() if getattr(self, key) != value]
        return ", ".join(parts)


class DenseRecurrentLayer(RecurrentLayer):
    """A layer whose recurrence is one dense real matrix: h_t = act(U x_t + W h_{t−1}), on the sequence operator.

    A model says which numbers make W (:meth:`recurrent_shapes`), how they start (:meth:`reset`), and what W they make
    (:meth:`recurrent_matrix`). ``weight_hh{suffix}`` gives W.
    """

    activation: str
    backend: str = "auto"

    def recurrent_shapes(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of each parameter that makes W."""
        raise NotImplementedError

    def make_parameters(
        self, suffix: str, input_size: int, device: torch.device | str | None, dtype: torch.dtype | None
    ) -> None:
        shapes = {"weight_ih": (self.state_size, input_size), **self.recurrent_shapes()}
        if self.bias:
            shapes["bias"] = (self.hidden_size,)
        for name, shape in shapes.items():
            parameter = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
            self.register_parameter(f"{name}{suffix}", parameter)

    def recurrent_parameter_names(self) -> list[str]:
        return [f"{name}{suffix}" for suffix in self.suffixes() for name in self.recurrent_shapes()]

    def recurrent_bias_names(self) -> list[str]:
        """Names of the biases inside the recurrence, which may learn at a rate of their own."""
        return [f"bias{suffix}" for suffix in self.suffixes()] if self.bias else []

    def __getattr__(self, name: str) -> Any:
        made = name.startswith("weight_hh_") and (suffix := name.removeprefix("weight_hh")) in self.suffixes()
        if made and "weight_hh" not in self.recurrent_shapes():
            return self.recurrent_matrix(suffix)
        return super().__getattr__(name)

    def recurrent_matrix(self, suffix: str) -> Tensor:
        """W ``(state_size, state_size)``, differentiable with respect to the free parameters."""
        raise NotImplementedError

    def input_matrix(self, suffix: str) -> Tensor:
        """U ``(state_size, input_size)``."""
        weight: Tensor = getattr(self, f"weight_ih{suffix}")
        return weight

    def bias_vector(self, suffix: str) -> Tensor | None:
        bias: Tensor | None = getattr(self, f"bias{suffix}") if self.bias else None
        return bias

    def run(
        self, suffix: str, x: Tensor, h0: Tensor, batch_sizes: Tensor | None, reverse: bool
    ) -> tuple[Tensor, Tensor]:
        weights, settings = self._operands(suffix, x), self._settings_of(batch_sizes, reverse)
        return ops.recurrence(x, h0, *weights, **settings)

    def run_and_read(
        self, suffix: str, x: Tensor, h0: Tensor, batch_sizes: Tensor | None, reverse: bool, head: Head
    ) -> tuple[Tensor, Tensor]:
        if not self.reads_in_one_pass():
            return super().run_and_read(suffix, x, h0, batch_sizes, reverse, head)
        weights, settings = self._operands(suffix, x), self._settings_of(batch_sizes, reverse)
        return ops.readout(x, h0, *weights, *head, **settings)

    def reads_in_one_pass(self) -> bool:
        """Whether :meth:`run` is the sequence operator, and a head reads the states as they are."""
        return True

    def _settings_of(self, batch_sizes: Tensor | None, reverse: bool) -> dict[str, Any]:
        order = {"batch_sizes": batch_sizes, "reverse": reverse}
        return {"activation": self.activation, "backend": self.backend, **order}

    def _operands(self, suffix: str, x: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        with full_precision(x):
            W = self.recurrent_matrix(suffix)
        return W, self.input_matrix(suffix), self.bias_vector(suffix)


class OrthogonalRecurrentLayer(DenseRecurrentLayer):
    """A dense layer whose W is orthogonal (unitary, in its real form) by construction."""

    @torch.no_grad()
    def orthogonality_error(self) -> float | None:
        return max(float(orthogonality_error(self.recurrent_matrix(suffix))) for suffix in self.suffixes())


def full_precision(x: Tensor) -> AbstractContextManager[Any]:
    """No autocast: a recurrent matrix made in half precision is not orthogonal."""
    device = x.device.type
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext()


def precise(v: Tensor) -> Tensor:
    """``v`` in the precision in which W is made: float32 or better."""
    return v.float() if v.dtype in (torch.bfloat16, torch.float16) else v


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise ValueError(f"unknown {name} {value!r}; expected one of {', '.join(map(repr, choices))}")
    return value


def check_sizes(**sizes: int) -> None:
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, int):
            raise TypeError(f"{name} should be of type int, got: {type(size).__name__}")
        if size <= 0:
            raise ValueError(f"{name} must be greater than zero, got {size}")
