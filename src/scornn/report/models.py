"""How models and tasks are called, drawn and explained: their catalogue entries, read without running their code.

The entries are made where the models and tasks are, in ``nn/`` and ``tasks/``, and running those modules needs torch,
which takes longer to import than a report takes to make. What a report needs of them are plain values in the source.
"""

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import chain
from typing import Any, NamedTuple

_DECORATORS = re.compile(r"^(@model\(.*?)^class ", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Look:
    """What tables call a model, and its colour (a place in the palette) and marker in every figure."""

    label: str
    colour: int
    marker: str


class _Task(NamedTuple):
    tag: str
    settings: Mapping[str, Any]
    label: str
    about: str


def look(name: str) -> Look:
    """The look of a model by its name on the command line; an unknown one is called by its name."""
    loaded = sys.modules.get("scornn.nn")
    if loaded is not None and name in loaded.MODELS:
        entry = loaded.MODELS[name]
        return Look(entry.label, entry.colour, entry.marker)
    return _models().get(name) or Look(name, 5, "p")


def names() -> tuple[str, ...]:
    """The names of all models of this package."""
    return tuple(_models())


def label_and_about(task: Mapping[str, Any]) -> tuple[str, str]:
    """What tables call the task of a config, and what a reader must know of it; an unknown one is called by its name.

    Example:
        >>> label_and_about({"name": "mnist", "permuted": True})[0], label_and_about({"name": "mine"})
        ('permuted MNIST', ('mine', ''))
    """
    loaded, name = sys.modules.get("scornn.tasks"), str(task.get("name"))
    entry = loaded.catalogue.entry_of(task) if loaded is not None else None
    if entry is not None:
        return entry.label, entry.kind.about
    for known in _tasks().values():
        if known.tag == name and all(task.get(key) == value for key, value in known.settings.items()):
            return known.label, known.about
    return _tasks()[name][2:] if name in _tasks() else (name, "")


@cache
def _models() -> Mapping[str, Look]:
    found: dict[str, Look] = {}
    for text in _sources("nn", "@model("):
        for entry in _DECORATORS.findall(text):  # the rest of a module takes far longer to parse
            for name, given, _, _ in _entries(f"{entry}class _: ...", "model"):
                found[name] = Look(*(ast.literal_eval(given[key]) for key in ("label", "colour", "marker")))
    return found


@cache
def _tasks() -> Mapping[str, _Task]:
    found: dict[str, _Task] = {}
    for name, given, kind, module in chain(*(_entries(text, "task") for text in _sources("tasks", "@task("))):
        config = next(c for c in module.body if isinstance(c, ast.ClassDef) and any(w.arg == "tag" for w in c.keywords))
        tag = next(ast.literal_eval(word.value) for word in config.keywords if word.arg == "tag")
        own = {ast.unparse(line.targets[0]): line.value for line in kind.body if isinstance(line, ast.Assign)}
        settings = ast.literal_eval(given["settings"]) if "settings" in given else {}
        found[name] = _Task(tag, settings, ast.literal_eval(given["label"]), ast.literal_eval(own["about"]))
    return found


def _sources(room: str, marked: str) -> Iterator[str]:
    """The sources of a room that have the mark."""
    for file in sorted(resources.files("scornn").joinpath(room).iterdir(), key=lambda file: file.name):
        text = file.read_text(encoding="utf-8") if file.name.endswith(".py") else ""
        if marked in text:
            yield text


def _entries(text: str, decorator: str) -> Iterator[tuple[str, dict[str | None, ast.expr], ast.ClassDef, ast.Module]]:
    """The name and keywords of each entry that a source makes, its class, and the module of that."""
    module = ast.parse(text)
    for node in ast.walk(module):
        for call in node.decorator_list if isinstance(node, ast.ClassDef) else ():
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == decorator:
                given = {word.arg: word.value for word in call.keywords}
                assert isinstance(node, ast.ClassDef)
                yield ast.literal_eval(call.args[0]), given, node, module
