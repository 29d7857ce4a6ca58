"""How models and tasks are called, drawn and explained: what a report takes of their catalogue entries."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scornn.nn.catalogue import MODELS
from scornn.tasks.catalogue import TASKS, entry_of


@dataclass(frozen=True)
class Look:
    """What tables call a model, and its colour (a place in the palette) and marker in every figure."""

    label: str
    colour: int
    marker: str


def look(name: str) -> Look:
    """The look of a model by its name on the command line; an unknown one is called by its name."""
    entry = MODELS.get(name)
    return Look(entry.label, entry.colour, entry.marker) if entry else Look(name, 5, "p")


def label_and_about(task: Mapping[str, Any]) -> tuple[str, str]:
    """What tables call the task of a config, and what a reader must know of it; an unknown one is called by its name.

    Example:
        >>> label_and_about({"name": "mnist", "permuted": True})[0], label_and_about({"name": "mine"})
        ('permuted MNIST', ('mine', ''))
    """
    name = str(task.get("name"))
    entry = entry_of(task) or TASKS.get(name)
    return (entry.label, entry.kind.about) if entry else (name, "")
