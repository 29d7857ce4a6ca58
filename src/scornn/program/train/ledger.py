"""Where a run stands, in plain values: with the engine's state it is all that a checkpoint holds."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from scornn.program.train.figures import Figures, Weights

_PLAIN = ("step", "window", "evaluate", "reached", "seconds", "elapsed")
_FIGURES = ("final", "best", "best_by_valid")


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
    figures: dict[Weights, Figures] = field(default_factory=lambda: {"raw": Figures(), "average": Figures()})
    """Of the weights that are stepped, and of their average."""

    def to_table(self) -> dict[str, Any]:
        """What a checkpoint holds: the figures of the raw weights lie flat in it."""
        plain = {name: getattr(self, name) for name in _PLAIN}
        average = self.figures["average"]
        return {
            **plain,
            **asdict(self.figures["raw"]),
            "average": {**asdict(average), "kept_best": average.kept_step},
        }

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> "Ledger":
        """The ledger of a checkpoint."""
        tables: dict[Weights, Mapping[str, Any]] = {"raw": table, "average": table.get("average", {})}
        figures = {
            which: Figures(**{key: part[key] for key in _FIGURES if key in part}) for which, part in tables.items()
        }
        return cls(**{name: table[name] for name in _PLAIN}, figures=figures)
