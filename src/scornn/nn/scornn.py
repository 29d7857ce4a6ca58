"""ScoRNN, the paper's layer: a recurrent matrix kept orthogonal by the scaled Cayley transform."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from scornn.functional import (
    has_values,
    inverse_scaled_cayley,
    rounding,
    scaled_cayley,
    skew,
    skew_indices,
)
from scornn.nn import init
from scornn.nn.base import OrthogonalMatrix, OrthogonalRecurrentLayer
from scornn.nn.catalogue import model
from scornn.nn.cell import RecurrentCell, suffix_of
from scornn.nn.checks import check_choice, check_integer, check_number, check_rho, check_sizes, precise
from scornn.ops.activations import REAL


class _ScaledCayley(OrthogonalMatrix):
    """What layer and cell share: W = (I + A)⁻¹(I − A)D of each suffix, its start, and the way in."""

    signs = ("sign_hh",)
    _rho_at_start: int
    bandwidth: int | None
    nonlinearity: str
    input_scale: float = 0.01
    bias_start: float = 0.0

    def _settings(self, nonlinearity: str, rho: int | None, bandwidth: int | None, backend: str) -> None:
        n = self.hidden_size
        self.nonlinearity = self.activation = check_choice("nonlinearity", nonlinearity, REAL)
        self._rho_at_start = n // 2 if rho is None else check_rho(rho, n)
        self.bandwidth = None if bandwidth is None else check_integer("bandwidth", bandwidth, 0, n - 1)
        self.backend = check_choice("backend", backend, self.BACKENDS)

    def recurrent_shapes(self) -> dict[str, tuple[int, ...]]:
        band = self.hidden_size - 1 if self.bandwidth is None else self.bandwidth
        return {"skew_hh": (self.hidden_size * band - band * (band + 1) // 2,)}

    def buffer_shapes(self) -> dict[str, tuple[int, ...]]:
        return dict.fromkeys(self.signs, (self.hidden_size,))

    @torch.no_grad()
    def reset(self, suffix: str) -> None:
        """Section 4.2 and the authors' program: rotations in A, the last rho signs −1, small U, b = 0."""
        n = self.hidden_size
        init.cayley_rotations_(self.tensor(f"skew_hh{suffix}"), n, self.bandwidth)
        self.tensor(f"sign_hh{suffix}").fill_(1)[n - self._rho_at_start :] = -1
        nn.init.uniform_(self.tensor(f"weight_ih{suffix}"), -self.input_scale, self.input_scale)
        if self.bias:
            nn.init.constant_(self.tensor(self.bias_name(suffix)), self.bias_start)
        if self.learn_h0:
            nn.init.zeros_(self.tensor(f"h0{suffix}"))

    def recurrent_matrix(self, suffix: str) -> Tensor:
        """W = (I + A)⁻¹(I − A)D from the free numbers as they are now."""
        v, D = self.tensor(f"skew_hh{suffix}"), self.tensor(f"sign_hh{suffix}")
        A = skew(precise(v), self.hidden_size, self.bandwidth)
        return scaled_cayley(A, D.to(A.dtype)).to(v.dtype)

    @torch.no_grad()
    def set_recurrent_matrix(self, suffix: str, W: Tensor) -> None:
        """Make W the recurrent matrix, through the constructive Theorem 3.1."""
        n = self.hidden_size
        W = torch.as_tensor(W, device="cpu").detach()
        if tuple(W.shape) != (n, n):
            raise ValueError(f"weight_hh{suffix}: expected a matrix of shape {(n, n)}, got {tuple(W.shape)}")
        A, D = inverse_scaled_cayley(W)
        row, column = skew_indices(n, self.bandwidth, A.device)
        outside = A.clone()
        outside[row, column] = outside[column, row] = 0
        if not outside.numel() or outside.abs().max() <= rounding(n, W.dtype):
            self.tensor(f"skew_hh{suffix}").copy_(A[row, column])
            self.tensor(f"sign_hh{suffix}").copy_(D)
        elif not self._take_with_present_signs(suffix, W):
            raise ValueError(
                f"weight_hh{suffix}: for the signs that were found, and for those of the layer, this matrix needs "
                f"entries of A outside the bandwidth {self.bandwidth}; build the layer with bandwidth=None"
            )

    def _take_with_present_signs(self, suffix: str, W: Tensor) -> bool:
        """Whether an A in the band makes W with the D that is there. If so, it is the layer's now."""
        n, D, free = self.hidden_size, self.tensor(f"sign_hh{suffix}"), self.tensor(f"skew_hh{suffix}")
        if not has_values(D):
            return False
        D, I = D.to("cpu", torch.float64), torch.eye(n, dtype=torch.float64, device="cpu")
        A = torch.linalg.solve_ex(I + W.double() * D, I - W.double() * D).result
        row, column = skew_indices(n, self.bandwidth, A.device)
        v = ((A - A.mT) / 2)[row, column].to(free.dtype)
        if not torch.isfinite(v).all():
            return False
        made = scaled_cayley(skew(v.double(), n, self.bandwidth), D)
        fits = bool((made - W).abs().max() <= rounding(n, W.dtype))
        if fits:
            free.copy_(v)
        return fits

    @property
    def rho(self) -> int | tuple[int, ...]:
        """The number of −1 in D, of each suffix where they differ; as asked for where D has no values."""
        signs = [self._buffers.get(f"sign_hh{suffix}") for suffix in self.suffixes()]
        counts = tuple(int((D < 0).sum()) for D in signs if D is not None and has_values(D))
        if len(counts) < len(signs):
            return self._rho_at_start
        return counts[0] if len(set(counts)) == 1 else counts

    def _repr_settings(self) -> str:
        text = f"rho={self.rho}" + ("" if self.nonlinearity == "modrelu" else f", nonlinearity={self.nonlinearity}")
        return text + ("" if self.bandwidth is None else f", bandwidth={self.bandwidth}")


