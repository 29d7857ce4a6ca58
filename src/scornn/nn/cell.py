"""One step of a recurrent network, with the contract of :class:`torch.nn.RNNCell`."""

from __future__ import annotations

import torch
from torch import Tensor

from scornn import ops
from scornn.functional import full_precision, under_autocast
from scornn.nn.base import DenseRecurrentLayer, RecurrentMatrix
from scornn.nn.checks import check_integer
from scornn.ops.activations import ACTIVATIONS


class RecurrentCell(RecurrentMatrix):
    """The step h' = act(U x + W h) of a recurrent matrix: what cells share."""

    input_size: int

    def suffixes(self) -> list[str]:
        return [""]

    def bias_name(self, suffix: str) -> str:
        return "bias_hh"

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        name = type(self).__name__
        if isinstance(hx, (tuple, list)):
            raise RuntimeError(f"{name} has one hidden state: hx is a tensor, got a {type(hx).__name__}")
        if input.dim() not in (1, 2):
            raise ValueError(f"{name}: Expected input to be 1D or 2D, got {input.dim()}D instead")
        if hx is not None and hx.dim() != input.dim():
            raise ValueError(f"{name}: Expected hidden to be {input.dim()}D like input, got {hx.dim()}D instead")
        if input.shape[-1] != self.input_size:
            raise RuntimeError(f"input has inconsistent input_size: expected {self.input_size}, got {input.shape[-1]}")
        weight = self.like
        if under_autocast(input):  # as the layer, it stays in the weights' precision
            input, hx = input.to(weight.dtype), None if hx is None else hx.to(weight.dtype)
        if input.dtype != weight.dtype:
            raise ValueError(f"{name}: input dtype ({input.dtype}) does not match weight dtype ({weight.dtype})")
        if hx is not None and hx.shape[-1] != self.state_size:
            raise RuntimeError(f"hidden has inconsistent hidden_size: expected {self.state_size}, got {hx.shape[-1]}")
        if hx is not None and hx.dtype != input.dtype:
            raise ValueError(f"{name}: hx is {hx.dtype}, but input is {input.dtype}; convert one of them")
        x = input.reshape(1, -1, self.input_size)
        h = self.initial_state("", x.shape[1], x) if hx is None else hx.reshape(-1, self.state_size)
        if h.shape[0] != x.shape[1]:
            raise RuntimeError(f"Input batch size {x.shape[1]} doesn't match hidden batch size {h.shape[0]}")
        W, U, b = self.operands("")
        if self.backend == "auto":  # one small product costs less than a call of the kernel
            with full_precision(x):
                h_n = ACTIVATIONS[self.activation].value(torch.addmm(x[0] @ U.mT, h, W.mT), b)
        else:
            _, h_n = ops.recurrence(x, h, W, U, b, activation=self.activation, backend=self.backend)
        return h_n if input.dim() == 2 else h_n.squeeze(0)


class Cell(RecurrentCell):
    """One step of any dense model, with W, U, b and h_0 as constants: made by :meth:`from_layer`.

    Inputs: ``input (B, m)`` or ``(m,)``, and ``hx (B, n)`` or ``(n,)``, 2n reals for complex models; zero if not given,
    or what was learned. Output: the next state. :class:`scornn.ScoRNNCell` is the cell that can be trained.

    Example:
        >>> layer, x = scornn.nn.ExpRNN(3, 8), torch.randn(2, 3)
        >>> torch.allclose(Cell.from_layer(layer)(x), layer(x.unsqueeze(0))[0][0])
        True
    """

    @classmethod
    @torch.no_grad()
    def from_layer(cls, layer: DenseRecurrentLayer, k: int = 0, direction: int = 0) -> Cell:
        """The cell whose steps are those of layer ``k`` in one direction, 0 for forward and 1 for reverse."""
        name, kind = type(layer).__name__, layer.kind if isinstance(layer, DenseRecurrentLayer) else None
        if kind == "bank":
            raise TypeError("a cell's W would round the angles of a linear memory; layer.frozen() streams by them")
        if kind not in ACTIVATIONS:
            raise TypeError(f"from_layer takes a layer of one dense matrix, got {name}")
        layer.require_described(f"no cell has the steps of a {name}")
        suffix = suffix_of(layer, k, direction)
        cell, W = cls(), getattr(layer, f"weight_hh{suffix}")
        U, b = layer.input_matrix(suffix), layer.bias_vector(suffix)
        cell.input_size, cell.hidden_size, cell.bias = U.shape[1], layer.hidden_size, layer.bias
        cell.activation, cell.backend, cell.learn_h0 = layer.activation, layer.backend, layer.learn_h0
        cell.units_per_state = layer.units_per_state
        h0 = layer.tensor(f"h0{suffix}") if layer.learn_h0 else None
        for name, value in {"weight_hh": W, "weight_ih": U, "bias_hh": b, "h0": h0}.items():
            if value is not None:
                cell.register_buffer(name, value.detach().clone())
        return cell.train(layer.training)

    def recurrent_shapes(self) -> dict[str, tuple[int, ...]]:
        return {"weight_hh": (self.state_size, self.state_size)}

    def recurrent_matrix(self, suffix: str) -> Tensor:
        return self.tensor("weight_hh")

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}, activation={self.activation}"


def suffix_of(layer: DenseRecurrentLayer, k: int, direction: int) -> str:
    """What the names of layer ``k`` in one direction end with."""
    for name, value, end in (("k", k, layer.num_layers), ("direction", direction, layer.num_directions)):
        check_integer(name, value, 0, end - 1)
    return layer.suffixes()[k * layer.num_directions + direction]
