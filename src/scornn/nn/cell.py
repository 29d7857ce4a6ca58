"""One step of a recurrent network, with the contract of :class:`torch.nn.RNNCell`."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from scornn import ops
from scornn.functional import full_precision, under_autocast
from scornn.matrices import Matrix, ScaledCayley
from scornn.matrices.checks import check_choice, check_integer, check_sizes
from scornn.nn.recurrent import Recurrent
from scornn.nn.rnn import RNN, uniform, zero
from scornn.ops.activations import ACTIVATIONS, REAL


class Cell(Recurrent):
    """One step h' = act(U x + W h + b) with any matrix.

    Inputs: ``input (B, m)`` or ``(m,)``, and ``hx (B, n)`` or ``(n,)``, 2n reals of complex units; zero if not given,
    or what was learned. Output: the next state.

    Args:
        input_size: size m of x.
        matrix: a :class:`scornn.matrices.Matrix`, whose device and dtype are the cell's.
        bias: whether there is a b.
        activation: as :func:`scornn.ops.recurrence` has them.
        learn_h0: train the state before the first step, which starts at zero.
        backend: ``auto``, ``native``, ``manual`` or ``naive``.

    Example:
        >>> layer, x = scornn.nn.ExpRNN(3, 8), torch.randn(2, 3)
        >>> torch.allclose(Cell.from_layer(layer)(x), layer(x.unsqueeze(0))[0][0])
        True
    """

    input_scale = 0.01
    """U starts uniform on ± this, b and h_0 at zero."""

    def __init__(
        self,
        input_size: int,
        matrix: Matrix,
        bias: bool = True,
        activation: str = "modrelu",
        *,
        learn_h0: bool = False,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        check_sizes(input_size=input_size)
        self.backend = check_choice("backend", backend, ops.BACKENDS)
        self.activation = check_choice("nonlinearity", activation, tuple(ACTIVATIONS))
        self.input_size, self.hidden_size, self.bias, self.learn_h0 = input_size, matrix.n, bias, learn_h0
        self.hh = matrix
        shapes = {"weight_ih": (matrix.size, input_size)} | ({"bias_hh": (matrix.n,)} if bias else {})
        for name, shape in (shapes | ({"h0": (matrix.size,)} if learn_h0 else {})).items():
            self.register_parameter(name, nn.Parameter(matrix.like.new_empty(shape)))
        self._start()

    def _start(self) -> None:
        uniform(self.input_scale, self._parameters["weight_ih"])
        zero(self._parameters.get("bias_hh"), self._parameters.get("h0"))

    def reset_parameters(self) -> None:
        """Draw fresh parameters from the global random generator."""
        self.hh.reset()
        self._start()

    @classmethod
    @torch.no_grad()
    def from_layer(cls, layer: RNN, k: int = 0, direction: int = 0) -> Cell:
        """The cell whose steps are those of layer ``k`` in one direction, 0 for forward and 1 for reverse.

        Its numbers are constants, W among them.
        """
        name, kind = type(layer).__name__, getattr(layer, "kind", None)
        if kind == "bank":
            raise TypeError("a cell's W would round the angles of a linear memory; layer.frozen() streams by them")
        if kind not in ACTIVATIONS:
            raise TypeError(f"from_layer takes a layer of one dense matrix, got {name}")
        layer.require_described(f"no cell has the steps of a {name}")
        suffix = suffix_of(layer, k, direction)
        cell = cls._of(layer, suffix, layer.matrix(suffix).frozen())
        for name in list(cell._parameters):
            cell.register_buffer(name, cell._parameters.pop(name).detach())
        return cell

    @classmethod
    def _of(cls, layer: RNN, suffix: str, matrix: Matrix) -> Any:
        """A cell with a matrix, and copies of the layer's other numbers."""
        cell, U = cls.__new__(cls), getattr(layer, f"weight_ih{suffix}")
        settings: dict[str, Any] = {"learn_h0": layer.learn_h0, "backend": layer.backend}
        Cell.__init__(cell, U.shape[1], matrix, layer.bias, layer.activation, **settings)
        for ours, theirs in (("weight_ih", "weight_ih"), ("bias_hh", "bias"), ("h0", "h0")):
            if ours in cell._parameters:
                getattr(cell, ours).copy_(getattr(layer, f"{theirs}{suffix}"))
        return cell.train(layer.training)

    def suffixes(self) -> list[str]:
        return [""]

    def recurrent_biases(self) -> list[nn.Parameter]:
        return [p for name, p in self.named_parameters() if name.startswith(("bias", "parametrizations.bias"))]

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        name, size, dtype = type(self).__name__, self.hh.size, self.weight_ih.dtype
        if isinstance(hx, (tuple, list)):
            raise RuntimeError(f"{name} has one hidden state: hx is a tensor, got a {type(hx).__name__}")
        if input.dim() not in (1, 2):
            raise ValueError(f"{name}: Expected input to be 1D or 2D, got {input.dim()}D instead")
        if hx is not None and hx.dim() != input.dim():
            raise ValueError(f"{name}: Expected hidden to be {input.dim()}D like input, got {hx.dim()}D instead")
        for what, tensor, expected in (("input", input, self.input_size), ("hidden", hx, size)):
            if tensor is not None and tensor.shape[-1] != expected:
                found = f"expected {expected}, got {tensor.shape[-1]}"
                raise RuntimeError(f"{what} has inconsistent {what}_size: {found}")
        if under_autocast(input):  # as the layer, it stays in the weights' precision
            input, hx = input.to(dtype), None if hx is None else hx.to(dtype)
        if input.dtype != dtype:
            raise ValueError(f"{name}: input dtype ({input.dtype}) does not match weight dtype ({dtype})")
        if hx is not None and hx.dtype != input.dtype:
            raise ValueError(f"{name}: hx is {hx.dtype}, but input is {input.dtype}; convert one of them")
        x = input.reshape(1, -1, self.input_size)
        if hx is None:
            h = self.h0.expand(x.shape[1], -1) if self.learn_h0 else x.new_zeros(x.shape[1], size)
        else:
            h = hx.reshape(-1, size)
        if h.shape[0] != x.shape[1]:
            raise RuntimeError(f"Input batch size {x.shape[1]} doesn't match hidden batch size {h.shape[0]}")
        U, b = self.weight_ih, self.bias_hh if self.bias else None
        if self.backend == "auto" and not self.hh.is_applied:  # a small product costs less than a call of the kernel
            with full_precision(x):
                h_n = ACTIVATIONS[self.activation].value(torch.addmm(x[0] @ U.mT, h, self.hh.W().mT), b)
        else:
            _, h_n = self.hh.recurrence(
                x, h, U, b, activation=self.activation, backend=self.backend, batch_sizes=None, reverse=False
            )
        return h_n if input.dim() == 2 else h_n.squeeze(0)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.extra_repr()})"

    def extra_repr(self) -> str:
        own = (self.hh.extra_repr(), "" if self.activation == "modrelu" else f"nonlinearity={self.activation}")
        return ", ".join((f"{self.input_size}, {self.hidden_size}", *filter(None, own)))


