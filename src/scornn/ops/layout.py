"""Where each time step's rows lie: one description for padded, packed, forward and reversed sequences.

A padded batch ``(T, B, m)`` is a packed one whose batch size never shrinks, so both are treated as rows
``(N, m)`` with a batch size for each step. Sequences are sorted by length: step t holds the first
``sizes[t]`` of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor


class Step(NamedTuple):
    """The rows ``start : start + size`` of one time step, and those of the step that was taken before it."""

    start: int
    size: int
    before: int
    carried: int  # how many of the rows continue from the step before; the others begin at h0

    @property
    def rows(self) -> slice:
        return slice(self.start, self.start + self.size)


class Layout:
    """The steps of a recurrence in the order in which they are taken."""

    def __init__(self, sizes: list[int], reverse: bool) -> None:
        starts = [0, *accumulate(sizes)]
        order = range(len(sizes) - 1, -1, -1) if reverse else range(len(sizes))
        self.sizes, self.reverse = sizes, reverse
        self.steps: list[Step] = []
        before, available = 0, 0
        for t in order:
            self.steps.append(Step(starts[t], sizes[t], before, min(available, sizes[t])))
            before, available = starts[t], sizes[t]

    @classmethod
    def of(cls, x: Tensor, batch_sizes: Tensor | None, reverse: bool) -> Layout:
        return cls([x.shape[1]] * x.shape[0] if batch_sizes is None else batch_sizes.tolist(), reverse)

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    def __reversed__(self) -> Iterator[Step]:
        return reversed(self.steps)

    def last_rows(self, device: torch.device) -> Tensor:
        """For each sequence the row that holds its last state, in the order of time taken."""
        if self.reverse:
            return torch.arange(self.sizes[0], device=device)
        rows = torch.empty(self.sizes[0], dtype=torch.long)
        for step in self.steps:
            rows[: step.size] = torch.arange(step.start, step.start + step.size)
        return rows.to(device)

    def states_before(self, output: Tensor, h0: Tensor) -> Tensor:
        """For each row the state that the recurrence came from: ``(N, n)``."""
        previous = torch.empty_like(output)
        for step in self.steps:
            here = previous[step.rows]
            here[: step.carried] = output[step.before : step.before + step.carried]
            here[step.carried :] = h0[step.carried : step.size]
        return previous
