"""expRNN and dtriv: W by the exponential map, around the identity or around a base that moves."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from scornn.functional import full_precision, skew
from scornn.nn import init
from scornn.nn.base import OrthogonalRecurrentLayer
from scornn.nn.catalogue import model
from scornn.nn.checks import check_choice, check_integer, precise
from scornn.ops.activations import REAL
from scornn.ops.exponential import skew_exponential
from scornn.torch_internals import has_values, in_backward, in_hooks, under_transform

STARTS = {"henaff": init.rotation_angles_, "cayley": init.cayley_rotations_}


@model(
    "exprnn",
    label="expRNN",
    colour=3,
    marker="d",
    summary="orthogonal by the exponential map",
    equation="W = exp(A), Aᵀ = −A",
    source="Lezcano-Casado and Martínez-Rubio, ICML 2019",
    bench=(170,),
)
class ExpRNN(OrthogonalRecurrentLayer):
    r"""Orthogonal by the exponential map (Lezcano-Casado and Martínez-Rubio, 2019).

    .. math::
        W = \exp(A), \quad A^T = -A, \qquad h_t = \mathrm{modReLU}(U x_t + W h_{t-1})

    Every rotation can be had, but no W with determinant −1. A starts with 2 × 2 blocks: angles from U(−π, π)
    (``start="henaff"``), or the numbers of the scoRNN paper (``"cayley"``). U Kaiming-normal, b from U(±0.01).

    Args:
        nonlinearity: ``modrelu``, ``relu``, ``leaky_relu``, ``tanh`` or ``identity``.
        start: ``henaff`` or ``cayley``.

    Attributes:
        skew_hh_l{k}: the n(n−1)/2 free numbers of A.

    Example:
        >>> layer = ExpRNN(3, 5)
        >>> bool(layer.orthogonality_error() < 1e-5)
        True
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "modrelu",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        start: str = "henaff",
        backend: str = "auto",
    ) -> None:
        super().__init__(input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional)
        self.activation = check_choice("nonlinearity", nonlinearity, REAL)
        self.start = check_choice("start", start, tuple(STARTS))
        self.nonlinearity, self.backend = nonlinearity, backend
        self.build(device, dtype)

    def recurrent_shapes(self) -> dict[str, tuple[int, ...]]:
        return {"skew_hh": (self.hidden_size * (self.hidden_size - 1) // 2,)}

    def reset(self, suffix: str) -> None:
        STARTS[self.start](self.tensor(f"skew_hh{suffix}"), self.hidden_size)
        nn.init.kaiming_normal_(self.tensor(f"weight_ih{suffix}"))
        if self.bias:
            nn.init.uniform_(self.tensor(f"bias{suffix}"), -0.01, 0.01)

    def recurrent_matrix(self, suffix: str) -> Tensor:
        v = self.tensor(f"skew_hh{suffix}")
        # The loop that can be differentiated twice takes the exponential that can.
        exponential = torch.linalg.matrix_exp if self.backend == "naive" else skew_exponential
        return exponential(skew(precise(v), self.hidden_size)).to(v.dtype)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, start={self.start}"


@model(
    "dtriv",
    label="dtriv",
    colour=4,
    marker="D",
    summary="the exponential map around a base that follows W",
    equation="W = B exp(A); every K steps B ← W, A ← 0",
    source="Lezcano-Casado, NeurIPS 2019",
    bench=(170,),
)
class DTriv(ExpRNN):
    r"""Dynamic trivialisation (Lezcano-Casado, 2019): the exponential map around a base that follows W.

    .. math::
        W = B\exp(A), \quad A^T = -A; \qquad \text{every K training steps } B \leftarrow W,\; A \leftarrow 0

    Near A = 0 the gradient in A is the one on the manifold, so moving the base keeps the map from bending the steps.
    Moving it changes neither W nor the outputs, beyond rounding. It happens by itself at the start of every K-th
    forward in training mode with gradients enabled, counted in a buffer, so a run that resumes from a checkpoint moves
    it at the same steps; or whenever :meth:`rebase` is called. Gradient checkpointing, which calls a forward again,
    counts it once. Inside ``torch.compile`` and torch.func's transforms, and where ``functional_call`` is given tensors
    that are no parameters, it is up to the caller. A forward from before a move still has its gradient, at the A that
    it had.

    Starts with B = the start of :class:`ExpRNN` and A = 0. Deviation: each new base is made orthogonal to rounding by
    one Newton–Schulz step in float64, where the authors' program projects by an SVD after some dozens of moves.

    Args:
        rebase_every: K, at least 1; None to move the base only by :meth:`rebase`.

    Attributes:
        skew_hh_l{k}: the n(n−1)/2 free numbers of A.
        base_hh_l{k}: B, a buffer.
        forwards: training forwards since the base last moved, a buffer.

    Example:
        >>> layer = DTriv(3, 5, rebase_every=100)
        >>> layer.rebase()
        >>> bool(layer.orthogonality_error() < 1e-5)
        True
    """

    forwards: Tensor
    averages = False  # A means something else after each move of the base

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "modrelu",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        start: str = "henaff",
        rebase_every: int | None = 100,
        backend: str = "auto",
    ) -> None:
        if rebase_every is not None:
            check_integer("rebase_every, where it is not None,", rebase_every, 1)
        size = (input_size, hidden_size, num_layers, nonlinearity, bias, batch_first, dropout, bidirectional)
        super().__init__(*size, device, dtype, start=start, backend=backend)
        self.rebase_every = rebase_every

    def reset_parameters(self) -> None:
        super().reset_parameters()
        self.register_buffer("forwards", torch.zeros((), dtype=torch.long, device=self.like.device))

    def buffer_shapes(self) -> dict[str, tuple[int, ...]]:
        return {"base_hh": (self.hidden_size, self.hidden_size)}

    @torch.no_grad()
    def reset(self, suffix: str) -> None:
        super().reset(suffix)
        v = self.tensor(f"skew_hh{suffix}")
        self.tensor(f"base_hh{suffix}").copy_(skew_exponential(skew(v.double(), self.hidden_size)))
        v.zero_()

    def recurrent_matrix(self, suffix: str) -> Tensor:
        B = precise(self.tensor(f"base_hh{suffix}").clone())  # a graph keeps it, and the base may move before backward
        return (B @ precise(super().recurrent_matrix(suffix))).to(self.tensor(f"skew_hh{suffix}").dtype)

    @torch.no_grad()
    def rebase(self) -> None:
        """B ← W, A ← 0, in every layer and direction."""
        self._require_own_A()
        for suffix in self.suffixes():
            v = self.tensor(f"skew_hh{suffix}")
            with full_precision(v):
                B = self.recurrent_matrix(suffix).double()
                orthogonal = 1.5 * B - 0.5 * B @ (B.mT @ B)
            # Both in place: they may be shared with other processes, or lent by torch.func.functional_call.
            self.tensor(f"base_hh{suffix}").copy_(orthogonal)
            v.data.zero_()  # a graph is not told of the new A, of whose old values it needs none
        self.forwards.zero_()

    def _require_own_A(self) -> None:
        for suffix in self.suffixes():
            advice = "Build the layer with rebase_every=None"
            self._require_own_parameters(suffix, "the base of a DTriv cannot move", advice, advice)

    def before_forward(self) -> None:
        apart = torch.compiler.is_compiling() or under_transform() or (in_backward() and in_hooks())
        counts = self.training and torch.is_grad_enabled() and not apart
        if counts and self.rebase_every is not None and has_values(self.forwards):
            self._require_own_A()
            if not all(isinstance(p, nn.Parameter) for p in self.parameters()):
                return  # lent for this forward: whose A they are is not known
            if int(self.forwards) >= self.rebase_every:
                self.rebase()
            self.forwards += 1

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, rebase_every={self.rebase_every}"
