"""ScoRNN, the paper's layer: a recurrent matrix kept orthogonal by the scaled Cayley transform."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from scornn import ops
from scornn.functional import inverse_scaled_cayley, orthogonality_error, scaled_cayley, skew, skew_indices
from scornn.nn import init
from scornn.nn.base import OrthogonalRecurrentLayer, check_sizes
from scornn.nn.catalogue import model

NONLINEARITIES = ("modrelu", "relu", "leaky_relu", "tanh", "identity")


class _ScaledCayleyWeights(nn.Module):
    """The parameters U, A, D and b of one or more recurrences, each under its suffix, and W made from them."""

    hidden_size: int
    bias: bool
    rho: int
    bandwidth: int | None

    input_scale: float = 0.01
    bias_start: float = 0.0

    def _settings(self, nonlinearity: str, rho: int | None, bandwidth: int | None, backend: str) -> None:
        n = self.hidden_size
        if nonlinearity not in NONLINEARITIES:
            raise ValueError(
                f"Unknown nonlinearity {nonlinearity!r}. Select from {', '.join(map(repr, NONLINEARITIES))}."
            )
        rho = n // 2 if rho is None else rho
        if isinstance(rho, bool) or not isinstance(rho, int):
            raise TypeError(f"rho should be of type int, got: {type(rho).__name__}")
        if not 0 <= rho <= n:
            raise ValueError(f"rho, the number of −1 in D, must lie in 0..{n} for hidden_size={n}; got {rho}")
        if bandwidth is not None and not (isinstance(bandwidth, int) and 0 <= bandwidth < n):
            raise ValueError(f"bandwidth must be an integer in 0..{n - 1} for hidden_size={n}, got {bandwidth!r}")
        if backend not in ops.BACKENDS:
            raise ValueError(f"unknown backend {backend!r}; expected one of {', '.join(ops.BACKENDS)}")
        self.nonlinearity, self.rho, self.bandwidth, self.backend = nonlinearity, rho, bandwidth, backend
        self._cache: dict[str, tuple[Tensor, Tensor, Tensor]] = {}

    def make_parameters(
        self, suffix: str, input_size: int, device: torch.device | str | None, dtype: torch.dtype | None
    ) -> None:
        n = self.hidden_size
        count = skew_indices(n, self.bandwidth)[0].numel()
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        self.register_parameter(f"weight_ih{suffix}", nn.Parameter(torch.empty(n, input_size, **factory)))
        self.register_parameter(f"skew_hh{suffix}", nn.Parameter(torch.empty(count, **factory)))
        self.register_buffer(f"sign_hh{suffix}", torch.empty(n, **factory))
        if self.bias:
            self.register_parameter(f"bias{suffix or '_hh'}", nn.Parameter(torch.empty(n, **factory)))

    @torch.no_grad()
    def _reset(self, suffix: str) -> None:
        """Section 4.2 and the authors' program: rotations in A, the last rho signs −1, small U, b = 0."""
        n = self.hidden_size
        init.cayley_rotations_(getattr(self, f"skew_hh{suffix}"), n, self.bandwidth)
        sign = getattr(self, f"sign_hh{suffix}").fill_(1)
        sign[n - self.rho :] = -1
        nn.init.uniform_(getattr(self, f"weight_ih{suffix}"), -self.input_scale, self.input_scale)
        if self.bias:
            nn.init.constant_(getattr(self, f"bias{suffix or '_hh'}"), self.bias_start)

    def recurrent_matrix(self, suffix: str) -> Tensor:
        """W = (I + A)⁻¹(I − A)D from the free numbers as they are now.

        Where no gradient is recorded, the last W is used again if the numbers it was made from are the same; they
        are compared by value, so that no way of changing them can leave a stale W behind.
        """
        v, D = getattr(self, f"skew_hh{suffix}"), getattr(self, f"sign_hh{suffix}")
        reusable = not torch.is_grad_enabled() and not torch.compiler.is_compiling() and v.device.type == "cpu"
        if reusable and (kept := self._cache.get(suffix)) is not None:
            kept_v, kept_D, W = kept
            if kept_v.dtype == v.dtype and torch.equal(kept_v, v) and torch.equal(kept_D, D):
                return W
        precise = v.float() if v.dtype in (torch.bfloat16, torch.float16) else v
        W = scaled_cayley(skew(precise, self.hidden_size, self.bandwidth), D.to(precise.dtype)).to(v.dtype)
        if reusable:
            self._cache[suffix] = (v.detach().clone(), D.clone(), W)
        return W

    @torch.no_grad()
    def set_recurrent_matrix(self, suffix: str, W: Tensor) -> None:
        """Make W the recurrent matrix, through the constructive Theorem 3.1."""
        n = self.hidden_size
        W = torch.as_tensor(W)
        if tuple(W.shape) != (n, n):
            raise ValueError(f"weight_hh{suffix}: expected a matrix of shape {(n, n)}, got {tuple(W.shape)}")
        A, D = inverse_scaled_cayley(W.detach().cpu())
        row, column = skew_indices(n, self.bandwidth)
        outside = A.clone()
        outside[row, column] = outside[column, row] = 0
        if outside.numel() and outside.abs().max() > 100 * n * torch.finfo(W.dtype).eps:
            raise ValueError(
                f"weight_hh{suffix}: this matrix needs entries of A outside the bandwidth {self.bandwidth}; "
                "build the layer with bandwidth=None"
            )
        getattr(self, f"skew_hh{suffix}").copy_(A[row, column])
        getattr(self, f"sign_hh{suffix}").copy_(D)

    def _weight_suffix(self, name: str) -> str | None:
        """The suffix if ``name`` is that of a recurrent matrix, ``weight_hh`` + suffix."""
        suffix = name.removeprefix("weight_hh")
        return suffix if name.startswith("weight_hh") and f"skew_hh{suffix}" in self._parameters else None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("weight_hh") and (suffix := self._weight_suffix(name)) is not None:
            return self.recurrent_matrix(suffix)
        return super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("weight_hh") and (suffix := self._weight_suffix(name)) is not None:
            self.set_recurrent_matrix(suffix, value)
        else:
            super().__setattr__(name, value)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_cache": {}}

    def recurrent_parameter_names(self) -> list[str]:
        return [name for name in self._parameters if name.startswith("skew_hh")]

    def recurrent_bias_names(self) -> list[str]:
        """As :meth:`DenseRecurrentLayer.recurrent_bias_names`, of the cell too."""
        return [name for name in self._parameters if name.startswith("bias")]

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
)
class ScoRNN(_ScaledCayleyWeights, OrthogonalRecurrentLayer):
    r"""Scaled Cayley orthogonal recurrent network: replaces :class:`torch.nn.RNN`, and remembers.

    .. math::
        W = (I + A)^{-1}(I - A)D, \qquad z_t = U x_t + W h_{t-1}, \qquad h_t = \sigma(z_t)

    A is skew-symmetric and trained, D is a fixed diagonal with ``rho`` entries −1 (the last ones), and σ is modReLU,
    :math:`\mathrm{sign}(z)\,\mathrm{relu}(|z| + b)`. W is orthogonal to rounding whatever the optimizer does to the
    free numbers of A, so gradients neither vanish nor explode through it. W is made from them in every forward.

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
            the adding problem (``docs/learning-rates.md``).
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
        bias_l{k}: b.
        weight_hh_l{k}: W, made from A and D. An orthogonal matrix can be assigned to it.

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
        if not 0 < input_scale < float("inf"):
            raise ValueError(f"input_scale must be a positive number, got {input_scale!r}")
        if not abs(bias_start) < float("inf"):
            raise ValueError(f"bias_start must be a finite number, got {bias_start!r}")
        OrthogonalRecurrentLayer.__init__(
            self, input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
        )
        self._settings(nonlinearity, rho, bandwidth, backend)
        self.activation, self.learn_h0 = nonlinearity, learn_h0
        self.input_scale, self.bias_start = float(input_scale), float(bias_start)
        self.build(device, dtype)

    def reset_parameters(self) -> None:
        for suffix in self.suffixes():
            self._reset(suffix)
            if self.learn_h0:
                nn.init.zeros_(self.get_parameter(f"h0{suffix}"))

    def extra_repr(self) -> str:
        return f"{OrthogonalRecurrentLayer.extra_repr(self)}, {self._repr_settings()}"


class ScoRNNCell(_ScaledCayleyWeights):
    """One step of :class:`ScoRNN`, with the contract of :class:`torch.nn.RNNCell`.

    Inputs: ``input (B, m)`` or ``(m,)``, and ``hx (B, n)`` or ``(n,)``, zero if not given. Output: the next state.

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
        backend: str = "auto",
    ) -> None:
        super().__init__()
        check_sizes(input_size=input_size, hidden_size=hidden_size)
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        self._settings(nonlinearity, rho, bandwidth, backend)
        self.make_parameters("", input_size, device, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        self._reset("")

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        if input.dim() not in (1, 2):
            raise ValueError(f"ScoRNNCell: Expected input to be 1D or 2D, got {input.dim()}D instead")
        if hx is not None and hx.dim() != input.dim():
            raise ValueError(f"ScoRNNCell: Expected hidden to be {input.dim()}D like input, got {hx.dim()}D instead")
        if input.shape[-1] != self.input_size:
            raise RuntimeError(f"input has inconsistent input_size: expected {self.input_size}, got {input.shape[-1]}")
        x = input.reshape(1, -1, self.input_size)
        h = x.new_zeros(x.shape[1], self.hidden_size) if hx is None else hx.reshape(-1, self.hidden_size)
        if h.shape[0] != x.shape[1]:
            raise RuntimeError(f"Input batch size {x.shape[1]} doesn't match hidden batch size {h.shape[0]}")
        b = self.get_parameter("bias_hh") if self.bias else None
        _, h_n = ops.recurrence(
            x,
            h,
            self.recurrent_matrix(""),
            self.weight_ih,
            b,
            activation=self.nonlinearity,
            backend=self.backend,
        )
        return h_n if input.dim() == 2 else h_n.squeeze(0)

    def orthogonality_error(self) -> float:
        with torch.no_grad():
            return float(orthogonality_error(self.recurrent_matrix("")))

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}, {self._repr_settings()}"
