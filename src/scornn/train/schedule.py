"""How the learning rates go over a run: a factor for every step, so that the position is the whole state."""

import math
from typing import Annotated, Literal

from msgspec import Meta, Struct

from scornn.errors import UsageError


class Schedule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``constant``, as in the paper; ``halving`` in ``every`` steps, smoothly; ``cosine`` or ``linear`` to zero.

    The last two end with the run: one that is given a later end goes on at the rates of the longer run. ``warmup``
    is a number of steps over which the factor rises from zero, in a line.
    """

    kind: Literal["constant", "halving", "cosine", "linear"]
    warmup: Annotated[int, Meta(ge=0, le=1 << 40)] = 0
    every: Annotated[int, Meta(ge=1, le=1 << 40)] | None = None

    def check(self, key: str) -> None:
        """Refuse what one field's range cannot say."""
        if self.kind == "halving" and self.every is None:
            raise UsageError(f"{key}.every is missing: halving needs the steps in which the rates fall to half")
        if self.kind != "halving" and self.every is not None:
            raise UsageError(f"{key}.every = {self.every}: only halving takes it, not {self.kind}")

    @property
    def looks_at_the_end(self) -> bool:
        """Whether the factor depends on how long the run is."""
        return self.kind in ("cosine", "linear")

    def factor(self, step: int, total: int) -> float:
        """What multiplies the rates at ``step``, from 0, of a run of ``total`` steps."""
        if step < self.warmup:
            return (step + 1) / (self.warmup + 1)
        if self.kind == "halving":
            assert self.every is not None
            return float(0.5 ** (step / self.every))
        done = min(1.0, (step - self.warmup) / max(1, total - self.warmup))
        if self.kind == "cosine":
            return 0.5 * (1 + math.cos(math.pi * done))
        return 1 - done if self.kind == "linear" else 1.0
