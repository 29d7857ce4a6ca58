"""A network that takes frames as they come, without torch in their path."""

from __future__ import annotations

import ctypes
import math
from copy import copy
from typing import Any

import numpy as np
import torch

from scornn.nn.frames import INPUT, OUTPUT, Frames, Operation
from scornn.nn.layer import RecurrentLayer
from scornn.nn.model import SequenceModel
from scornn.ops import library
from scornn.ops.activations import ACTIVATIONS
from scornn.ops.rung import CELLS

_DTYPES = {torch.float32: np.float32, torch.float64: np.float64}


class Stream:
    """The forward of a network one frame or one block at a time.

    Calling it with a frame gives the output of that frame and keeps the state for the next one. Outputs are those of
    the network on the whole sequence. Of a network that reads the last state or the mean, each output is that of the
    sequence so far. The weights are copied: training the network afterwards does not change the stream.

    In the kernel a frame allocates nothing and takes no lock; without the kernel NumPy does the same.

    Args:
        network: a layer, or a :class:`SequenceModel`, in one direction, in float32 or float64.
        batch: how many sequences run beside one another.

    Shape:
        - one frame: ``(m,)`` to ``(p,)``, of several sequences ``(B, m)`` to ``(B, p)``
        - a block of k frames: ``(k, m)`` to ``(k, p)``, ``(k, B, m)`` to ``(k, B, p)``

    Example:
        >>> layer = scornn.ScoRNN(3, 8)
        >>> stream, x = Stream(layer), torch.randn(5, 3)
        >>> y = np.concatenate([stream(x[:2]), stream(x[2:])])
        >>> bool(np.allclose(y, layer(x)[0].detach(), atol=1e-6))
        True
    """

    def __init__(self, network: RecurrentLayer | SequenceModel, batch: int = 1) -> None:
        if batch < 1:
            raise ValueError(f"batch must be at least 1, got {batch}")
        frames = Frames(network)
        if frames.dtype not in _DTYPES:
            raise TypeError(f"a stream takes float32 or float64 weights, got {frames.dtype}; use network.float()")
        self.dtype = np.dtype(_DTYPES[frames.dtype])
        self.batch, self.inputs, self.outputs = batch, frames.inputs, frames.outputs
        kernel = library.load()
        self._run: Kernel | Plain = Plain(frames, batch) if isinstance(kernel, str) else Kernel(frames, batch, kernel)
        self._frame = (self.inputs,) if batch == 1 else (batch, self.inputs)

    def __call__(self, x: Any) -> np.ndarray[Any, Any]:
        """The outputs of a frame or of a block of frames, an array or a tensor."""
        x = np.ascontiguousarray(x.detach() if isinstance(x, torch.Tensor) else x, self.dtype)
        if x.shape == self._frame:
            made = self._run.step(1, x)
            return made[0] if len(made) else made
        if x.shape[1:] != self._frame or x.ndim != len(self._frame) + 1:
            raise ValueError(
                f"expected a frame of shape {self._frame} or a block of shape (k, {str(self._frame)[1:]}; got {x.shape}"
            )
        return self._run.step(len(x), x)

    def reset(self) -> None:
        """Begin a new sequence."""
        self._run.reset()

    def copy(self) -> Stream:
        """A second stream that goes on from where this one is."""
        other = copy(self)
        other._run = self._run.copy()
        return other


_KINDS = ("multiply", "activate", "gates", "turn", "norm", "gate", "add", "pick", "mean", "gelu", "every")
"""In the order of ``enum scornn_operation_kind``."""


def _struct(frames: Frames, batch: int, isa: int) -> tuple[library.NetworkStruct, list[Any]]:
    """The network for the kernel, and what has to live until it is prepared."""
    dtype = np.dtype(_DTYPES[frames.dtype])
    kept: list[Any] = []

    def address(tensor: torch.Tensor | None) -> int | None:
        if tensor is None:
            return None
        kept.append(_numpy(tensor, dtype))
        return int(kept[-1].ctypes.data)

    operations = (library.OperationStruct * len(frames.operations))()
    for to, o in zip(operations, frames.operations, strict=True):
        weights = [*(address(None if w is None else w[1]) for w in o.weights), None, None][:2]
        x = (*o.x, -1, -1, -1)[:3]
        cell = CELLS[o.cell].number if o.cell else 0
        to.kind, to.cell, to.n, to.m, to.number, to.y = _KINDS.index(o.kind), cell, o.n, o.m, o.number, o.y
        to.weights[:], to.x[:] = weights, x
    sizes = np.array([array.size for array in frames.arrays], np.int64)
    starts = (ctypes.c_void_p * len(frames.arrays))(*(address(array.start) for array in frames.arrays))
    kept += [sizes, starts, operations]
    struct = library.NetworkStruct(
        0 if dtype == np.float32 else 1,
        isa,
        batch,
        len(frames.arrays),
        len(frames.operations),
        sizes.ctypes.data,
        ctypes.addressof(starts),
        ctypes.addressof(operations),
    )
    return struct, kept


