"""Which runs are the same: the same course of training, study, setting, experiment or problem.

Every field of a config says on itself what another value of it makes of a run
(:class:`~scornn.program.tasks.base.Level`). An :class:`Identity` leaves out the levels that a question does not ask
for, and compares the rest. It takes a :class:`~scornn.program.train.config.Config` or the plain table of a stored
``config.json``, of a task or a model that is not known here too.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, get_args, get_type_hints

from msgspec import Struct

from scornn.program.tasks.base import OF_A_BATCH, Level
from scornn.program.tasks.catalogue import entry_of
from scornn.program.train.config import Config, config_type, to_table
from scornn.program.train.tables import Table, of_today, set_values

Part = Literal["course", "study", "setting", "experiment", "problem"]
"""What two runs may share.

- course: one can go on from the checkpoints of the other.
- study: they are trials of one sweep.
- setting: they differ in nothing but their seed and how often they are evaluated.
- experiment: they differ in their length and in the size of their data too, as runs of one preset.
- problem: their results can be compared.
"""

_LEFT_OUT: dict[Part, tuple[Level, ...]] = {
    "course": (Level.NAME, Level.LENGTH),
    "study": (Level.NAME, Level.MACHINE),
    "setting": (Level.NAME, Level.MACHINE, Level.SAMPLE),
    "experiment": (Level.NAME, Level.MACHINE, Level.SAMPLE, Level.LENGTH, Level.VARIANT),
}
_DIGEST = re.compile(r"\b([0-9a-f]{8})[0-9a-f]{56}\b")

Differences = dict[str, tuple[Any, Any]]
"""By dotted key the value there and the value here; None where it is not set."""


@dataclass(frozen=True)
class Identity:
    """What a run is.

    Args:
        values: its config by dotted keys. What is None or empty is left out, so that a run of before an option
            existed is the same as one that does not set it.
        data: the fingerprint of its data, where it is known.
        code: the digest of its plugins, where it is known.

    Example:
        >>> here = Identity.of({"model": {"hidden": 8}, "seed": 1, "steps": 20, "threads": 1})
        >>> there = Identity.of({"model": {"hidden": 8}, "seed": 2, "steps": 10, "threads": 4})
        >>> here.differences(there, "course")
        {'seed': (2, 1), 'threads': (4, 1)}
        >>> here.same(there, "course"), here.same(there, "setting"), here.same(there, "experiment")
        (False, False, True)
        >>> in_words(here.differences(there, "setting"))
        ['steps 20 instead of 10']
    """

    values: Table
    data: Mapping[str, str] | None = None
    code: str | None = None

    @classmethod
    def of(
        cls, config: Config | Mapping[str, Any], data: Mapping[str, str] | None = None, code: str | None = None
    ) -> Self:
        """The identity of a config, or of the table that its file holds."""
        table = to_table(config) if isinstance(config, Config) else of_today(dict(config))
        return cls(set_values(table), data, code)

    def at(self, part: Part) -> Table:
        """The values that decide whether another run has this part in common.

        A study and a setting know data and plugins by their content, where it is known, and a setting by their places
        where not. A fingerprint of the first batches says nothing of a setting: with another seed they are others.
        """
        if part == "problem":
            return self._problem()
        found = {key: value for key, value in self.values.items() if level(key) not in _LEFT_OUT[part]}
        if part in ("setting", "experiment") and (start := Start.parse(found.get("start"))):
            found["start"] = start.of_any_seed
        if part == "setting":
            found |= {key: self.values[key] for key in ("data", "plugins") if key in self.values}
        if part in ("study", "setting"):
            if self.data is not None:
                found.pop("data", None)
                own = {} if part == "setting" and OF_A_BATCH in json.dumps(dict(self.data)) else self.data
                found |= {f"data.{key}": value for key, value in own.items()}
            if self.code is not None:
                found["plugins"] = self.code
        return found

    def _problem(self) -> Table:
        found = {key: value for key, value in self.values.items() if level(key) is Level.PROBLEM or key == "task.name"}
        entry = entry_of({key.removeprefix("task."): value for key, value in found.items()})
        if entry and entry.by_folder and isinstance(folder := self.values.get("data"), str):
            found["data"] = Path(folder).name
        return found

    def differences(self, there: "Identity", part: Part) -> Differences:
        """What of a part is not the same there and here; empty where all of it is."""
        return differences(there.at(part), self.at(part))

    def same(self, other: "Identity", part: Part) -> bool:
        """Whether they have the part in common."""
        return self.at(part) == other.at(part)

    def digest(self, part: Part = "course") -> str:
        """sha256 of a part. That of the course is the ``config_hash`` in checkpoints and summaries."""
        text = json.dumps(self.at(part), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


class Start(NamedTuple):
    """The weights that a run began with, as ``start`` of its config names them.

    Example:
        >>> start = Start.parse("mnist-s5544/step-9-averaged/0123456789abcdef")
        >>> start.run, start.step, start.averaged, start.of_any_seed, str(start)
        ('mnist-s5544', 9, True, 'mnist-averaged', 'mnist-s5544/step-9-averaged/0123456789abcdef')
    """

    run: str
    step: int
    averaged: bool
    digest: str

    @classmethod
    def parse(cls, text: object) -> "Start | None":
        """The start that a config names; None where it names none, or in another way."""
        match = re.fullmatch(r"(.*)/step-(\d+)(-averaged)?/(\w+)", text) if isinstance(text, str) else None
        return Start(match[1], int(match[2]), bool(match[3]), match[4]) if match else None

    def __str__(self) -> str:
        return f"{self.run}/step-{self.step}{'-averaged' * self.averaged}/{self.digest}"

    @property
    def of_any_seed(self) -> str:
        """What is the same for every seed: the name of the run, and whether its weights are averaged."""
        return re.sub(r"-s\d+$", "", self.run) + "-averaged" * self.averaged


def differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> Differences:
    """The keys of two tables whose values are not the same, with both values.

    Example:
        >>> differences({"seed": 1, "start": "a"}, {"seed": 2, "start": "a"})
        {'seed': (1, 2)}
    """
    keys = {**there, **here}
    return {key: (there.get(key), here.get(key)) for key in keys if there.get(key) != here.get(key)}


def in_words(found: Differences, name: Callable[[str], str] = str, value: Callable[[Any], str] = str) -> list[str]:
    """Differences as people say them, digests by their beginnings; ``name`` and ``value`` write keys and values.

    Example:
        >>> in_words({"model.hidden": (190, 8), "seed": (1, None), "start": (None, "a")})
        ['model.hidden 8 instead of 190', 'seed not set instead of 1', 'start a']
    """
    said = []
    for key, (there, here) in found.items():
        instead = "" if there is None else f" instead of {value(there)}"
        said.append(_DIGEST.sub(r"\1…", f"{name(key)} {'not set' if here is None else value(here)}{instead}"))
    return said


def level(key: str) -> Level | None:
    """The level of a dotted key, or of the table it stands in; None: part of the setting.

    Example:
        >>> level("seed").name, level("task.length").name, level("stop_when.loss").name, level("model.hidden")
        ('SAMPLE', 'PROBLEM', 'LENGTH', None)
    """
    known, parts = _levels(config_type()), key.split(".")
    names = (".".join(parts[:length]) for length in range(1, len(parts) + 1))
    return next((known[name] for name in names if name in known), None)


@cache
def _levels(type_: Any, prefix: str = "") -> Mapping[str, Level]:
    """The dotted keys of a struct, and of the structs in it, that have a level."""
    found: dict[str, Level] = {}
    for name, hint in get_type_hints(type_, include_extras=True).items():
        own = next((part for part in get_args(hint) if isinstance(part, Level)), None)
        if own is not None:
            found[prefix + name] = own
        else:
            for inner in _structs(hint):
                found |= _levels(inner, f"{prefix}{name}.")
    return found


def _structs(hint: Any) -> Iterable[Any]:
    if isinstance(hint, type) and issubclass(hint, Struct):
        yield hint
    else:
        for inner in get_args(hint):
            yield from _structs(inner)