@model(
    "scornn",
    label="scoRNN",
    colour=0,
    marker="o",
    summary="orthogonal by the scaled Cayley transform",
    equation="W = (I + A)⁻¹(I − A)D, Aᵀ = −A, D = diag(±1)",
    source="Helfrich, Willmott and Ye, ICML 2018",
    bench=(170, 360, 512),
)
class ScoRNN(_ScaledCayley, OrthogonalRecurrentLayer):
    r"""Scaled Cayley orthogonal recurrent network: replaces :class:`torch.nn.RNN`, and remembers.

    .. math::
        W = (I + A)^{-1}(I - A)D, \qquad z_t = U x_t + W h_{t-1}, \qquad h_t = \sigma(z_t)

    A is skew-symmetric and trained, D is a fixed diagonal with ``rho`` entries −1 (the last ones), and σ is modReLU,
    :math:`\mathrm{sign}(z)\,\mathrm{relu}(|z| + b)`. W is orthogonal whatever the optimizer does to the free
    numbers of A, to rounding times the condition of I + A: it neither shrinks nor stretches what passes through it,
    states and gradients; σ may. W is made from A and D in every forward, or once inside :func:`scornn.cached`.

    A plain equivalent of one layer::

        A = scornn.functional.skew(layer.skew_hh_l0, n)
        W = scornn.functional.scaled_cayley(A, layer.sign_hh_l0)
        for t in range(T):
            h = scornn.functional.modrelu(x[t] @ layer.weight_ih_l0.T + h @ W.T, layer.bias_l0)
            output[t] = h

    Args:
        input_size: size m of x_t.
        hidden_size: size n of h_t.
        num_layers: layers stacked on top of each other.
        nonlinearity: ``modrelu``, ``relu``, ``leaky_relu`` (slope 0.1), ``tanh`` or ``identity``. All but modReLU add b
            to z.
        bias: whether there is a b.
        batch_first: input and output are ``(B, T, ·)`` rather than ``(T, B, ·)``.
        dropout: between layers, in training.
        bidirectional: also run from the end to the beginning.
        rho: number of −1 in D, 0..n. Default n // 2. The determinant of W is (−1)^rho.
        bandwidth: ℓ of a banded A, which leaves nℓ − ℓ(ℓ+1)/2 free numbers. Default None, a full A.
        learn_h0: train the state before the first step, which starts at zero. The paper does not.
        input_scale: U starts uniform on ± this; the paper's is 0.01.
        bias_start: b starts at this; the paper's is 0. A threshold below zero with a larger U shortens the plateau of
            the adding problem (``docs/faq.md``).
        backend: ``auto``, ``native``, ``manual`` or ``naive``; see :func:`scornn.backends`.

    Inputs: input, h_0
        * **input**: ``(T, B, m)``, unbatched ``(T, m)``, or a ``PackedSequence``.
        * **h_0**: ``(num_layers · directions, B, n)``; zero if not given, or what was learned.

    Outputs: output, h_n
        * **output**: ``(T, B, directions · n)``.
        * **h_n**: ``(num_layers · directions, B, n)``. A loss on the last step alone is cheaper on ``h_n`` than on
          ``output[-1]``: no gradient of the length of the sequence is made.

    Attributes:
        weight_ih_l{k}: U ``(n, m)``.
        skew_hh_l{k}: the free numbers of A.
        sign_hh_l{k}: D, a buffer.
        bias_l{k}: b ``(n,)``.
        weight_hh_l{k}: W, made from A and D: a fresh tensor, so writing into it changes nothing. An orthogonal matrix
            can be assigned to it, which sets A and D.

    With ``_reverse`` added for the other direction.

    Example:
        >>> layer = ScoRNN(10, 20, num_layers=2)
        >>> output, h_n = layer(torch.randn(5, 3, 10))
        >>> output.shape, h_n.shape
        (torch.Size([5, 3, 20]), torch.Size([2, 3, 20]))
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
        rho: int | None = None,
        bandwidth: int | None = None,
        learn_h0: bool = False,
        input_scale: float = 0.01,
        bias_start: float = 0.0,
        backend: str = "auto",
    ) -> None:
        super().__init__(input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional)
        self._settings(nonlinearity, rho, bandwidth, backend)
        self.learn_h0 = learn_h0
        self.input_scale = check_number("input_scale", input_scale, "a positive number", lambda number: number > 0)
        self.bias_start = check_number("bias_start", bias_start)
        self.build(device, dtype)

    def require_cayley(self, what: str) -> None:
        """Refuse ``what``, which copies A and D, where its class computes something else with them."""
        self.require_described(what)
        if type(self).recurrent_matrix is not ScoRNN.recurrent_matrix:
            raise TypeError(f"{what}: it makes its W in a way of its own")

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, {self._repr_settings()}"


class ScoRNNCell(_ScaledCayley, RecurrentCell):
    """One step of :class:`ScoRNN`, with the contract of :class:`torch.nn.RNNCell`.

    Inputs: ``input (B, m)`` or ``(m,)``, and ``hx (B, n)`` or ``(n,)``; zero if not given, or what was learned. Output:
    the next state.

    Example:
        >>> cell = ScoRNNCell(10, 20)
        >>> cell(torch.randn(3, 10)).shape
        torch.Size([3, 20])
    """

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
        super().__init__()
        check_sizes(input_size=input_size, hidden_size=hidden_size)
        self.input_size, self.hidden_size, self.bias, self.learn_h0 = input_size, hidden_size, bias, learn_h0
        self._settings(nonlinearity, rho, bandwidth, backend)
        self.make_parameters("", input_size, device, dtype)
        if learn_h0:
            self.register_parameter("h0", nn.Parameter(torch.empty(hidden_size, device=device, dtype=dtype)))
        self.reset_parameters()

    @classmethod
    @torch.no_grad()
    def from_layer(cls, layer: ScoRNN, k: int = 0, direction: int = 0) -> ScoRNNCell:
        """A cell with copies of the numbers of layer ``k`` in one direction, 0 for forward and 1 for reverse.

        Its steps are those of the layer, ``h_t = cell(x_t, h_{t-1})``; inside :func:`scornn.cached` they make W once.

        Example:
            >>> layer, x = ScoRNN(3, 8), torch.randn(2, 3)
            >>> torch.allclose(ScoRNNCell.from_layer(layer)(x), layer(x.unsqueeze(0))[0][0], atol=1e-6)
            True
        """
        if not isinstance(layer, ScoRNN):
            raise TypeError(
                f"from_layer takes a ScoRNN, got {type(layer).__name__}; scornn.nn.Cell has the steps of others"
            )
        layer.require_cayley(f"a ScoRNNCell has not the steps of a {type(layer).__name__}")
        suffix = suffix_of(layer, k, direction)
        U = layer.input_matrix(suffix)
        cell = cls(
            U.shape[1],
            layer.hidden_size,
            layer.bias,
            layer.nonlinearity,
            U.device,
            U.dtype,
            rho=layer._rho_at_start,
            bandwidth=layer.bandwidth,
            learn_h0=layer.learn_h0,
            backend=layer.backend,
        )
        for name in ["weight_ih", "skew_hh", "sign_hh"] + ["h0"] * layer.learn_h0:
            cell.tensor(name).copy_(layer.tensor(f"{name}{suffix}"))
        if layer.bias:
            cell.tensor("bias_hh").copy_(layer.tensor(layer.bias_name(suffix)))
        return cell.train(layer.training)

    def reset_parameters(self) -> None:
        """Draw fresh parameters from the global random generator."""
        self.reset("")

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}, {self._repr_settings()}"
