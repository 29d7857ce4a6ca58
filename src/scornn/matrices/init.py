"""Initialisations, each filling a tensor in place from the global random generator."""

from __future__ import annotations

import math

import torch
from torch import Tensor


@torch.no_grad()
def cayley_rotations_(v: Tensor, n: int, bandwidth: int | None = None) -> Tensor:
    r"""The paper's initialisation of A (section 4.2), in the free numbers of :func:`scornn.functional.skew`.

    Zero except 2 × 2 blocks at (2j, 2j+1) with :math:`s_j = \tan(t_j/2)`, :math:`t_j \sim U[0, \pi/2]`, which is
    the paper's :math:`\sqrt{(1-\cos t_j)/(1+\cos t_j)}`. The Cayley transform turns block j into a rotation by
    :math:`t_j`. For odd n the last row is zero.

    The blocks have +s_j above the diagonal, as in the paper; the authors' program has −s_j, which is the same
    distribution of W up to a transpose.
    """
    blocks = torch.tensor(_block_places(n, bandwidth), dtype=torch.long, device=v.device)
    t = v.new_empty(blocks.numel()).uniform_(0, math.pi / 2)
    return v.zero_().index_copy_(0, blocks, torch.tan(t / 2))


@torch.no_grad()
def rotation_angles_(v: Tensor, n: int) -> Tensor:
    r"""Henaff's start: the free numbers of a skew A with angles :math:`t_j \sim U(-\pi, \pi)` in its 2 × 2 blocks.

    The exponential map turns block j into a rotation by :math:`t_j`.
    """
    blocks = torch.tensor(_block_places(n), dtype=torch.long, device=v.device)
    return v.zero_().index_copy_(0, blocks, v.new_empty(blocks.numel()).uniform_(-math.pi, math.pi))


def _block_places(n: int, bandwidth: int | None = None) -> list[int]:
    """Where the entries (2j, 2j+1) stand among the free numbers of :func:`scornn.functional.skew`: first in their rows.

    Without tensors, so that it is the same on the meta device and under fake tensors.
    """
    band = n - 1 if bandwidth is None else bandwidth
    places, first = [], 0
    for row in range(n - 1 if band else 0):
        places += [first] * (row % 2 == 0)
        first += min(n - 1 - row, band)
    return places
