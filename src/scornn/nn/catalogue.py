"""The models by name. Each entry is made where its model is: a class in ``nn/`` with the decorator :func:`model`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar

from torch import nn

from scornn.errors import suggest
from scornn.matrices import Matrix
from scornn.nn.layer import RecurrentLayer

Kind = TypeVar("Kind", bound=type[RecurrentLayer] | type[Matrix])
_NOT_OPTIONS = {"self", "mode", "input_size", "hidden_size", "batch_first", "device", "dtype", "backend", "matrix", "n"}


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


def model(name: str, *, label: str = "", **facts: Any) -> Callable[[Kind], Kind]:
    """Enter a layer into the catalogue; or a matrix, as the layer :class:`scornn.nn.RNN` with it.

    Args:
        name: on the command line.
        label: in tables and plots; the name unless told otherwise.
        facts: the other fields of :class:`Model`.
    """

    def enter(kind: Kind) -> Kind:
        if not (isinstance(kind, type) and issubclass(kind, (RecurrentLayer, Matrix))):
            raise TypeError(
                f"the model {name!r} is {kind!r}; expected a class derived from scornn.nn.RecurrentLayer or from "
                "scornn.matrices.Matrix"
            )
        if name in MODELS:
            raise ValueError(f"a model named {name!r} is there already: {MODELS[name].layer.__qualname__}")
        layer = kind if issubclass(kind, RecurrentLayer) else _layer_of(kind)
        MODELS[name] = Model(name, layer, label or name, **facts)
        return kind

    return enter


def _layer_of(matrix: type[Matrix]) -> type[RecurrentLayer]:
    """The layer of a matrix, found by pickle as ``matrix.Layer``."""
    from scornn.nn.rnn import RNN

    facts: dict[str, Any] = {"matrix_class": matrix, "__module__": matrix.__module__, "__doc__": matrix.__doc__}
    if matrix.forward is Matrix.forward:  # W is never formed, and no other rung runs it
        facts["BACKENDS"] = ("auto", "naive")
    layer = type(matrix.__name__, (RNN,), facts)
    layer.__qualname__ = f"{matrix.__qualname__}.Layer"
    matrix.Layer = layer  # type: ignore[attr-defined]
    return layer


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
    made = [vars(base)["__init__"] for base in kind.__mro__ if "__init__" in vars(base)]
    taken = [list(inspect.signature(own).parameters.values()) for own in made]
    handed_on = [any(p.kind is p.VAR_KEYWORD for p in parameters) for parameters in taken]
    taken = taken[: handed_on.index(False) + 1]  # one with **options hands them on, at last to the matrix
    if handed_on[0] and (matrix := getattr(kind, "matrix_class", None)):
        taken.append(list(inspect.signature(matrix).parameters.values()))
    for p in chain.from_iterable(taken):
        if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD):
            known.setdefault(p.name, p.default)
    for name in ("nonlinearity", "learn_h0"):
        if known.get(name, 0) is None:
            known[name] = getattr(kind, {"nonlinearity": "default_nonlinearity"}.get(name, name))
    fixed = _NOT_OPTIONS | getattr(kind, "matrix_options", {}).keys()
    return {name: default for name, default in known.items() if name not in fixed}


def parameter_count(model: nn.Module) -> int:
    """Trained numbers, less those that a constraint takes away: what the paper's tables count.

    Example:
        >>> from scornn.nn import ScoRNN, SequenceModel
        >>> parameter_count(SequenceModel(ScoRNN(1, 170), 10))
        16415
    """
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    return trained - sum(module.constraints for module in model.modules() if isinstance(module, Matrix))
