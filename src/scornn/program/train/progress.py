"""How training goes, for people: a bar in a terminal, lines elsewhere, nothing when asked for silence."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from scornn.program.progress import Bar

Evaluation = Mapping[str, Mapping[str, float]]
"""Every metric of every split."""

_LIVE_SECONDS = 0.1


@dataclass
class Figures:
    """What is shown: the loss against the baseline, the newest evaluation, speed, orthogonality."""

    total: int
    baseline: float | None
    headline: str
    step: int = 0
    loss: float | None = None
    evaluation: Evaluation = field(default_factory=dict)
    average: Evaluation = field(default_factory=dict)
    orthogonality: float | None = None
    trained: float = 0.0
    made: int = 0

    def text(self) -> str:
        """The figures in one line."""
        parts = []
        if self.loss is not None:
            against = "" if self.baseline is None else f" (baseline {self.baseline:.4g})"
            parts.append(f"loss {self.loss:.4g}{against}")
        for split in ("valid", "test"):
            if self.headline in self.evaluation.get(split, {}):
                text = f"{split} {self.headline} {self.evaluation[split][self.headline]:.4g}"
                averaged = self.average.get(split, {}).get(self.headline)
                parts.append(text if averaged is None else f"{text} (averaged {averaged:.4g})")
        if self.trained:
            parts.append(f"{self.made / self.trained:.3g} steps/s")
        if self.orthogonality is not None:
            parts.append(f"‖WᵀW−I‖ {self.orthogonality:.1e}")
        return " · ".join(parts)


class Silent:
    """Shows nothing: the base of the others, and what every process but the first uses."""

    def __init__(self, figures: Figures) -> None:
        self.figures = figures

    def begin(self, step: int) -> None:
        """Training starts or goes on at this step."""
        self.figures.step = step

    def stepped(self, step: int, loss: float, seconds: float) -> None:
        """A step was made, in so many seconds."""
        self.figures.step, self.figures.loss = step, loss
        self.figures.trained += seconds
        self.figures.made += 1

    def evaluated(self, metrics: Evaluation, orthogonality: float | None, average: Evaluation | None = None) -> None:
        """An evaluation was made, of the averaged weights too where there are any."""
        self.figures.evaluation, self.figures.orthogonality = metrics, orthogonality
        self.figures.average = average or {}

    def close(self) -> None:
        """Leave the terminal as it was."""


class Shown(Silent):
    """A bar and the figures under it; without a terminal a line at every evaluation and one every ten seconds."""

    def __init__(self, figures: Figures) -> None:
        super().__init__(figures)
        self._bar, self._last = Bar(total=figures.total), 0.0

    def begin(self, step: int) -> None:
        super().begin(step)
        self._bar.__enter__()
        self._bar.begin(step)

    def stepped(self, step: int, loss: float, seconds: float) -> None:
        super().stepped(step, loss, seconds)
        if time.perf_counter() - self._last > _LIVE_SECONDS:
            self._show()

    def evaluated(self, metrics: Evaluation, orthogonality: float | None, average: Evaluation | None = None) -> None:
        super().evaluated(metrics, orthogonality, average)
        self._show(line=True)

    def _show(self, line: bool = False) -> None:
        self._last = time.perf_counter()
        figures = self.figures
        self._bar.update(figures.step, f"step {figures.step}/{figures.total} · {figures.text()}", line=line)

    def close(self) -> None:
        self._show()
        self._bar.__exit__()
