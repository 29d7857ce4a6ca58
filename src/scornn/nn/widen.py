"""A trained network with more units: what it computes stays, and there is room to learn more."""

from __future__ import annotations

import copy
import inspect
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from scornn.functional import skew, skew_indices
from scornn.matrices import ScaledCayley, init
from scornn.matrices.checks import check_sizes
from scornn.nn.model import SequenceModel
from scornn.nn.scornn import ScoRNN

Network = TypeVar("Network", ScoRNN, SequenceModel)


@torch.no_grad()
def widen(network: Network, hidden_size: int, *, rho: int | None = None) -> Network:
    r"""A copy of ``network`` with ``hidden_size`` units, whose outputs are those of ``network`` to rounding.

    .. math::
        A = \begin{pmatrix} A_0 & 0 \\ 0 & A_1 \end{pmatrix}, \quad D = \begin{pmatrix} D_0 & 0 \\ 0 & D_1 \end{pmatrix}
        \quad\Rightarrow\quad W = \begin{pmatrix} W_0 & 0 \\ 0 & W_1 \end{pmatrix}

    so that W is orthogonal as before. The new units start as those of a new layer do, and nothing reads them yet:
    neither the old units, nor a layer above, nor the head of a :class:`SequenceModel`. Training joins them to the rest
    from its first steps on.

    Args:
        network: a :class:`ScoRNN`, whose first units keep their states, or a :class:`SequenceModel` of one.
        hidden_size: more than it has.
        rho: the number of −1 in D, those of ``network`` and as many among the new units as are missing. Default: the
            share of n that ``network`` has, rounded.

    Example:
        >>> from scornn.nn import ScoRNN, SequenceModel
        >>> small, x = SequenceModel(ScoRNN(1, 8), 10, read="last"), torch.randn(20, 3, 1)
        >>> torch.allclose(widen(small, 12)(x), small(x), atol=1e-5)
        True
    """
    if isinstance(network, ScoRNN):
        return _layer(network, hidden_size, rho)
    if not isinstance(network, SequenceModel) or not isinstance(network.layer, ScoRNN):
        found = type(getattr(network, "layer", network)).__name__
        raise TypeError(f"widen takes a ScoRNN or a SequenceModel of one, got {found}")
    wide = copy.deepcopy(network)
    wide.layer = _layer(network.layer, hidden_size, rho)
    first = wide.head if isinstance(wide.head, nn.Linear) else wide.head[0]
    if not isinstance(first, nn.Linear):
        raise TypeError(f"widen: the head begins with a {type(first).__name__}, expected a Linear")
    V = first.weight
    first.weight = nn.Parameter(_columns(V, network.layer, hidden_size), V.requires_grad)
    first.in_features = wide.layer.output_size
    return wide


def _layer(layer: ScoRNN, n: int, rho: int | None) -> ScoRNN:
    layer.require_cayley(f"a {type(layer).__name__} cannot be widened")
    old = layer.hidden_size
    check_sizes(hidden_size=n)
    if n <= old:
        raise ValueError(f"hidden_size: expected more than the {old} units that there are, got {n}")
    settings = inspect.signature(ScoRNN).parameters.keys() - {"hidden_size", "device", "dtype", "rho"}
    given: dict[str, Any] = {name: getattr(layer, name) for name in settings}
    wide = ScoRNN(**given, hidden_size=n, rho=rho, device=layer.like.device, dtype=layer.like.dtype)
    for suffix in layer.suffixes():
        narrow, matrix = layer.matrix(suffix), wide.matrix(suffix)
        D = narrow.sign
        there = int((D < 0).sum())
        most = there + n - old
        wanted = round(there * n / old) if rho is None else rho
        if not there <= wanted <= most:
            raise ValueError(f"rho: D has {there} entries −1 and grows by {n - old}: expected {there}..{most}")
        missing = wanted - there
        matrix.sign.copy_(torch.cat([D, D.new_ones(n - old - missing), -D.new_ones(missing)]))
        matrix.skew.copy_(_skew(narrow, n))
        (U, b, h0), (inputs, *others) = wide.others(suffix), layer.others(suffix)
        U[:old] = inputs if suffix.startswith("_l0") else _columns(inputs, layer, n)
        for ours, theirs in zip((b, h0), others, strict=True):
            if ours is not None:
                ours[:old] = theirs
    for name, parameter in wide.named_parameters():
        parameter.requires_grad_(layer.get_parameter(name).requires_grad)
    return wide.train(layer.training)


def _skew(matrix: ScaledCayley, n: int) -> Tensor:
    """The free numbers of A with the matrix's in its first rows and columns, and new rotations in the others."""
    old, v, band = matrix.n, matrix.skew, matrix.bandwidth
    width = min(n - old - 1, n if band is None else band)
    new = init.cayley_rotations_(v.new_empty((n - old) * width - width * (width + 1) // 2), n - old, width)
    A = torch.block_diag(skew(v, old, band), skew(new, n - old, width))
    row, column = skew_indices(n, band, v.device)
    return A[row, column]


def _columns(weight: Tensor, layer: ScoRNN, n: int) -> Tensor:
    """A matrix on the outputs of a layer, on those of a wider one: zero where the new units of a direction come in."""
    by_direction = weight.unflatten(1, (layer.num_directions, layer.hidden_size))
    return nn.functional.pad(by_direction, (0, n - layer.hidden_size)).flatten(1)
