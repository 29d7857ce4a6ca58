"""ScoRNN, the paper's layer: a recurrent matrix kept orthogonal by the scaled Cayley transform."""

from __future__ import annotations

import torch
from torch import nn

from scornn.matrices import ScaledCayley
from scornn.matrices.checks import check_number
from scornn.nn.catalogue import model
from scornn.nn.rnn import RNN, uniform, zero


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
class ScoRNN(RNN):
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

    matrix_class = ScaledCayley
    default_nonlinearity = "modrelu"

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
        self.input_scale = check_number("input_scale", input_scale, "a positive number", lambda number: number > 0)
        self.bias_start = check_number("bias_start", bias_start)
        size = (input_size, hidden_size, num_layers, nonlinearity, bias, batch_first, dropout, bidirectional)
        cayley = {"rho": rho, "bandwidth": bandwidth}
        super().__init__(*size, device, dtype, learn_h0=learn_h0, backend=backend, **cayley)  # type: ignore[arg-type]

    @torch.no_grad()
    def reset(self, suffix: str) -> None:
        """Section 4.2 and the authors' program: rotations in A, the last rho signs −1, small U, b = 0."""
        U, b, h0 = self.others(suffix)
        self.matrix(suffix).reset()
        uniform(self.input_scale, U)
        if b is not None:
            nn.init.constant_(b, self.bias_start)
        zero(h0)

    @property
    def rho(self) -> int | tuple[int, ...]:
        """The number of −1 in D, of each layer and direction where they differ; as asked for where D has no values."""
        counts = tuple(self.matrix(suffix).rho for suffix in self.suffixes())
        return counts[0] if len(set(counts)) == 1 else counts

    def require_cayley(self, what: str) -> None:
        """Refuse ``what``, which copies A and D, where its class computes something else with them."""
        self.require_described(what)
        if any(type(self.matrix(suffix)) is not ScaledCayley for suffix in self.suffixes()):
            raise TypeError(f"{what}: it makes its W in a way of its own")

    def extra_repr(self) -> str:
        own = self.matrix("_l0").extra_repr()
        return super().extra_repr().replace(own, own.replace(f"rho={self.matrix('_l0').rho}", f"rho={self.rho}"))
