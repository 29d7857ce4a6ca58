"""The tables and figures of the paper, and which presets make their rows and curves, in the paper's order."""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from scornn.errors import UsageError, suggest
from scornn.program.recipes.presets import presets


@dataclass(frozen=True)
class Item:
    """A table or figure. ``kind`` is what is done for each row: training, or training and then a measurement."""

    name: str
    title: str
    source: str
    caption: str
    kind: Literal["training", "gradients", "timing"] = "training"

    @cached_property
    def presets(self) -> tuple[str, ...]:
        """Names of the paper's rows or curves, in its order."""
        return self._of(beyond=False)

    @cached_property
    def beyond(self) -> tuple[str, ...]:
        """Names of the settings that go beyond the paper's."""
        return self._of(beyond=True)

    def _of(self, *, beyond: bool) -> tuple[str, ...]:
        places = {
            preset.name: [said.place for said in preset.published if said.item == self.name]
            for preset in presets().values()
            if bool(preset.beyond) is beyond
        }
        return tuple(sorted((name for name, own in places.items() if own), key=lambda name: places[name][0]))


ITEMS: dict[str, Item] = {
    item.name: item
    for item in (
        Item(
            "fig-copying",
            "Copying problem",
            "Figure 1",
            "Cross-entropy on the test set, T = 1000 and T = 2000; dashed, the baseline of ten random symbols.",
        ),
        Item(
            "fig-adding",
            "Adding problem",
            "Figure 2",
            "Mean squared error on the test set, T = 200, 400 and 750; dashed, the baseline of always answering 1.",
        ),
        Item(
            "table-mnist",
            "Pixel-by-pixel MNIST",
            "Table 1 and Figure 3",
            "Test accuracy, pixels row by row and permuted: the best over the epochs, as published, and beside it "
            "that of the epoch chosen on images set aside.",
        ),
        Item(
            "table-timit",
            "Speech",
            "Table 2",
            "Mean squared error of the next frame's log-magnitudes, and scores of the audio rebuilt from predictions.",
        ),
        Item(
            "fig-orthogonality",
            "Loss of orthogonality",
            "Figure 4",
            "‖W*W − I‖ (Frobenius) over the epochs of MNIST, n = 512, float32.",
        ),
        Item(
            "fig-gradients",
            "Vanishing gradients",
            "Figure 5",
            "‖∂L/∂hₜ‖ against t on the adding problem with T = 500, at the start and after 300 iterations.",
            "gradients",
        ),
        Item(
            "table-timing",
            "Speed",
            "Table 3",
            "Minutes for an epoch of MNIST: the steps timed here, scaled to the 1,100 of an epoch, beside the "
            "paper's on a GTX 1080.",
            "timing",
        ),
    )
}
MAIN = ("fig-copying", "fig-adding", "table-mnist", "table-timit")
"""Those on what the networks learn; the others are on W, its gradients and the time."""

GRADIENT_STEPS = 300
"""Iterations before the second of the paper's two figures of gradients."""


def chosen(name: str) -> list[Item]:
    """The item of a name, or all of them."""
    if name == "all":
        return list(ITEMS.values())
    if name not in ITEMS:
        raise UsageError(f"unknown item {name!r}{suggest(name, [*ITEMS, 'all'])}")
    return [ITEMS[name]]
