"""Where each time step's rows lie, and the one loop over them: padded, packed, forward and reversed sequences.

For that loop (:class:`Layout`) a padded batch ``(T, B, m)`` is a packed one whose batch size never shrinks, so both are
rows ``(N, m)`` with a batch size for each step; what needs no loop (:class:`Order`) takes both as ``(T, B, m)``.
Packed sequences are sorted by length: step t holds the first ``sizes[t]`` of them.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

States = tuple[Tensor, ...]
"""The states of a recurrence at one step, ``(rows, n)`` each: h alone, or h and c."""


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

    def __init__(self, sizes: list[int], reverse: bool, packed: bool) -> None:
        starts = [0, *accumulate(sizes)]
        order = range(len(sizes) - 1, -1, -1) if reverse else range(len(sizes))
        self.sizes, self.reverse, self.packed = sizes, reverse, packed
        self.steps: list[Step] = []
        before, available = 0, 0
        for t in order:
            self.steps.append(Step(starts[t], sizes[t], before, min(available, sizes[t])))
            before, available = starts[t], sizes[t]

    @classmethod
    def of(cls, x: Tensor, batch_sizes: Tensor | None, reverse: bool) -> Layout:
        if batch_sizes is None:
            return cls([x.shape[1]] * x.shape[0], reverse, packed=False)
        return cls(batch_sizes.tolist(), reverse, packed=True)

    def rows(self, x: Tensor) -> Tensor:
        """``(T, B, ·)`` or ``(N, ·)`` as rows ``(N, ·)``."""
        return x if self.packed else x.flatten(0, 1)

    def walk(self, added: Tensor, first: States, advance: Callable[[States, Tensor], States]) -> tuple[States, States]:
        """Take all steps: the states ``(T, B, n)`` or ``(N, n)``, and the last of each sequence ``(B, n)``.

        Args:
            added: what the input adds to a step, as rows ``(N, ·)``.
            first: the states before the first step, ``(B, n)`` each.
            advance: from the states before a step and its rows of ``added`` to the states after it.
        """
        states: States = tuple(h[:0] for h in first)
        every: list[States] = []
        parts = added.split(self.sizes)
        for step, here in zip(self.steps, reversed(parts) if self.reverse else parts, strict=True):
            if step.carried < step.size:
                begin = slice(step.carried, step.size)
                states = tuple(torch.cat([h, h0[begin]]) for h, h0 in zip(states, first, strict=True))
            states = advance(tuple(h[: step.size] for h in states), here)
            every.append(states)
        outputs = tuple(torch.cat(steps) for steps in zip(*(every[::-1] if self.reverse else every), strict=True))
        last = self.last_rows(added.device)
        ends = tuple(h.index_select(0, last) for h in outputs)
        shape = (len(self.sizes), self.sizes[0])
        return outputs if self.packed else tuple(h.unflatten(0, shape) for h in outputs), ends

    def walk_back(
        self,
        output: Tensor | None,
        h_n: Tensor | None,
        h0: Tensor,
        pull: Callable[[Tensor, slice], Tensor],
        like: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Take all steps backwards: a gradient for every row, shaped as ``like``, and that of h0.

        Args:
            output, h_n: the gradients of the states and of the last ones; None is zero.
            pull: from the gradient of a step's states, which it may overwrite by the one to be returned, and the step's
                rows, to the gradient of the states before it.
        """
        every = torch.zeros_like(like) if output is None else output.reshape(like.shape).clone()
        if h_n is not None:
            every.index_add_(0, self.last_rows(every.device), h_n)
        dh0 = torch.zeros_like(h0)
        for step in reversed(self.steps):
            dh = pull(every[step.rows], step.rows)
            every[step.before : step.before + step.carried] += dh[: step.carried]
            dh0[step.carried : step.size] += dh[step.carried :]
        return every, dh0

    def last_rows(self, device: torch.device) -> Tensor:
        """For each sequence the row that holds its last state, in the order of time taken."""
        rows: list[int] = []
        for step in (
            reversed(self.steps) if not self.reverse else self.steps[-1:]
        ):  # sequences end where the batch shrinks
            rows.extend(range(step.start + len(rows), step.start + step.size))
        return torch.tensor(rows, dtype=torch.long, device=device)

    def states_before(self, output: Tensor, h0: Tensor) -> Tensor:
        """For each row the state that the recurrence came from: ``(N, n)``."""
        previous = torch.empty_like(output)
        for step in self.steps:
            here = previous[step.rows]
            here[: step.carried] = output[step.before : step.before + step.carried]
            here[step.carried :] = h0[step.carried : step.size]
        return previous


