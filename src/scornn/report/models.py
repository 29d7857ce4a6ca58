"""How a model is called and drawn: its catalogue entry, read without running the code that it stands in.

The entries are made where the models are, in ``nn/``, and running those modules needs torch, which takes longer to
import than a report takes to make. Their label, colour and marker are plain values in the source.
"""

import ast
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources


@dataclass(frozen=True)
class Look:
    """What tables call a model, and its colour (a place in the palette) and marker in every figure."""

    label: str
    colour: int
    marker: str


def look(name: str) -> Look:
    """The look of a model by its name on the command line; an unknown one is called by its name."""
    loaded = sys.modules.get("scornn.nn")
    if loaded is not None and name in loaded.MODELS:
        entry = loaded.MODELS[name]
        return Look(entry.label, entry.colour, entry.marker)
    return _written().get(name) or Look(name, len(_written()), "o")


def names() -> tuple[str, ...]:
    """The names of all models of this package."""
    return tuple(_written())


@cache
def _written() -> Mapping[str, Look]:
    """The looks that stand in the source of ``scornn.nn``."""
    found: dict[str, Look] = {}
    for file in sorted(resources.files("scornn").joinpath("nn").iterdir(), key=lambda file: file.name):
        text = file.read_text(encoding="utf-8") if file.name.endswith(".py") else ""
        if "@model(" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            for call in node.decorator_list if isinstance(node, ast.ClassDef) else ():
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "model":
                    given = {word.arg: word.value for word in call.keywords}
                    values = [ast.literal_eval(given[key]) for key in ("label", "colour", "marker")]
                    found[ast.literal_eval(call.args[0])] = Look(*values)
    return found
