"""The general layer: a matrix and an activation."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from scornn.matrices import Free, Matrix
from scornn.matrices.base import Head
from scornn.matrices.checks import check_choice
from scornn.nn.layer import RecurrentLayer
from scornn.nn.recurrent import name_missing
from scornn.ops.activations import ACTIVATIONS, REAL


class RNN(RecurrentLayer):
    r"""A recurrent network with the matrix of your choice; without one, the plain network, whose matrix is free.

    .. math::
        h_t = \sigma(U x_t + W h_{t-1} + b)

    Takes what :class:`torch.nn.RNN` takes, with one bias vector where that has two, and runs on scornn's operators. U
    Glorot-uniform, b = 0 and h_0 = 0 at the start; a free W Glorot-uniform.

    Args:
        nonlinearity: ``tanh``, the default, ``relu``, ``leaky_relu`` (slope 0.1), ``identity``, or ``modrelu``, which
            adds b to \|z\|. A complex matrix takes ``modrelu`` alone, h = z relu(\|z\| + b) / (\|z\| + 1e-5).
        matrix: a class of :mod:`scornn.matrices` or of your own, or a function that gives one: called with the number
            of units, ``device``, ``dtype`` and the keywords that the layer does not know.
        learn_h0: train the state before the first step. The paper's counts are without it.
        backend: ``auto``, ``native``, ``manual`` or ``naive``; see :func:`scornn.backends`.
        options: the matrix's. A free one takes ``soft_orthogonality``, the λ of a penalty
            :math:`λ\|W^TW - I\|_F^2` that the training loss adds; see :meth:`penalty`.

    Example:
        >>> layer = RNN(3, 6, matrix=scornn.ScaledCayley, rho=2, nonlinearity="relu")
        >>> output, h_n = layer(torch.randn(7, 2, 3))
        >>> output.shape, h_n.shape, layer.rho
        (torch.Size([7, 2, 6]), torch.Size([1, 2, 6]), 2)
    """

    matrix_class: ClassVar[Callable[..., Matrix]] = Free
    """What makes W where the constructor is not told."""

    matrix_options: ClassVar[Mapping[str, Any]] = {}
    """Options of the matrix that are the model's and not the user's."""

    nonlinearities: ClassVar[tuple[str, ...]] = REAL
    """What ``nonlinearity`` can be, of real units."""

    default_nonlinearity: ClassVar[str] = "tanh"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str | None = None,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        matrix: Callable[..., Matrix] | None = None,
        learn_h0: bool | None = None,
        backend: str = "auto",
        **options: Any,
    ) -> None:
        super().__init__(input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional)
        self.nonlinearity = self.default_nonlinearity if nonlinearity is None else nonlinearity
        self.learn_h0, self.backend = type(self).learn_h0 if learn_h0 is None else learn_h0, backend
        kind, where = matrix or type(self).matrix_class, {"device": device, "dtype": dtype}
        known = inspect.signature(kind).parameters
        if isinstance(kind, type) and (unknown := next((name for name in options if name not in known), None)):
            raise TypeError(f"{self._name} takes no {unknown}, nor does its matrix, {kind.__name__}")
        if dtype is None or dtype.is_floating_point:  # what build() refuses makes no matrix
            make = partial(kind, hidden_size, **where, **self.matrix_options, **options)
            for suffix in self.suffixes():
                with torch.random.fork_rng(devices=()):  # reset() draws in the order of each model
                    self.add_module(f"hh{suffix}", self.make_matrix(suffix, make))
            choices = ("modrelu",) if self.matrix("_l0").complex else self.nonlinearities
            check_choice("nonlinearity", self.nonlinearity, choices)
        self.register_load_state_dict_post_hook(name_missing)  # type: ignore[no-untyped-call]
        self.build(device, dtype)

    def make_matrix(self, suffix: str, make: Callable[..., Matrix]) -> Matrix:
        """The matrix of one layer in one direction; ``make()`` has the options and takes others."""
        return make()

    def parameter_shapes(self, input_size: int) -> dict[str, tuple[int, ...]]:
        bias: dict[str, tuple[int, ...]] = {"bias": (self.hidden_size,)} if self.bias else {}
        return {"weight_ih": (self.state_size, input_size), **bias}

    def others(self, suffix: str) -> tuple[Any, Any, Any]:
        """U, b and h_0; None for what the layer has not."""
        U, b, h0 = (self._parameters.get(f"{name}{suffix}") for name in ("weight_ih", "bias", "h0"))
        return U, b, h0

    @torch.no_grad()
    def reset(self, suffix: str) -> None:
        U, b, h0 = self.others(suffix)
        nn.init.xavier_uniform_(U)
        self.matrix(suffix).reset()
        zero(b, h0)

    @property
    def state_size(self) -> int:
        size: int = self.matrix("_l0").size
        return size

    @property
    def activation(self) -> str:
        """The activation of the sequence operator."""
        return "complex_modrelu" if self.matrix("_l0").complex else self.nonlinearity

    @property
    def kind(self) -> str:  # type: ignore[override]
        return self.activation

    def operands(self, suffix: str) -> tuple[Tensor, Tensor, Tensor | None]:
        """W, U and b as they are now."""
        return self.matrix(suffix).W(), *self._input_and_bias(suffix)

    def _input_and_bias(self, suffix: str) -> tuple[Tensor, Tensor | None]:
        return getattr(self, f"weight_ih{suffix}"), getattr(self, f"bias{suffix}") if self.bias else None

    def run(
        self, suffix: str, x: Tensor, h0: Tensor, batch_sizes: Tensor | None, reverse: bool
    ) -> tuple[Tensor, Tensor]:
        return self._run(suffix, x, h0, batch_sizes, reverse, None)

    def run_and_read(
        self, suffix: str, x: Tensor, h0: Tensor, batch_sizes: Tensor | None, reverse: bool, head: Head
    ) -> tuple[Tensor, Tensor]:
        if not self.runs_as_described or self.readout_stride > 1 or self.kind not in (*ACTIVATIONS, "bank"):
            return super().run_and_read(suffix, x, h0, batch_sizes, reverse, head)
        return self._run(suffix, x, h0, batch_sizes, reverse, head)

    def _run(
        self, suffix: str, x: Tensor, h0: Tensor, batch_sizes: Tensor | None, reverse: bool, head: Head | None
    ) -> tuple[Tensor, Tensor]:
        matrix: Matrix = self.matrix(suffix)
        U, b = self._input_and_bias(suffix)
        settings: dict[str, Any] = {"activation": self.activation, "backend": self.backend}
        return matrix.recurrence(x, h0, U, b, head, batch_sizes=batch_sizes, reverse=reverse, **settings)

    def recurrent_biases(self) -> list[nn.Parameter]:
        """The biases inside the recurrence, which may learn at a rate of their own."""
        named = dict(self.named_parameters())
        return [p for name, p in named.items() if name.startswith(("bias", "parametrizations.bias"))]

    def __getattr__(self, name: str) -> Any:
        """An option of the matrix, such as ``rho`` or ``margin``, is read from the first."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            matrix = self.__dict__.get("_modules", {}).get("hh_l0")
            if matrix is None or name not in inspect.signature(type(matrix)).parameters:
                raise
            return getattr(matrix, name)

    def __repr__(self) -> str:
        return f"{self._name}({self.extra_repr()})"

    def extra_repr(self) -> str:
        told = "" if self.nonlinearity == self.default_nonlinearity else f"nonlinearity={self.nonlinearity}"
        return ", ".join(part for part in (super().extra_repr(), self.matrix("_l0").extra_repr(), told) if part)


def zero(*tensors: Tensor | None) -> None:
    for tensor in tensors:
        if tensor is not None:
            nn.init.zeros_(tensor)


def uniform(limit: float, *tensors: Tensor | None) -> None:
    for tensor in tensors:
        if tensor is not None:
            nn.init.uniform_(tensor, -limit, limit)
