"""A network frame by frame: the operations that one frame goes through, for streams and for a file in C.

A network that reads in one direction is a list of operations on named arrays. :class:`scornn.nn.stream.Stream` runs the
list in the kernel or in NumPy, and the program's ``export --to c`` prints it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from scornn.nn.frozen import FrozenLayer, Recurrence, plain_head
from scornn.nn.layer import RecurrentLayer
from scornn.nn.memory_block import MemoryBlock, MemoryBlocks
from scornn.nn.model import SequenceModel

INPUT, OUTPUT = 0, 1
"""The arrays of the frame that comes in and of what goes out."""


@dataclass(frozen=True)
class Array:
    """Numbers that an operation reads or writes. What has a start keeps its numbers from frame to frame."""

    name: str
    size: int
    start: Tensor | None = None


@dataclass(frozen=True)
class Operation:
    """One operation; ``csrc/scornn.h`` says what each kind does.

    ``x`` and ``y`` are numbers of arrays, ``weights`` named constants.
    """

    kind: str
    y: int
    x: tuple[int, ...] = ()
    n: int = 1
    m: int = 0
    weights: tuple[tuple[str, Tensor] | None, ...] = ()
    cell: str = ""
    number: float = 0.0


@dataclass
class Frames:
    """A network as a list of operations.

    Args:
        network: a layer, or a layer with a head. Both as they are now: the weights are copied.

    Example:
        >>> from scornn.nn import ScoRNN, SequenceModel
        >>> [operation.kind for operation in Frames(SequenceModel(ScoRNN(3, 8), 2)).operations]
        ['multiply', 'multiply', 'activate', 'multiply']
    """

    network: RecurrentLayer | SequenceModel
    arrays: list[Array] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)

    @torch.no_grad()
    def __post_init__(self) -> None:
        model = self.network if isinstance(self.network, SequenceModel) else None
        layer = self.layer
        if layer.bidirectional:
            name = type(layer).__name__
            raise TypeError(
                f"a bidirectional {name} has no form for single frames: its first output needs the last frame"
            )
        head = [] if model is None else [part for part in plain_head(model.head) if isinstance(part, nn.Linear)]
        self.array("in", layer.input_size)
        self.array("out", head[-1].out_features if head else layer.output_size)
        x = self._layers(layer)
        if model is None:
            self.add("pick", self.outputs, OUTPUT, (x,), m=1)
        else:
            self._head(model.read, head, x)

    @property
    def layer(self) -> RecurrentLayer:
        """The layer, with a head or without."""
        return self.network.layer if isinstance(self.network, SequenceModel) else self.network

    @property
    def inputs(self) -> int:
        return self.arrays[INPUT].size

    @property
    def outputs(self) -> int:
        return self.arrays[OUTPUT].size

    @property
    def dtype(self) -> torch.dtype:
        dtype: torch.dtype = self.layer.like.dtype
        return dtype

    def array(self, name: str, size: int, start: Tensor | None = None) -> int:
        """Add an array; return its number."""
        self.arrays.append(Array(name, size, start))
        return len(self.arrays) - 1

    def add(
        self,
        kind: str,
        n: int,
        y: int | str,
        x: tuple[int, ...] = (),
        *,
        m: int = 0,
        weights: tuple[tuple[str, Tensor] | None, ...] = (),
        cell: str = "",
        number: float = 0.0,
    ) -> int:
        """Add an operation; ``y`` is an array, or the name of a new one. Returns its number."""
        to = self.array(y, n) if isinstance(y, str) else y
        self.operations.append(Operation(kind, to, x, n, m, weights, cell, number))
        return to

    def multiply(self, y: int | str, name: str, W: Tensor, b: Tensor | None, x: int) -> int:
        weights = ((name, W), None if b is None else (f"{name}_bias", b))
        return self.add("multiply", W.shape[0], y, (x,), m=W.shape[1], weights=weights)

    def _layers(self, layer: RecurrentLayer) -> int:
        x = INPUT
        if isinstance(layer, MemoryBlocks):
            for k, suffix in enumerate(layer.suffixes()):
                x = self._block(k, layer.block(suffix), x)
            return x
        frozen = layer.frozen() if not isinstance(layer, FrozenLayer) else layer
        for k, suffix in enumerate(frozen.suffixes()):
            initial = frozen.initial_state(suffix, 1, frozen.like)
            states = [state[0] for state in (initial if isinstance(initial, tuple) else (initial,))]
            x = self._recurrence(k, frozen.recurrence(suffix), states, x)
        return x

    def _recurrence(self, k: int, of: Recurrence, initial: list[Tensor], x: int) -> int:
        """One layer; returns the array of its state."""
        n, h = initial[0].numel(), self.array(f"h{k}", initial[0].numel(), initial[0])
        gated, own = of.kind in ("gru", "goru"), of.kind in ("modrelu", "complex_modrelu")
        u = self.multiply(f"u{k}", f"U{k}", of.U, None if gated or own else of.b, x)
        if of.kind == "bank":
            return self._turn(k, of.W, u, h)
        v = self.multiply(f"v{k}", f"W{k}", of.W, None, h)
        if of.kind == "lstm":
            c = self.array(f"c{k}", n, initial[1])
            return self.add("gates", n, h, (u, v, c), cell="lstm")
        if gated:
            b = of.U.new_zeros((4 if of.kind == "gru" else 3) * n) if of.b is None else of.b
            return self.add("gates", n, h, (u, v), weights=((f"b{k}", b),), cell=of.kind)
        own_bias = None
        if own and of.b is not None:
            own_bias = (f"b{k}", of.b.repeat_interleave(2) if of.kind == "complex_modrelu" else of.b)
        return self.add("activate", n, h, (u, v), weights=(own_bias,), cell=of.kind)

    def _turn(self, k: int, turn: Tensor, u: int, h: int) -> int:
        """R h + u, R in two parts: rounded once it is another rotation, and many steps would show it."""
        turn, dtype = turn.double(), self.dtype
        high = turn.to(dtype)
        R = torch.cat([high, (turn - high.double()).to(dtype)])
        return self.add("turn", turn.shape[1], h, (u,), weights=((f"R{k}", R),))

    def _block(self, k: int, of: MemoryBlock, x: int) -> int:
        """A memory block; returns the array of its output."""
        bank, inner, width = of.memory.matrix("_l0").parts(), of.out.in_features, of.out.out_features
        h = self.array(f"h{k}", bank.units, torch.zeros(bank.units))
        seen = self._norm(f"norm{k}", of.norm, x)
        u = self.multiply(f"u{k}", f"U{k}", of.memory.weight_ih_l0, None, seen)
        self._turn(k, bank.turn(), u, h)
        if of.stride > 1:
            self.add("every", 1, self.array("frame", 1, torch.zeros(1)), m=of.stride)
        state = self._norm(f"state_norm{k}", of.state_norm, h)
        a = self.multiply(f"a{k}", f"gates{k}", of.gates.weight, of.gates.bias, state)
        a_x = self.multiply(f"a_x{k}", f"gates_ih{k}", of.gates_ih.weight, None, seen)
        passed = self.add("gate", inner, f"passed{k}", (a, a_x))
        y = self.multiply(f"y{k}", f"out{k}", of.out.weight, of.out.bias, passed)
        if isinstance(of.enter, nn.Linear):
            x = self.multiply(f"entered{k}", f"enter{k}", of.enter.weight, None, x)
        self.add("add", width, y, (x,))
        return self._norm(f"top{k}", of.top, y)

    def _norm(self, name: str, of: nn.Module, x: int) -> int:
        if not isinstance(of, nn.LayerNorm):
            return x
        weights = ((f"{name}_weight", of.weight), (f"{name}_bias", of.bias))
        return self.add("norm", of.weight.numel(), f"{name}ed", (x,), weights=weights, number=of.eps)

    def _head(self, read: str, linears: list[nn.Linear], x: int) -> None:
        size, stride = self.layer.readout_size, self.layer.readout_stride
        if stride > 1:
            x = self.add("pick", size, "read", (x,), m=stride)
        if read == "mean":
            total, count = self.array("sum", size, torch.zeros(size)), self.array("count", 1, torch.zeros(1))
            x = self.add("mean", size, "mean", (x, total, count))
        for k, linear in enumerate(linears):
            last = k == len(linears) - 1
            x = self.multiply(OUTPUT if last else f"read{k}", f"V{k}", linear.weight, linear.bias, x)
            if not last:
                self.add("gelu", linear.out_features, x)
