"""The models by name. Each entry is made where its model is: a class in ``nn/`` with the decorator :func:`model`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from torch import nn

from scornn.errors import suggest
from scornn.nn.layer import RecurrentLayer
from scornn.nn.recurrent import Recurrent

Layer = TypeVar("Layer", bound=type[RecurrentLayer])
_NOT_OPTIONS = {"self", "mode", "input_size", "hidden_size", "batch_first", "device", "dtype", "backend"}


@dataclass(frozen=True)
class Model:
    """What the program knows of a model.

    Attributes:
        name: on the command line.
        layer: its class.
        label: in tables and plots.
        colour, marker: in every figure, a place in the palette of the reports and one of matplotlib's markers. No model
            of this library has the two that stand here.
        summary, equation, source: what it is, in the list of models.
        bench: state sizes at which ``scornn bench --models`` times it: the paper's, or others with about as many
            parameters.
    """

    name: str
    layer: type[RecurrentLayer]
    label: str
    colour: int = 5
    marker: str = "p"
    summary: str = ""
    equation: str = ""
    source: str = ""
    bench: tuple[int, ...] = (128,)


MODELS: dict[str, Model] = {}
"""Every model that was defined so far, in the order of definition."""


def model(name: str, *, label: str = "", **facts: Any) -> Callable[[Layer], Layer]:
    """Enter a layer into the catalogue.

    Args:
        name: on the command line.
        label: in tables and plots; the name unless told otherwise.
        facts: the other fields of :class:`Model`.
    """

    def enter(layer: Layer) -> Layer:
        if not (isinstance(layer, type) and issubclass(layer, RecurrentLayer)):
            raise TypeError(f"the model {name!r} is {layer!r}; expected a class derived from scornn.nn.RecurrentLayer")
        if name in MODELS:
            raise ValueError(f"a model named {name!r} is there already: {MODELS[name].layer.__qualname__}")
        MODELS[name] = Model(name, layer, label or name, **facts)
        return layer

    return enter


def look(name: str) -> Model:
    """The entry that says how tables and figures show a model; one that is not known here is called by its name."""
    return MODELS.get(name) or Model(name, RecurrentLayer, name)


def build(name: str, input_size: int, hidden_size: int, **options: Any) -> RecurrentLayer:
    """A layer of the named model.

    Example:
        >>> build("scornn", 1, 16, rho=8)
        ScoRNN(1, 16, rho=8)
    """
    if name not in MODELS:
        raise ValueError(f"unknown model {name!r}{suggest(name, MODELS)}")
    return MODELS[name].layer(input_size, hidden_size, **options)


def options_of(kind: type) -> dict[str, Any]:
    """What a layer's constructor takes as ``model.options``, with the defaults."""
    known: dict[str, Any] = {}
    for base in kind.__mro__:  # a constructor with **kwargs hands them on
        own = vars(base).get("__init__")
        parameters = inspect.signature(own).parameters.values() if own else []
        for p in parameters:
            if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD):
                known.setdefault(p.name, p.default)
        if parameters and not any(p.kind is p.VAR_KEYWORD for p in parameters):
            break
    return {name: default for name, default in known.items() if name not in _NOT_OPTIONS}


def parameter_count(model: nn.Module) -> int:
    """Trained numbers, less those that a constraint takes away: what the paper's tables count.

    Example:
        >>> from scornn.nn import ScoRNN, SequenceModel
        >>> parameter_count(SequenceModel(ScoRNN(1, 170), 10))
        16415
    """
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    return trained - sum(module.constraints() for module in model.modules() if isinstance(module, Recurrent))
