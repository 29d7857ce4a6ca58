"""The linear memory: a scoRNN without activation, which is exactly a bank of rotations. Beyond the paper."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from scornn.functional import require_orthogonal
from scornn.matrices import Bank, Matrix
from scornn.matrices.checks import check_number
from scornn.nn.catalogue import model
from scornn.nn.convert import convert
from scornn.nn.rnn import RNN, uniform, zero
from scornn.nn.scornn import ScoRNN
from scornn.ops import bank


@model(
    "linear-memory",
    label="linear memory",
    colour=7,
    marker="X",
    summary="orthogonal and without activation: a bank of rotations",
    equation="h' = Rh + Ux, R = diag(R(θ₁), …, R(θ_{n/2}))",
    source="beyond the paper: its network with the identity for σ",
    bench=(512,),
)
class LinearMemory(RNN):
    r"""A linear scoRNN in the basis where its W is plane rotations (``docs/linear.md``). Not the paper's network.

    .. math::
        h_t = R h_{t-1} + U x_t + b, \qquad
        R = \mathrm{diag}\Bigl(\begin{pmatrix}\cos θ_j & -\sin θ_j\\ \sin θ_j & \cos θ_j\end{pmatrix}\Bigr)

    Every orthogonal W is :math:`Q R Q^T` (its real Schur form), and Q is absorbed by U and by what reads the state: n/2
    angles do what n(n−1)/2 numbers did, R is orthogonal whatever they are, and no step waits for the one before. An
    odd n leaves one unit with a sign, an odd rho in an even n two units, +1 and −1. The state holds everything and
    computes nothing: what reads it should not be linear.

    Args:
        bias: whether there is a b. Default False: a constant input is nothing to remember, and the readout has a bias.
        rho, start: of :class:`scornn.matrices.Bank`; rho may be one number for each layer and direction. ``uniform``
            spreads the memory over all frequencies, and rho then only decides the determinant.
        input_scale: U starts uniform on ± this.

    The others are :class:`~scornn.nn.ScoRNN`'s.

    Attributes:
        angle_hh_l{k}: θ. Their rate should fall with the length: a phase is T·θ.
        sign_hh_l{k}: the signs of the units outside the planes, a buffer.
        weight_ih_l{k}, bias_l{k}: U and b.
        weight_hh_l{k}: R, made from the angles and signs.

    With ``need_output=False`` a call gives ``(None, h_n)``, by one product instead of T steps.

    Example:
        >>> layer = LinearMemory(1, 64)
        >>> output, h_n = layer(torch.randn(784, 3, 1), need_output=False)
        >>> output, h_n.shape
        (None, torch.Size([1, 3, 64]))
    """

    kind = "bank"
    matrix_class = Bank
    default_nonlinearity: ClassVar[str] = "identity"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = False,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        rho: int | Sequence[int] | None = None,
        start: str = "uniform",
        input_scale: float = 0.1,
        learn_h0: bool = False,
        backend: str = "auto",
    ) -> None:
        self.input_scale = check_number("input_scale", input_scale, "a positive number", lambda number: number > 0)
        self._rho = rho
        size = (input_size, hidden_size, num_layers, "identity", bias, batch_first, dropout, bidirectional)
        super().__init__(*size, device, dtype, start=start, learn_h0=learn_h0, backend=backend)

    def make_matrix(self, suffix: str, make: Callable[..., Matrix]) -> Matrix:
        count = len(self.suffixes())
        every = self._rho if isinstance(self._rho, Sequence) else (self._rho,) * count
        if len(every) != count:
            raise ValueError(f"rho: expected one number for each of the {count} layers and directions, got {every!r}")
        return make(rho=every[self.suffixes().index(suffix)])

    @property
    def rho(self) -> tuple[int, ...]:
        """The number of −1 in the D of each scoRNN that it is."""
        return tuple(self.matrix(suffix).rho for suffix in self.suffixes())

    @torch.no_grad()
    def reset(self, suffix: str) -> None:
        U, b, h0 = self.others(suffix)
        self.matrix(suffix).reset()
        uniform(self.input_scale, U)
        zero(b, h0)

    def run_last(
        self, suffix: str, x: Tensor, h0: Tensor, batch_sizes: Tensor | None, reverse: bool
    ) -> tuple[Tensor, Tensor]:
        if self.backend != "auto" or not self.runs_as_described:
            return super().run_last(suffix, x, h0, batch_sizes, reverse)
        last = self.matrix(suffix).last_state(x, h0, *self._input_and_bias(suffix), batch_sizes, reverse)
        return last, last

    def to_scornn(self) -> ScoRNN:
        """The :class:`~scornn.nn.ScoRNN` with W = R and no activation: the same states (constructive Theorem 3.1).

        Example:
            >>> layer, x = LinearMemory(3, 8), torch.randn(5, 2, 3)
            >>> torch.allclose(layer.to_scornn()(x)[0], layer(x)[0], atol=1e-5)
            True
        """
        return convert(self)

    @classmethod
    @torch.no_grad()
    def from_scornn(cls, layer: ScoRNN) -> tuple[LinearMemory, Tensor]:
        """A linear scoRNN as a bank of rotations, and the change of basis.

        The basis Q ``(num_layers · directions, n, n)`` stands in the order of ``h_n``: a state of ``layer`` is Q times
        the memory's. A head V on the states becomes VQ.

        Example:
            >>> layer = scornn.ScoRNN(3, 8, nonlinearity="identity", dtype=torch.float64)
            >>> memory, Q = LinearMemory.from_scornn(layer)
            >>> x = torch.randn(5, 2, 3, dtype=torch.float64)
            >>> torch.allclose(memory(x)[0] @ Q[-1].mT, layer(x)[0])
            True
        """
        if layer.nonlinearity != "identity":
            raise ValueError(
                f"from_scornn: the layer's nonlinearity is {layer.nonlinearity}; only a linear one, identity, is a "
                "bank of rotations"
            )
        layer.require_described(f"from_scornn: no LinearMemory has the states of a {type(layer).__name__}")
        matrices = {suffix: layer.matrix(suffix).fresh() for suffix in layer.suffixes()}
        for W in matrices.values():
            require_orthogonal(W, "from_scornn")
        forms = {suffix: schur(W) for suffix, W in matrices.items()}
        memory = cls(
            **layer.settings(),
            device=layer.like.device,
            dtype=layer.like.dtype,
            rho=[int((bank.sign < 0).sum()) % 2 for bank, _ in forms.values()],
            learn_h0=layer.learn_h0,
            backend=layer.backend,
        )
        inputs = None  # the basis of what the layer reads
        for k in range(layer.num_layers):
            bases = []
            for suffix in layer._suffixes(k):
                form, Q = forms[suffix]
                (ours, *rest), (theirs, *others) = memory.others(suffix), layer.others(suffix)
                U = Q.mT @ theirs.to(Q)
                ours.copy_(U if inputs is None else U @ inputs)
                memory.matrix(suffix).angle.copy_(form.angle)
                memory.matrix(suffix).sign.copy_(form.sign)
                for mine, its in zip(rest, others, strict=True):
                    if mine is not None:
                        mine.copy_(Q.mT @ its.to(Q))
                bases.append(Q)
            inputs = torch.block_diag(*bases)
        return memory.train(layer.training), torch.stack([Q for _, Q in forms.values()]).to(layer.like)

    def extra_repr(self) -> str:
        rho, start = self.rho[0] if len(set(self.rho)) == 1 else self.rho, self.matrix("_l0").start
        text = super().extra_repr().replace(", bias=False", "") + (", bias=True" if self.bias else "")
        return f"{text}, rho={rho}" + ("" if start == "uniform" else f", start={start}")


def schur(W: Tensor) -> tuple[bank.Bank, Tensor]:
    """The real Schur form of an orthogonal W: a bank R and an orthogonal Q with W = Q R Qᵀ, in float64 on the CPU.

    W is normal, so that its Schur form has no entries beside the blocks. An eigenvector of e^{iθ}, 0 < θ < π, spans
    a plane by its real and imaginary part; what is orthogonal to all planes has the eigenvalues ±1.
    """
    W = W.detach().double().cpu()
    eigenvalues, V = _eigenvectors(W)
    V = V[:, eigenvalues.imag > 1e-13]
    turning = 2 * V.shape[1]
    spanning = torch.stack([V.real, V.imag], -1).flatten(-2)
    Q = torch.linalg.qr(torch.cat([spanning, torch.eye(len(W), dtype=W.dtype, device=W.device)], 1)).Q
    rest = Q[:, turning:]
    signs, basis = torch.linalg.eigh(rest.mT @ (W + W.mT) @ rest / 2)
    Q = torch.cat([Q[:, :turning], rest @ basis], 1)
    S = Q.mT @ W @ Q
    even, odd = range(0, turning, 2), range(1, turning, 2)
    sin, cos = (S[odd, even] - S[even, odd]) / 2, (S[even, even] + S[odd, odd]) / 2
    angles, order, single = torch.atan2(sin, cos).tolist(), list(range(turning)), []
    for sign in (1, -1):  # two equal signs are a plane that turns by 0 or π
        units = [turning + k for k in range(len(signs)) if signs[k] * sign > 0]
        pairs = len(units) // 2
        angles += [0.0 if sign > 0 else math.pi] * pairs
        order += units[: 2 * pairs]
        single += [(sign, unit) for unit in units[2 * pairs :]]
    found = bank.Bank(W.new_tensor(angles), W.new_tensor([sign for sign, _ in single]))
    return found, Q[:, order + [unit for _, unit in single]]


def _eigenvectors(W: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues e^{iθ} and orthonormal eigenvectors of an orthogonal W, complex.

    They are those of a Hermitian matrix with the eigenvalues cos(θ − α). Those of two angles are as far apart as the
    angles times |sin(μ − α)|, where μ is their mean: so α stands in the widest gap between the means. Newton's steps
    for a diagonal V*WV take away what rounding has mixed.
    """
    theta = torch.linalg.eigvals(W).angle()
    means = ((theta.unsqueeze(1) + theta) / 2).remainder(math.pi).flatten().sort().values
    gaps = torch.cat([means[1:], means[:1] + math.pi]) - means
    alpha = means[gaps.argmax()] + gaps.max() / 2
    symmetric, skew = (W + W.mT) / 2, (W - W.mT) / 2
    V = torch.linalg.eigh(torch.complex(alpha.cos() * symmetric, -alpha.sin() * skew)).eigenvectors
    for _ in range(2):
        T = V.mH @ W.to(V.dtype) @ V
        gap = T.diagonal() - T.diagonal().unsqueeze(-1)
        step = torch.where(T.abs() < 0.1 * gap.abs(), T / gap, 0)
        V = torch.linalg.qr(V + V @ step).Q
    return (V.conj() * (W.to(V.dtype) @ V)).sum(0), V