class Order:
    """All steps of a batch at once in the order of computation, ``(T, B, ·)``, for what takes them without a loop.

    Packed sequences are padded with zeros: after their end, or with ``end`` before their beginning, so that all of
    them end together. Of their rows ``index`` is the order of computation, and ``places`` is where each stands among
    the T · B.
    """

    def __init__(self, x: Tensor, batch_sizes: Tensor | None, reverse: bool, end: bool = False) -> None:
        self.reverse, self.packed = reverse, batch_sizes is not None
        if batch_sizes is None:
            self.steps, self.batch = x.shape[:2]
            return
        sizes = batch_sizes.cpu()
        self.steps, self.batch = len(sizes), int(sizes[0])
        starts = sizes.cumsum(0) - sizes
        columns = torch.arange(self.batch, device="cpu")
        lengths = (sizes.unsqueeze(1) > columns).sum(0)
        k = torch.arange(self.steps, device="cpu").unsqueeze(1)
        if end:
            k = k - (self.steps - lengths)
        there = (k >= 0) & (k < lengths)
        t = lengths - 1 - k if reverse else k.expand(-1, self.batch)
        rows = (starts[t.clamp(0, self.steps - 1)] + columns)[there]
        self.lengths, self.index = lengths.to(x.device), rows.to(x.device)
        self.places = there.flatten().nonzero().squeeze(1).to(x.device)

    def steps_of(self, x: Tensor) -> Tensor:
        if not self.packed:
            return x.flip(0) if self.reverse else x
        padded = x.new_zeros(self.steps * self.batch, x.shape[-1]).index_copy(0, self.places, x[self.index])
        return padded.unflatten(0, (self.steps, self.batch))

    def rows_of(self, h: Tensor) -> Tensor:
        """The reverse of :meth:`steps_of`."""
        if not self.packed:
            return h.flip(0) if self.reverse else h
        return h.new_empty(len(self.index), h.shape[-1]).index_copy(0, self.index, self.kept(h))

    def kept(self, h: Tensor) -> Tensor:
        """The steps of packed sequences without the padding, in the order of computation: ``(N, ·)``."""
        return h.flatten(0, 1)[self.places]

    def last_of(self, h: Tensor) -> Tensor:
        return h[self.lengths - 1, torch.arange(self.batch, device=h.device)] if self.packed else h[-1]

    def add_last(self, g: Tensor, last: Tensor) -> Tensor:
        """The transpose of :meth:`last_of`, added to g."""
        if not self.packed:
            return torch.cat([g[:-1], g[-1:] + last])
        return g.index_put((self.lengths - 1, torch.arange(self.batch, device=g.device)), last, accumulate=True)


def side_by_side(steps: Tensor) -> Tensor:
    """``(S, B, m)`` as ``(B, S · m)``."""
    return steps.transpose(0, 1).flatten(1)


def complex_pairs(v: Tensor) -> Tensor:
    """Adjacent pairs ``(…, n, 2)`` as complex numbers ``(…, n)``, wherever they lie in memory."""
    v = v.contiguous()
    moved = torch.compiler.is_compiling() or v.storage_offset() % 2  # the compiler cannot ask for the offset
    return torch.view_as_complex(v.clone() if moved else v)
