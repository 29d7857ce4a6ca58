"""The scaled Cayley transform from the free numbers of A to W, and back, as one operator of the kernel.

Around one matrix of a thousand numbers torch spends more time between its functions than in them; a large one
waits for LAPACK's inverse, which runs at a tenth of the processor's speed. The kernel eliminates without exchanges
(``csrc/cayley.h``). Where that is not accurate, because A is very large, torch's inverse takes its place.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import torch
from torch import Tensor

from scornn.functional import scaled_cayley, skew
from scornn.ops import library, native
from scornn.ops.custom import register
from scornn.torch_internals import under_transform

_DTYPE = {torch.float32: 0, torch.float64: 1}


def cayley(v: Tensor, D: Tensor, bandwidth: int | None = None, backend: str = "auto") -> Tensor:
    """W = (I + A)⁻¹(I − A)D of the free numbers of A, in float32 or float64.

    It is ``scaled_cayley(skew(v, n, bandwidth), D)``, which defines it and runs where the kernel cannot: on a GPU,
    under torch.func's transforms, for a batch of matrices, and where D has a gradient.

    Args:
        v: ``(n(n−1)/2,)``, or as many as :func:`scornn.functional.skew` takes for the bandwidth.
        D: ``(n,)``, each 1 or −1.
        backend: ``naive`` for torch's inverse.

    Example:
        >>> cayley(torch.tensor([1.0]), torch.tensor([1.0, 1.0]))
        tensor([[ 0., -1.],
                [ 1.,  0.]])
    """
    n = D.shape[-1]
    kernel = (
        backend in ("auto", "native")
        and v.device.type == D.device.type == "cpu"
        and v.dtype == D.dtype
        and v.dtype in _DTYPE
        and v.dim() == D.dim() == 1
        and n > 0
        and not D.requires_grad
        and not under_transform()
        and native.unavailable() is None
    )
    if not kernel:
        return _plain(v, D, bandwidth)
    band = n - 1 if bandwidth is None else min(bandwidth, n - 1)
    if v.numel() != n * band - band * (band + 1) // 2:
        skew(v, n, bandwidth)  # says what was expected
    return _operator(v, D, band)[0]


def _plain(v: Tensor, D: Tensor, bandwidth: int | None) -> Tensor:
    return scaled_cayley(skew(v, D.shape[-1], bandwidth), D)


def _struct(n: int, band: int, dtype: torch.dtype, **arrays: Tensor) -> library.CayleyStruct:
    # Of the squared norms of W's rows; those of torch's inverse of a random A are as far off.
    tolerance = 4 * n**0.5 * torch.finfo(dtype).eps
    pointers = {name: array.data_ptr() for name, array in arrays.items()}
    return library.CayleyStruct(n, band, _DTYPE[dtype], native.loaded().isa, tolerance, **pointers)


class Arguments(NamedTuple):
    v: Tensor
    D: Tensor
    band: int


def _forward(given: Arguments) -> tuple[Tensor, Tensor]:
    v, D, band = given
    n = D.shape[0]
    if v.dtype != D.dtype or v.dtype not in _DTYPE or v.shape != (n * band - band * (band + 1) // 2,):
        raise ValueError(
            f"cayley: v {tuple(v.shape)} {v.dtype} and D {tuple(D.shape)} {D.dtype} do not belong together"
        )
    v, D = native.dense(v), native.dense(D)
    W, R = v.new_empty(n, n), v.new_empty(n, n)
    status = native.loaded().cayley_forward(ctypes.byref(_struct(n, band, v.dtype, v=v, D=D, W=W, R=R)))
    if status == library.INACCURATE:
        W = _plain(v, D, band)
        R = (W * D + torch.eye(n, dtype=v.dtype)) / 2
    elif status:
        raise RuntimeError(f"the native kernel failed: {library.STATUS[status]}")
    return W, R


def _empty_results(v: Tensor, D: Tensor, band: int) -> tuple[Tensor, Tensor]:
    n = D.shape[0]
    return v.new_empty(n, n), v.new_empty(n, n)


def _backward(grads: Any, kept: Any, arguments: Any, needs: Any) -> list[Tensor | None]:
    (v, D, band), (R,) = arguments, kept
    dW, R, D, dv = native.dense(grads[0]), native.dense(R), native.dense(D), torch.empty_like(v).contiguous()
    status = native.loaded().cayley_backward(ctypes.byref(_struct(D.shape[0], band, v.dtype, D=D, R=R, dW=dW, dv=dv)))
    if status:
        raise RuntimeError(f"the native kernel failed: {library.STATUS[status]}")
    return [dv, None]


_operator = register(
    "cayley",
    Arguments,
    _forward,
    _backward,
    empty=_empty_results,
    differentiable=1,
    kept=(1,),
    plain=lambda given: (_plain(*given),),
    flops=lambda v, D, band: 2 * D[0] ** 3,
)