class Kernel:
    def __init__(self, frames: Frames, batch: int, kernel: library.Library) -> None:
        self.kernel, self.dtype = kernel, np.dtype(_DTYPES[frames.dtype])
        self.shape = (frames.outputs,) if batch == 1 else (batch, frames.outputs)
        network, kept = _struct(frames, batch, kernel.isa)
        size = kernel.prepare(ctypes.byref(network), None)
        if size < 0:
            raise RuntimeError("the kernel does not take this network")
        self._place(np.empty(size + 64, np.uint8))
        kernel.prepare(ctypes.byref(network), self.memory)
        del kept
        self._once = np.empty((1, *self.shape), self.dtype)
        self._once_at = self._once.ctypes.data

    def _place(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array
        self.memory = -(-array.ctypes.data // 64) * 64

    def step(self, frames: int, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        if frames == 1:
            count = self.kernel.step(self.memory, 1, x.__array_interface__["data"][0], self._once_at)
            return self._once[:count].copy()
        y = np.empty((frames, *self.shape), self.dtype)
        return y[: self.kernel.step(self.memory, frames, x.ctypes.data, y.ctypes.data)]

    def reset(self) -> None:
        self.kernel.reset(self.memory)

    def copy(self) -> Kernel:
        other, offset = copy(self), self.memory - self.array.ctypes.data
        other._place(np.empty_like(self.array))
        ctypes.memmove(other.memory, self.memory, len(self.array) - 64)
        assert offset >= 0
        other._once = self._once.copy()
        other._once_at = other._once.ctypes.data
        return other


class Plain:
    """The operations in NumPy."""

    def __init__(self, frames: Frames, batch: int) -> None:
        self.frames, self.batch, self.dtype = frames, batch, np.dtype(_DTYPES[frames.dtype])
        self.weights = [[None if w is None else _numpy(w[1], self.dtype) for w in o.weights] for o in frames.operations]
        self.reset()

    def reset(self) -> None:
        self.arrays = [
            np.zeros((self.batch, a.size), self.dtype)
            if a.start is None
            else np.tile(_numpy(a.start, self.dtype), (self.batch, 1))
            for a in self.frames.arrays
        ]

    def copy(self) -> Plain:
        other = copy(self)
        other.arrays = [array.copy() for array in self.arrays]
        return other

    def step(self, frames: int, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        made = []
        for frame in x.reshape(frames, self.batch, -1):
            self.arrays[INPUT] = frame
            if all(self._apply(o, w) for o, w in zip(self.frames.operations, self.weights, strict=True)):
                made.append(self.arrays[OUTPUT].copy())
        shape = (self.frames.outputs,) if self.batch == 1 else (self.batch, self.frames.outputs)
        return np.array(made, self.dtype).reshape(len(made), *shape)

    def _apply(self, o: Operation, weights: list[Any]) -> bool:
        """Whether the frame goes on."""
        x, y = [self.arrays[k] for k in o.x], self.arrays[o.y]
        match o.kind:
            case "multiply":
                A, b = weights
                y = x[0] @ A.T + (0 if b is None else b)
            case "activate":
                b = None if weights[0] is None else torch.from_numpy(weights[0])
                step = ACTIVATIONS[o.cell]
                y = step.value(torch.from_numpy(x[0] + x[1]), b if b is None else b[:: step.units_per_bias]).numpy()
            case "gates":
                y = self._gates(o, x, y, weights)
            case "turn":
                R = weights[0].reshape(4, -1)
                other = np.arange(o.n) ^ 1
                swapped = y[:, np.where(other < o.n, other, 0)]
                y = (R[2] * y + R[3] * swapped + x[0]) + (R[0] * y + R[1] * swapped)
            case "norm":
                centred = x[0] - x[0].mean(-1, keepdims=True)
                scale = np.sqrt((centred**2).mean(-1, keepdims=True) + o.number)
                y = centred / scale * weights[0] + weights[1]
            case "gate":
                a, g = np.split(x[0] + x[1], 2, -1)
                y = _gelu(a) * _sigmoid(g)
            case "add":
                y = y + x[0]
            case "pick":
                y = x[0][:, :: o.m][:, : o.n]
            case "mean":
                total, count = x[1] + x[0], x[2] + 1
                self.arrays[o.x[1]], self.arrays[o.x[2]], y = total, count, total / count
            case "gelu":
                y = _gelu(y)
            case "every":
                self.arrays[o.y] = (y + 1) % o.m
                return not self.arrays[o.y].any()
        self.arrays[o.y] = y.astype(self.dtype)
        return True

    def _gates(self, o: Operation, x: list[Any], h: Any, weights: list[Any]) -> Any:
        if o.cell == "lstm":
            i, f, g, out = np.split(x[0] + x[1], 4, -1)
            self.arrays[o.x[2]] = c = _sigmoid(f) * x[2] + _sigmoid(i) * np.tanh(g)
            return _sigmoid(out) * np.tanh(c)
        (a_r, a_g, a_c), (s_r, s_g, s_c) = np.split(x[0], 3, -1), np.split(x[1], 3, -1)
        b = weights[0].reshape(-1, o.n)
        r, g = _sigmoid(a_r + s_r + b[0]), _sigmoid(a_g + s_g + b[1])
        a = r * (s_c + (b[3] if o.cell == "gru" else 0)) + a_c
        c = np.tanh(a + b[2]) if o.cell == "gru" else np.sign(a) * np.maximum(np.abs(a) + b[2], 0)
        return g * h + (1 - g) * c


def _numpy(tensor: torch.Tensor, dtype: Any) -> np.ndarray[Any, Any]:
    return np.ascontiguousarray(tensor.detach().cpu().resolve_neg().numpy(), dtype)


def _sigmoid(x: Any) -> Any:
    return 0.5 + 0.5 * np.tanh(0.5 * x)


def _gelu(x: Any) -> Any:
    return 0.5 * x * (1 + np.vectorize(math.erf)(math.sqrt(0.5) * x))
