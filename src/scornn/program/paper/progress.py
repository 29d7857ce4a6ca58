"""How a reproduction goes: one bar for all runs, and under it where the present one stands."""

from scornn.program.progress import Bar
from scornn.program.train.progress import Figures, Silent


class Overview(Bar):
    """Counts runs: :meth:`start` opens one, :meth:`stepped` shows where it stands, :meth:`end` closes it."""

    def __init__(self, title: str, total: int, quiet: bool = False) -> None:
        super().__init__(title, total, every=30, shown=not quiet)
        self.done, self.name, self.steps = 0, "", 1

    def start(self, name: str) -> None:
        """A run or measurement starts; ``steps`` is set when its length is known."""
        self.name = name
        self.update(self.done, f"[{self.done + 1}/{self.total}] {name}", line=True)

    def stepped(self, step: int, text: str = "") -> None:
        """It stands at a step."""
        where = f"[{self.done + 1}/{self.total}] {self.name}: step {step}/{self.steps} {text}"
        self.update(self.done + min(1.0, step / self.steps), where.rstrip())

    def end(self, word: str) -> None:
        """It ended."""
        self.done += 1
        self.say(f"[{self.done}/{self.total}] {self.name}: {word}")

    def display(self, figures: Figures) -> Silent:
        """The trainer's view of this."""
        return _Run(figures, self)


class _Run(Silent):
    def __init__(self, figures: Figures, overview: Overview) -> None:
        super().__init__(figures)
        self._overview = overview

    def begin(self, step: int) -> None:
        super().begin(step)
        self._overview.steps = max(1, self.figures.total)
        if step:
            self._overview.say(f"{self._overview.name}: going on from step {step}")

    def stepped(self, step: int, loss: float, seconds: float) -> None:
        super().stepped(step, loss, seconds)
        self._overview.stepped(step, f"loss {loss:.4g}")
