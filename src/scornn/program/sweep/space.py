"""What a sweep varies: ``KEY=a,b,c`` is a list, ``KEY=lo..hi`` a range, ``KEY=lo..hi:log`` one in its logarithm."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

from scornn.errors import UsageError
from scornn.nn.catalogue import MODELS, options_of
from scornn.program.train.config import fraction, is_real
from scornn.program.train.tables import lookup, parse_setting, parse_value

if TYPE_CHECKING:
    from optuna.trial import Trial

Value = bool | int | float | str
_EXAMPLE = "model.options.rho=0,n/4,n/2 or optimizer.recurrent.lr=1e-5..1e-3:log"


@dataclass(frozen=True)
class Axis:
    """One key and its values: ``choices`` of a list, or the ends of a range."""

    key: str
    text: str
    choices: tuple[Value, ...] = ()
    low: float = 0
    high: float = 0
    log: bool = False

    @property
    def whole(self) -> bool:
        """Whether a range is one of integers."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def draw(self, trial: "Trial") -> Value:
        """The trial's value of this key, drawn by the study's sampler or given to the trial beforehand."""
        if self.choices:
            chosen: Any = trial.suggest_categorical(self.key, self.choices)
            return self.choices[self.choices.index(chosen)]
        if self.whole:
            return trial.suggest_int(self.key, int(self.low), int(self.high), log=self.log)
        return trial.suggest_float(self.key, float(self.low), float(self.high), log=self.log)


def parse(texts: Sequence[str], settings: Mapping[str, Any]) -> tuple[Axis, ...]:
    """The axes of ``--over``. ``settings`` is the config they vary: it has n and the model.

    >>> parse(["optimizer.recurrent.lr=1e-5..1e-3:log"], {})[0].log
    True
    >>> parse(["model.options.rho=0,n/4,7n/10"], {})[0].choices
    (0, 'n/4', '7n/10')
    """
    if not texts:
        raise UsageError(f"--over is missing: expected at least one, such as --over {_EXAMPLE}")
    axes = [_axis(text, settings) for text in texts]
    keys = [axis.key for axis in axes]
    for key in keys:
        if keys.count(key) > 1:
            raise UsageError(f"--over gives {key} twice; expected once")
    hidden = [axis for axis in axes if axis.key == "model.hidden"]
    for axis in axes:
        ends = axis.text.partition("=")[2]
        if hidden and not axis.choices and any(fraction(e, 1) is not None for e in re.split(r"\.\.|:", ends)):
            raise UsageError(f"--over {axis.text}: n is not one number here, for model.hidden varies too; give a list")
    return tuple(axes)


def _axis(text: str, settings: Mapping[str, Any]) -> Axis:
    key, _ = parse_setting(text, "--over", _EXAMPLE)
    values = text.partition("=")[2].strip()
    if ".." in values:
        return _range(key, text, values, settings)
    items = [item.strip() for item in values.split(",")]
    if not all(items):
        raise UsageError(f"--over {text}: a value is empty; expected KEY=a,b,c, for example --over {_EXAMPLE}")
    choices = tuple(parse_value(item) for item in items)
    for item, choice in zip(items, choices, strict=True):
        if not isinstance(choice, Value) or (isinstance(choice, float) and not math.isfinite(choice)):
            raise UsageError(f"--over {text}: {item}: expected a finite number, a word, true or false")
        if choices.count(choice) > 1:  # by value: 1, 1.0 and true are one to the study
            raise UsageError(f"--over {text}: {item} is given twice; expected once")
    return Axis(key, text, choices)


def _range(key: str, text: str, values: str, settings: Mapping[str, Any]) -> Axis:
    ends, colon, scale = values.partition(":")
    if colon and scale.strip() != "log":
        raise UsageError(f"--over {text}: {scale!r} after the colon; expected log, or no colon")
    first, _, last = ends.partition("..")
    low, high = (_end(end.strip(), text, settings) for end in (first, last))
    if _is_real(key, settings):
        low, high = float(low), float(high)
    if low >= high or (colon and low <= 0):
        raise UsageError(f"--over {text}: found {low:g} to {high:g}; expected lo < hi{', and lo > 0' * bool(colon)}")
    return Axis(key, text, (), low, high, bool(colon))


def _is_real(key: str, settings: Mapping[str, Any]) -> bool:
    """Whether a range of this key is one of real numbers, also where its ends are whole."""
    if not key.startswith("model.options."):
        return is_real(key)
    model = MODELS.get(str(lookup(settings, "model.name")))
    default = options_of(model.layer).get(key.rpartition(".")[2]) if model else None
    return isinstance(default, float) or isinstance(lookup(settings, key), float)


def _end(end: str, text: str, settings: Mapping[str, Any]) -> float:
    share = fraction(end, lookup(settings, "model.hidden"))
    if share is not None:
        return share
    number = parse_value(end) if end else None
    if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
        found = repr(end) if end else "nothing"
        raise UsageError(f"--over {text}: found {found} at an end of the range; expected lo..hi, such as 1e-5..1e-3")
    return number


def grid(axes: Sequence[Axis]) -> list[dict[str, Value]]:
    """Every combination of the lists, the last key changing fastest.

    >>> grid(parse(["a=1,2", "b=x,y"], {}))[1]
    {'a': 1, 'b': 'y'}
    """
    for axis in axes:
        if not axis.choices:
            ends = f"{axis.low:g},{axis.high:g}"
            raise UsageError(
                f"--sampler grid, but --over {axis.text} is a range; expected a list such as {axis.key}={ends}, "
                "or --sampler tpe"
            )
    return [dict(zip([a.key for a in axes], point, strict=True)) for point in product(*(a.choices for a in axes))]
