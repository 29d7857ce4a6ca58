"""Where a run stands, in plain values: with the engine's state it is all that a checkpoint holds."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from scornn.program.train.engine import Weights

Metrics = dict[str, float]


@dataclass
class Standing:
    """The last and the best evaluations of one kind of weights, and the step whose checkpoint is kept as the best."""

    final: dict[str, Metrics] = field(default_factory=dict)
    best: dict[str, Any] | None = None
    best_by_valid: dict[str, Any] | None = None
    kept_best: int | None = None


@dataclass
class Ledger:
    """Where a run stands."""

    step: int = 0
    window: list[float] = field(default_factory=lambda: [0.0, 0.0])
    """Sum and number of the losses since the last training line."""
    evaluate: bool = False
    """An evaluation is due at this step and has not been made."""
    reached: bool = False
    """``stop_when`` was fulfilled."""
    seconds: float = 0.0
    """In training steps; ``elapsed`` counts evaluations and checkpoints too."""
    elapsed: float = 0.0
    raw: Standing = field(default_factory=Standing)
    average: Standing = field(default_factory=Standing)

    def of(self, weights: Weights) -> Standing:
        """The standing of the weights that are stepped, or of their average."""
        return self.raw if weights == "raw" else self.average

    def to_table(self) -> dict[str, Any]:
        """What a checkpoint holds: the standing of the raw weights lies flat in it, as in version 0.1."""
        table = asdict(self)
        raw = table.pop("raw")
        del raw["kept_best"]
        return {**table, **raw}

    @classmethod
    def from_table(cls, table: Mapping[str, Any], kept_best: int | None) -> "Ledger":
        """The ledger of a checkpoint, one of version 0.1 too."""
        own = {f.name for f in fields(cls)} - {"raw", "average"}
        raw = Standing(table["final"], table["best"], table["best_by_valid"], kept_best)
        average = Standing(**table.get("average", {}))
        return cls(**{key: value for key, value in table.items() if key in own}, raw=raw, average=average)