class ScoRNNCell(Cell):
    """One step of :class:`~scornn.nn.ScoRNN`.

    Example:
        >>> cell = ScoRNNCell(10, 20)
        >>> cell(torch.randn(3, 10)).shape
        torch.Size([3, 20])
    """

    hh: ScaledCayley

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "modrelu",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        rho: int | None = None,
        bandwidth: int | None = None,
        learn_h0: bool = False,
        backend: str = "auto",
    ) -> None:
        check_sizes(input_size=input_size, hidden_size=hidden_size)
        check_choice("nonlinearity", nonlinearity, REAL)
        matrix = ScaledCayley(hidden_size, rho, bandwidth, device=device, dtype=dtype)
        super().__init__(input_size, matrix, bias, nonlinearity, learn_h0=learn_h0, backend=backend)

    @classmethod
    @torch.no_grad()
    def from_layer(cls, layer: RNN, k: int = 0, direction: int = 0) -> ScoRNNCell:
        """A cell with copies of the numbers of layer ``k`` in one direction, which can be trained.

        Its steps are those of the layer, ``h_t = cell(x_t, h_{t-1})``; inside :func:`scornn.cached` they make W once.

        Example:
            >>> layer, x = scornn.ScoRNN(3, 8), torch.randn(2, 3)
            >>> torch.allclose(ScoRNNCell.from_layer(layer)(x), layer(x.unsqueeze(0))[0][0], atol=1e-6)
            True
        """
        name = type(layer).__name__
        if not isinstance(layer, RNN) or not all(isinstance(m, ScaledCayley) for m in layer.matrices()):
            raise TypeError(f"from_layer takes a ScoRNN, got {name}; scornn.nn.Cell has the steps of others")
        layer.require_described(f"a ScoRNNCell has not the steps of a {name}")
        suffix = suffix_of(layer, k, direction)
        cell: ScoRNNCell = cls._of(layer, suffix, deepcopy(layer.matrix(suffix)))
        return cell

    @property
    def rho(self) -> int:
        """The number of −1 in D."""
        return self.hh.rho


def suffix_of(layer: RNN, k: int, direction: int) -> str:
    """What the names of layer ``k`` in one direction end with."""
    for name, value, end in (("k", k, layer.num_layers), ("direction", direction, layer.num_directions)):
        check_integer(name, value, 0, end - 1)
    return layer.suffixes()[k * layer.num_directions + direction]
