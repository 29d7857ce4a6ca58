"""The tables and figures of the paper, and which presets make their rows and curves, in the paper's order."""

from dataclasses import dataclass
from typing import Literal

from scornn.errors import UsageError
from scornn.train.validate import suggest


@dataclass(frozen=True)
class Item:
    """A table or figure. ``kind`` is what is done for each row: training, or training and then a measurement."""

    name: str
    title: str
    source: str
    caption: str
    presets: tuple[str, ...]
    kind: Literal["training", "gradients", "timing"] = "training"


_COPYING = ("scornn-190", "lstm-68", "urnn-470", "full-urnn-128", "eurnn-512")
_ADDING = ("scornn-170", "lstm-60", "urnn-950", "full-urnn-120", "eurnn-512", "ornn-128")
_MNIST = (
    *("scornn-170", "scornn-360", "scornn-512", "lstm-128", "lstm-256", "lstm-512"),
    *("urnn-512", "urnn-2170", "full-urnn-116", "full-urnn-512"),
)
_TIMIT = (
    *("scornn-224", "scornn-322", "scornn-425", "lstm-84", "lstm-120", "lstm-158"),
    *("urnn-158", "urnn-256", "urnn-378", "full-urnn-128", "full-urnn-192", "full-urnn-256"),
)
_TIMING = (
    *("rnn-116", "scornn-170", "urnn-512", "full-urnn-116", "lstm-128", "scornn-360", "urnn-2170"),
    *("rnn-360", "scornn-512", "full-urnn-360", "rnn-512", "lstm-256", "full-urnn-512", "lstm-512"),
)

ITEMS: dict[str, Item] = {
    item.name: item
    for item in (
        Item(
            "fig-copying",
            "Copying problem",
            "Figure 1",
            "Cross-entropy on the test set, T = 1000 and T = 2000; dashed, the baseline of ten random symbols.",
            tuple(f"copying-{T}-{model}" for T in (1000, 2000) for model in _COPYING),
        ),
        Item(
            "fig-adding",
            "Adding problem",
            "Figure 2",
            "Mean squared error on the test set, T = 200, 400 and 750; dashed, the baseline of always answering 1.",
            tuple(f"adding-{T}-{model}" for T in (200, 400, 750) for model in _ADDING),
        ),
        Item(
            "table-mnist",
            "Pixel-by-pixel MNIST",
            "Table 1 and Figure 3",
            "Test accuracy, pixels row by row and permuted: the best over the epochs, as published, and beside it "
            "that of the epoch chosen on images set aside.",
            (
                *(f"{task}-{model}" for model in _MNIST for task in ("mnist", "pmnist")),
                *("pmnist-eurnn-512", "mnist-ornn-256"),
            ),
        ),
        Item(
            "table-timit",
            "Speech",
            "Table 2",
            "Mean squared error of the next frame's log-magnitudes, and scores of the audio rebuilt from predictions.",
            tuple(f"timit-{model}" for model in _TIMIT),
        ),
        Item(
            "fig-orthogonality",
            "Loss of orthogonality",
            "Figure 4",
            "‖W*W − I‖ (Frobenius) over the epochs of MNIST, n = 512, float32.",
            ("mnist-scornn-512", "mnist-full-urnn-512"),
        ),
        Item(
            "fig-gradients",
            "Vanishing gradients",
            "Figure 5",
            "‖∂L/∂hₜ‖ against t on the adding problem with T = 500, at the start and after 300 iterations.",
            ("adding-500-scornn-170", "adding-500-lstm-60"),
            "gradients",
        ),
        Item(
            "table-timing",
            "Speed",
            "Table 3",
            "Minutes for an epoch of MNIST: the steps timed here, scaled to the 1,100 of an epoch, beside the "
            "paper's on a GTX 1080.",
            tuple(f"mnist-{model}" for model in _TIMING),
            "timing",
        ),
    )
}

GRADIENT_STEPS = 300
"""Iterations before the second of the paper's two figures of gradients."""


def chosen(name: str) -> list[Item]:
    """The item of a name, or all of them."""
    if name == "all":
        return list(ITEMS.values())
    if name not in ITEMS:
        raise UsageError(f"unknown item {name!r}{suggest(name, [*ITEMS, 'all'])}")
    return [ITEMS[name]]
