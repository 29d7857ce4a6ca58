"""The exponential of a skew-symmetric matrix, and its gradient, from one eigendecomposition.

Several times faster than a general exponential with its gradient, and closer to orthogonal. With −iA = V Λ V*,
exp(A) = V e^{iΛ} V*, and its derivative in the direction E is V [Φ ∘ (V* E V)] V* where
Φ_jk = (e^{iλ_j} − e^{iλ_k}) / i(λ_j − λ_k) = e^{i(λ_j+λ_k)/2} sinc((λ_j − λ_k)/2), also where eigenvalues coincide.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from scornn.ops.custom import register
from scornn.torch_internals import under_transform

# Conjugates are taken by conj_physical: inside an operator that torch.compile runs, the lazy conjugate bit is lost.


def _unit(theta: Tensor) -> Tensor:
    return torch.complex(theta.cos(), theta.sin())


def _forward(given: Arguments) -> tuple[Tensor, Tensor, Tensor]:
    A = given.A
    L, V = torch.linalg.eigh(torch.complex(torch.zeros_like(A), -A))
    V = V.contiguous()
    W = (V * _unit(L)) @ V.mT.conj_physical()
    return W.real.clone(), L, V


def _empty_results(A: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return A.new_empty(A.shape), A.new_empty(A.shape[:-1]), A.new_empty(A.shape, dtype=A.dtype.to_complex())


def _backward(grads: Any, kept: Any, arguments: Any, needs: Any) -> list[Tensor]:
    (G,), (L, V) = grads, kept
    half = _unit(-L / 2)
    between = torch.sinc((L.unsqueeze(-1) - L) / (2 * math.pi))
    phi = half.unsqueeze(-1) * half * between  # the conjugate of Φ
    adjoint = V.mT.conj_physical()
    gradient: Tensor = V @ (phi * (adjoint @ G.to(V.dtype) @ V)) @ adjoint
    return [gradient.real.clone()]


class Arguments(NamedTuple):
    A: Tensor


_operator = register(
    "skew_exponential",
    Arguments,
    _forward,
    _backward,
    empty=_empty_results,
    results=3,
    differentiable=1,
    kept=(1, 2),
    plain=lambda given: (torch.linalg.matrix_exp(given.A),),
    flops=lambda A: 2 * math.prod(A) * A[-1],
)


def skew_exponential(A: Tensor) -> Tensor:
    """exp(A) of a real skew-symmetric A ``(n, n)``, in float32 or float64: orthogonal to rounding.

    Under torch.func's transforms, for which this one has no rule, torch's general exponential.

    Example:
        >>> quarter = math.pi / 2
        >>> skew_exponential(torch.tensor([[0.0, -quarter], [quarter, 0.0]])).round().abs()
        tensor([[0., 1.],
                [1., 0.]])
    """
    return torch.linalg.matrix_exp(A) if under_transform() else _operator(A)[0]
