"""What every recurrent layer shares: torch.nn.RNN's contract, stacks, directions, packed input, states, checks."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from scornn.functional import under_autocast
from scornn.matrices import cached
from scornn.matrices.base import Head
from scornn.matrices.checks import check_choice, check_sizes
from scornn.nn.recurrent import Recurrent
from scornn.ops import BACKENDS
from scornn.ops.layout import States
from scornn.ops.rung import check_batch_sizes

if TYPE_CHECKING:
    from scornn.nn.frozen import FrozenLayer

HELD = 2**25
"""Bytes of states that are held at a time where only the last one is wanted."""


class RecurrentLayer(Recurrent):
    """A stack of recurrent layers with the constructor, shapes and errors of :class:`torch.nn.RNN`.

    Derived classes name their parameters in :meth:`parameter_shapes`, made once for each suffix ``_l{k}`` and
    ``_l{k}_reverse``, fill them in :meth:`reset`, and run them in :meth:`run`. Their constructors call this one, set
    what is their own, and end with :meth:`build`. Where the recurrence is one matrix, take :class:`scornn.nn.RNN`.
    """

    BACKENDS: ClassVar[tuple[str, ...]] = BACKENDS
    """What ``backend`` can be."""

    backend: str = "auto"

    learn_h0: bool = False
    """Whether the state before the first step is a parameter ``h0{suffix}``; zero otherwise."""

    output_is_state: bool = True
    """Whether the output is the states of the top layer."""

    stride: int = 1
    """Steps to one of the output."""

    readout_stride: int = 1
    """A head reads every so-many-th number of a state."""

    kind: str | None = None
    """What runs at every step, one of :data:`scornn.ops.rung.CELLS`; None where it is no such."""

    runs_as_described: bool = True
    """Whether :meth:`run` is what :attr:`kind` says: not so where a class has one of its own, and no kind with it."""

    def __init_subclass__(cls, **others: Any) -> None:
        super().__init_subclass__(**others)
        kind, run = (next(k for k, base in enumerate(cls.__mro__) if name in vars(base)) for name in ("kind", "run"))
        cls.runs_as_described = kind <= run

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
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.bidirectional = bias, batch_first, bidirectional
        self.dropout = float(dropout)

    def build(self, device: torch.device | str | None, dtype: torch.dtype | None) -> None:
        """Make and fill the parameters of every layer and direction: the last line of a derived constructor."""
        if dtype is not None and not dtype.is_floating_point:
            raise TypeError(f"{self._name}: dtype must be a real floating point type, got {dtype}")
        check_choice("backend", self.backend, self.BACKENDS)
        for layer in range(self.num_layers):
            size = self.input_size if layer == 0 else self.output_size
            for suffix in self._suffixes(layer):
                self.make_parameters(suffix, size, device, dtype)
        self.reset_parameters()

    def parameter_shapes(self, input_size: int) -> dict[str, tuple[int, ...]]:
        """Name, without suffix, and shape of every parameter of one layer in one direction."""
        raise NotImplementedError

    def make_parameters(
        self, suffix: str, input_size: int, device: torch.device | str | None, dtype: torch.dtype | None
    ) -> None:
        """Register the parameters of one layer in one direction."""
        shapes = self.parameter_shapes(input_size) | ({"h0": (self.state_size,)} if self.learn_h0 else {})
        for name, shape in shapes.items():
            self.register_parameter(f"{name}{suffix}", nn.Parameter(torch.empty(shape, device=device, dtype=dtype)))

    def reset_parameters(self) -> None:
        """Draw fresh parameters from the global random generator."""
        for suffix in self.suffixes():
            self.reset(suffix)

    def reset(self, suffix: str) -> None:
        """Draw the parameters of one layer in one direction."""
        raise NotImplementedError

    def run(self, suffix: str, x: Tensor, h0: Any, batch_sizes: Tensor | None, reverse: bool) -> tuple[Tensor, Any]:
        """One layer in one direction; arguments and result as :func:`scornn.ops.recurrence`.

        ``h0`` and the last state are tensors, or tuples of them where :meth:`state_sizes` has more than one.
        """
        raise NotImplementedError

    def run_and_read(
        self, suffix: str, x: Tensor, h0: Any, batch_sizes: Tensor | None, reverse: bool, head: Head
    ) -> tuple[Tensor, Any]:
        """As :meth:`run`, with a linear head on every state; arguments and result as :func:`scornn.ops.readout`."""
        output, h_n = self.run(suffix, x, h0, batch_sizes, reverse)
        return F.linear(self.readout(output), *head), h_n

    def run_last(
        self, suffix: str, x: Tensor, h0: Any, batch_sizes: Tensor | None, reverse: bool
    ) -> tuple[Tensor, Any]:
        """As :meth:`run`, with the output of the last step alone, ``(B, ·)``."""
        h_n = self.run(suffix, x, h0, batch_sizes, reverse)[1]
        return h_n[0] if isinstance(h_n, tuple) else h_n, h_n

    def frozen(self, *, plain: bool = False) -> FrozenLayer:
        """A layer with the same forward whose weights are constants, W among them: for export and streaming.

        ``plain``: on torch's own operators rather than on scornn's.
        """
        from scornn.nn.frozen import FrozenLayer

        return FrozenLayer(self, plain=plain)

    def require_described(self, what: str) -> None:
        """Refuse ``what``, which is made from :attr:`kind` and weights, where they are not all that is computed."""
        if type(self).forward is not RecurrentLayer.forward or not self.runs_as_described:
            raise TypeError(f"{what}: it has a forward or a run of its own")

    def slow_when_packed(self, x: Tensor) -> bool:
        """Whether padded sequences run faster than packed ones, and what stands in the padding changes nothing."""
        return False

    def readout(self, h: Tensor) -> Tensor:
        """What a head reads of states ``(…, output_size)``: ``(…, readout_size)``."""
        return h if self.readout_stride == 1 else h[..., :: self.readout_stride]

    @property
    def readout_size(self) -> int:
        return self.output_size // self.readout_stride

    @property
    def num_directions(self) -> int:
        return 2 if self.bidirectional else 1

    @property
    def state_size(self) -> int:
        """Reals in one direction's h."""
        return self.hidden_size

    def state_sizes(self) -> tuple[int, ...]:
        """Reals in each tensor of one direction's state."""
        return (self.state_size,)

    @property
    def output_size(self) -> int:
        """Size of the last dimension of the output."""
        return self.state_size * self.num_directions

    def suffixes(self) -> list[str]:
        """The parameter suffix of every layer and direction, in the order of ``h_n``."""
        return [suffix for layer in range(self.num_layers) for suffix in self._suffixes(layer)]

    def _suffixes(self, layer: int) -> list[str]:
        return [f"_l{layer}", f"_l{layer}_reverse"][: self.num_directions]

    def initial_state(self, suffix: str, batch: int, like: Tensor) -> Any:
        """The state ``(batch, state_size)`` before the first step, where the caller gives none: learned, or zero."""
        if self.learn_h0:
            return getattr(self, f"h0{suffix}").expand(batch, -1)
        return joined(tuple(like.new_zeros(batch, size) for size in self.state_sizes()))

    def flatten_parameters(self) -> None:
        """Nothing: for programs that were written for torch.nn.RNN."""

    @property
    def all_weights(self) -> list[list[nn.Parameter]]:
        """The parameters of each layer and direction, as torch.nn.RNN's."""
        named = [(key, p) for key, p in self.state_dict(keep_vars=True).items() if isinstance(p, nn.Parameter)]
        return [[p for key, p in named if key.endswith(suffix)] for suffix in self.suffixes()]

    def forward(
        self,
        input: Tensor | PackedSequence,
        hx: Any = None,
        *,
        head: Head | None = None,
        need_output: bool | Literal["last"] = True,
    ) -> tuple[Any, Any]:
        """As torch.nn.RNN.

        Args:
            head: V and c; the first result is then V·readout(h_t) + c in place of the states h_t.
            need_output: False for the last state alone: the first result is then None. Where no gradient is recorded,
                at most :data:`HELD` bytes of them are held at a time. With ``"last"`` it is what each direction
                gives at its last step, ``(B, output_size)``.
        """
        if not (isinstance(need_output, bool) or need_output == "last"):
            raise ValueError(f'{self._name}: need_output must be True, False or "last", got {need_output!r}')
        if head is not None and need_output is not True:
            raise ValueError(f"{self._name}: a head reads every state, so it needs need_output=True")
        packed = isinstance(input, PackedSequence)
        x: Any
        x, batch_sizes, order, back = input if isinstance(input, PackedSequence) else (input, None, None, None)
        if not hasattr(x, "dim"):
            raise TypeError(f"{self._name}: input is a tensor or a PackedSequence, got {type(input).__name__}")
        if not packed and x.dim() not in (2, 3):
            raise ValueError(f"{self._name}: Expected input to be 2D or 3D, got {x.dim()}D tensor instead")
        kind = "packed" if packed else "batched 3-D" if x.dim() == 3 else "unbatched 2-D"
        batched = kind != "unbatched 2-D"
        states = None if hx is None else self._states(hx, kind)
        if not batched:
            x = x.unsqueeze(1)
        elif self.batch_first and not packed:
            x = x.transpose(0, 1)
        if batch_sizes is not None and not torch.compiler.is_compiling():  # a compiler has no numbers
            check_batch_sizes(batch_sizes, x.shape[0])
        batch = x.shape[1] if batch_sizes is None else int(batch_sizes[0])
        x, states = self._checked(x, states, batch)
        if order is not None and states is not None:
            states = each(states, lambda h: h.index_select(1, order))
        stack = self._stack if need_output is True else self._last
        output, last = stack(x, states, batch, batch_sizes, head)
        if back is not None:
            last = each(last, lambda h: h.index_select(1, back))
        if not batched:
            last = each(last, lambda h: h.squeeze(1))
        if need_output is False:
            return None, joined(last)
        if need_output == "last":
            output = output if back is None else output.index_select(0, back)
            return output if batched else output.squeeze(0), joined(last)
        if packed:
            return PackedSequence(output, batch_sizes, order, back), joined(last)
        if not batched:
            return output.squeeze(1), joined(last)
        return output.transpose(0, 1) if self.batch_first else output, joined(last)

    def _last(
        self, x: Tensor, states: States | None, batch: int, batch_sizes: Tensor | None, head: Head | None
    ) -> tuple[Tensor, States]:
        """What the top layer gives at the last step of each direction, and the last states.

        In pieces of :data:`HELD` bytes where nothing else needs the states.
        """
        whole = torch.is_grad_enabled() or torch.compiler.is_compiling() or self.bidirectional
        steps = x.shape[0] if batch_sizes is None else batch_sizes.shape[0]
        piece = max(1, HELD // max(1, batch * sum(self.state_sizes()) * x.element_size()))
        if whole or steps <= piece or type(self).run_last is not RecurrentLayer.run_last:
            return self._stack(x, states, batch, batch_sizes, None, only_last=True)
        with cached():
            for first in range(0, steps, piece):
                sizes = None if batch_sizes is None else batch_sizes[first : first + piece]
                rows = piece if sizes is None else int(sizes.sum())
                going = batch if sizes is None else int(sizes[0])  # packed sequences end from the last on
                running = None if states is None else each(states, lambda h, going=going: h[:, :going])
                _, last = self._stack(x[:rows], running, going, sizes, None)
                ended = None if states is None else each(states, lambda h, going=going: h[:, going:])
                states = last if ended is None else tuple(map(lambda *both: torch.cat(both, 1), last, ended))
                x = x[rows:]
        assert states is not None
        return states[0][-1], states

    def _states(self, hx: Any, kind: str) -> States:
        """The tensors of ``hx``, with a dimension for the batch."""
        given, count = hx if isinstance(hx, (tuple, list)) else (hx,), len(self.state_sizes())
        if len(given) != count or (count == 1) == isinstance(hx, (tuple, list)):
            found = f"a {type(hx).__name__} of {len(hx)}" if isinstance(hx, (tuple, list)) else "one tensor"
            raise RuntimeError(
                f"{self._name} has one hidden state: hx is a tensor, got {found}; of an LSTM's (h, c) give h alone"
                if count == 1
                else f"{self._name} has two hidden states: hx is the tuple (h, c), got {found}"
            )
        size, also = (2, "also ") if kind == "unbatched 2-D" else (3, "" if kind == "packed" else "also ")
        for h in given:
            if h.dim() != size:
                raise RuntimeError(f"For {kind} input, hx should {also}be {size}-D but got {h.dim()}-D tensor")
        return tuple(given) if size == 3 else each(tuple(given), lambda h: h.unsqueeze(1))

    def _stack(
        self,
        x: Tensor,
        states: States | None,
        batch: int,
        batch_sizes: Tensor | None,
        head: Head | None,
        only_last: bool = False,
    ) -> tuple[Tensor, States]:
        """The output of the top layer, of its last step alone if so wanted, and all last states."""
        last: list[States] = []
        for layer in range(self.num_layers):
            outputs, top = [], layer == self.num_layers - 1
            for direction, suffix in enumerate(self._suffixes(layer)):
                index = layer * self.num_directions + direction
                given = None if states is None else joined(each(states, lambda h, index=index: h[index]))
                h0 = self.initial_state(suffix, batch, x) if given is None else given
                if top and only_last:
                    output, h_n = self.run_last(suffix, x, h0, batch_sizes, direction == 1)
                elif top and head is not None and not self.bidirectional:
                    output, h_n = self.run_and_read(suffix, x, h0, batch_sizes, False, head)
                else:
                    output, h_n = self.run(suffix, x, h0, batch_sizes, direction == 1)
                outputs.append(output)
                last.append(h_n if isinstance(h_n, tuple) else (h_n,))
            x = outputs[0] if len(outputs) == 1 else torch.cat(outputs, -1)
            if self.dropout and not top:
                x = F.dropout(x, self.dropout, self.training)
        if head is not None and self.bidirectional:
            x = F.linear(self.readout(x), *head)
        return x, tuple(torch.stack(parts) for parts in zip(*last, strict=True))

    def _checked(self, x: Tensor, states: States | None, batch: int) -> tuple[Tensor, States | None]:
        weight = self.like
        if x.dtype != weight.dtype:
            if not under_autocast(x):
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
        if states is None:
            return x, None
        for h, size in zip(states, self.state_sizes(), strict=True):
            expected = (self.num_layers * self.num_directions, batch, size)
            if tuple(h.shape) != expected:
                raise RuntimeError(f"Expected hidden size {expected}, got {list(h.shape)}")
            if h.dtype != x.dtype and not under_autocast(x):
                raise ValueError(f"{self._name}: hx is {h.dtype}, but input is {x.dtype}; convert one of them")
            if h.device != x.device:
                raise RuntimeError(f"{self._name}: hx is on {h.device}, but input is on {x.device}; move one of them")
        return x, each(states, lambda h: h.to(x.dtype))

    @property
    def _name(self) -> str:
        return type(self).__name__

    def settings(self) -> dict[str, Any]:
        """What every layer's constructor takes, as this one was built."""
        names = ("input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional")
        return {name: getattr(self, name) for name in names}

    def extra_repr(self) -> str:
        parts = [f"{self.input_size}, {self.hidden_size}"]
        defaults = {"num_layers": 1, "bias": True, "batch_first": False, "dropout": 0.0, "bidirectional": False}
        parts += [f"{key}={getattr(self, key)}" for key, value in defaults.items() if getattr(self, key) != value]
        return ", ".join(parts)


def each(states: States, change: Callable[..., Tensor]) -> States:
    return tuple(change(h) for h in states)


def joined(states: States) -> Any:
    """A state as callers see it: the tensor alone where there is one."""
    return states[0] if len(states) == 1 else states
