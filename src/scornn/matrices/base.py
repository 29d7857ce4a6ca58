"""A matrix is a module: it owns the free numbers that make W, and serves a layer, a cell, or any module of torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from scornn import ops
from scornn.functional import full_precision, orthogonality_error
from scornn.matrices.caching import once, tensors_of
from scornn.matrices.checks import check_sizes, is_sharded, precise
from scornn.ops.activations import ACTIVATIONS
from scornn.ops.layout import Layout

Head = tuple[Tensor, Tensor]
"""V and c of a linear head on the states."""


class Matrix(nn.Module):
    r"""A square matrix W made from free numbers.

    A matrix of one's own registers its numbers in the constructor and ends it with ``self.reset()``. It defines
    :meth:`reset` and :meth:`forward`; or, where W is applied and never formed, :meth:`multiplier` in place of it;
    :meth:`assign` if it can take a matrix; and :meth:`error`, if :attr:`orthogonal` does not say it all. Then
    ``scornn.nn.RNN(…, matrix=…)`` takes it, and it parametrizes a weight of any module::

        torch.nn.utils.parametrize.register_parametrization(linear, "weight", scornn.ScaledCayley(8))

    The weight then starts as the matrix does, and what is assigned to it afterwards goes to :meth:`assign`.

    Args:
        n: number of units.
    """

    complex: bool = False
    """Whether the units are complex: W is then the real form ``(2n, 2n)``, on adjacent pairs (Re, Im)."""

    orthogonal: bool = False
    """Whether W is orthogonal whatever the free numbers are."""

    signs: tuple[str, ...] = ()
    """Names of buffers that hold 1 and −1 alone, and that training does not change."""

    averages: bool = True
    """Whether an average of the free numbers over training means anything."""

    constraints: int = 0
    """How many of the trained numbers a constraint takes away: their count less this is the paper's count."""

    def __init__(self, n: int) -> None:
        super().__init__()
        check_sizes(n=n)
        self.n = n
        self._parametrizes = False

    def reset(self) -> None:
        """Draw the free numbers from the global random generator."""
        raise NotImplementedError

    def forward(self) -> Tensor:
        """W ``(size, size)``, differentiable with respect to the free numbers."""
        like = self.like
        return self.multiplier()(torch.eye(self.size, dtype=like.dtype, device=like.device)).mT

    def multiplier(self) -> Callable[[Tensor], Tensor]:
        """``h ↦ h Wᵀ`` for states ``(B, size)``: what a loop over time calls in every step."""
        if self.is_applied:
            raise NotImplementedError(f"{type(self).__name__} has neither a forward() nor a multiplier()")
        W = self.W()
        return lambda h: h @ W.mT

    @torch.no_grad()
    def assign(self, W: Tensor) -> None:
        """Make W this matrix."""
        names = ", ".join(name for name, _ in self.named_parameters())
        raise AttributeError(
            f"{type(self).__name__} makes its matrix from {names}, and cannot be assigned to; change those, or take "
            "scornn.ScaledCayley, the matrix of scornn.ScoRNN, which takes any orthogonal one"
        )

    @torch.no_grad()
    def error(self) -> float | None:
        """‖WᵀW − I‖_F of W as it is used, in float32 or better; None where W is not constrained."""
        return float(orthogonality_error(precise(self.W()))) if self.orthogonal else None

    def penalty(self) -> Tensor | None:
        """What the training loss should add for this matrix, or None."""
        return None

    def retract_(self) -> None:
        """Put numbers that were averaged back to where they belong; nothing to do where every number is free."""

    def after_step(self) -> None:
        """What is done after each step of the optimizer: nothing, unless a matrix says otherwise."""

    @property
    def size(self) -> int:
        """Rows of W: reals in the state."""
        return 2 * self.n if self.complex else self.n

    @property
    def like(self) -> Tensor:
        """Any parameter or buffer, for its dtype and device."""
        return next(tensors_of(self))

    @property
    def is_applied(self) -> bool:
        """Whether W is never formed: the class has a :meth:`multiplier` alone."""
        return type(self).forward is Matrix.forward

    def W(self) -> Tensor:
        """:meth:`forward` without autocast, once inside :func:`scornn.cached`."""
        return once(self, self.fresh)

    def fresh(self) -> Tensor:
        """:meth:`forward` without autocast; of sharded numbers, gathered."""
        with full_precision(self.like):
            if torch.compiler.is_compiling() or not any(map(is_sharded, tensors_of(self))):
                W: Tensor = self()
                return W
            named: dict[str, Any] = dict(self.named_parameters())
            whole = {name: p.full_tensor() for name, p in named.items() if is_sharded(p)}
            return functional_call(self, whole, ())

    def recurrence(
        self, x: Tensor, h0: Tensor, U: Tensor, b: Tensor | None, head: Head | None = None, **settings: Any
    ) -> tuple[Tensor, Tensor]:
        """h_t = act(U x_t + W h_{t−1}): the states, or a head on each, and the last of each sequence.

        Arguments, settings and result as :func:`scornn.ops.recurrence` and :func:`scornn.ops.readout`.
        """
        if self.is_applied:
            return read(self._loop(x, h0, U, b, **settings), head)
        if head is None:
            return ops.recurrence(x, h0, self.W(), U, b, **settings)
        return ops.readout(x, h0, self.W(), U, b, *head, **settings)

    def _loop(
        self, x: Tensor, h0: Tensor, U: Tensor, b: Tensor | None, activation: str, reverse: bool, **others: Any
    ) -> tuple[Tensor, Tensor]:
        """One product after the other, in PyTorch."""
        act, layout = ACTIVATIONS[activation].value, Layout.of(x, others["batch_sizes"], reverse)
        with full_precision(x):
            multiply = self.multiplier()
            steps = layout.walk(layout.rows(x) @ U.mT, (h0,), lambda h, Ux: (act(Ux + multiply(h[0]), b),))
        return steps[0][0], steps[1][0]

    @torch.no_grad()
    def frozen(self) -> Matrix:
        """The same W with constants for its numbers."""
        return Constant(self.W().clone(), self.complex)

    def right_inverse(self, W: Tensor) -> tuple[()]:
        """For :mod:`torch.nn.utils.parametrize`, which calls it at registration and at every assignment."""
        if self._parametrizes:
            self.assign(W)
        else:
            self.to(W.device, W.dtype)
        self._parametrizes = True
        return ()


def read(states: tuple[Tensor, Tensor], head: Head | None) -> tuple[Tensor, Tensor]:
    """A head on every state, where there is one, and the last states."""
    return states if head is None else (F.linear(states[0], *head), states[1])


class Constant(Matrix):
    """A matrix that nothing trains: a buffer ``weight``."""

    weight: Tensor

    def __init__(self, W: Tensor, complex: bool = False) -> None:
        super().__init__(W.shape[-1] // (2 if complex else 1))
        self.complex = complex
        self.register_buffer("weight", W)

    def forward(self) -> Tensor:
        return self.weight

    def W(self) -> Tensor:
        return self.weight
