"""The files that hold the paper's settings: one for each experiment, read into presets.

What a file has:

- ``config``: the settings that all its runs share.
- ``models``: for each model what is its own, and under ``at`` what is so at one state size or one length alone. Where
  it has no rule for A, that of the ``rest`` is A's too.
- ``published``: a row for each published figure, in the paper's order. A preset is there because a row names it.
- ``beyond``: settings that the paper has not, each on top of a preset of the file, with what differs in words; its
  ``start`` is a preset of the file whose network it begins with.
- ``notes``: sentences that several notes share, which name them in braces.
- ``like``: another file, from which everything is taken that is not said here, and its ``beyond`` too.
"""

import tomllib
from collections import Counter
from importlib import resources
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from scornn.nn.catalogue import look
from scornn.program.train.tables import Table, merge
from scornn.program.train.validate import convert

EXPERIMENTS = ("copying", "adding", "mnist", "pmnist", "timit")
SEED = 5544
"""The first seed of every row, that of the authors' program."""
_EVERYWHERE: Table = {"seed": SEED, "optimizer": {"average": {"decay": 0.999, "warmup": 10}}}
"""The averaged weights are a second column of results; the run does not see them."""


class Published(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A published figure: a number, or what a curve is said to do."""

    item: str
    """``scornn reproduce`` item that shows it, such as ``table-mnist``."""
    metric: str
    split: Literal["train", "valid", "test"] = "test"
    value: float | None = None
    text: str = ""
    claim: str = ""
    """What the text claims, as `verdict.CLAIMS` can test it."""
    source: str
    place: int
    """Its row in the item, counted in its experiment."""


class Preset(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One table row or figure curve."""

    title: str
    default: bool = False
    """The one meant where the command line names only task and model."""
    parameters: int
    published: tuple[Published, ...]
    note: str = ""
    beyond: str = ""
    """What differs from the paper's setting, in words; empty for a setting of the paper."""
    brief: str = ""
    """The same in two or three words, where the model's name does not say it."""
    start: str = ""
    """The preset whose averaged weights, of the same seed, it begins with."""
    config: Table
    name: str


class _At(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a model has at one state size, or at one length, alone."""

    title: str | None = None
    parameters: int | None = None
    note: str | None = None
    config: Table = {}


class _Model(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    title: str
    parameters: int | None = None
    note: str = ""
    config: Table
    at: dict[str, _At] = {}


class _Row(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    model: str
    n: int | None = None
    value: float | None = None
    text: str | None = None
    claim: str = ""
    source: str | None = None
    default: bool = False


class _Figure(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rows of one column of a table, or of one panel; what they share is said once."""

    item: str
    source: str
    metric: str
    split: Literal["train", "valid", "test"] = "test"
    text: str = ""
    T: int | None = None
    default: bool = False
    rows: tuple[_Row, ...]


class _Beyond(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    item: str
    of: tuple[str, ...]
    says: str
    brief: str = ""
    start: str = ""
    note: str
    parameters: int | None = None
    config: Table


class _Experiment(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    title: str
    notes: dict[str, str] = {}
    config: Table
    models: dict[str, _Model]
    published: tuple[_Figure, ...]
    beyond: tuple[_Beyond, ...] = ()


def read(name: str) -> list[Preset]:
    """The presets of an experiment, in the order of its rows; those beyond the paper last."""
    experiment = convert(_table(name), _Experiment)
    sentences: dict[str, Any] = {}
    for key, text in experiment.notes.items():
        sentences[key] = text.format(**sentences)
    made: dict[str, Preset] = {}
    places: Counter[str] = Counter()
    for figure in experiment.published:
        for row in figure.rows:
            n = row.n or experiment.models[row.model].config["model"]["hidden"]
            key = _key(name, figure.T, row.model, n)
            preset = made.get(key) or _preset(key, experiment, row.model, n, figure.T, sentences)
            said = Published(
                item=figure.item,
                metric=figure.metric,
                split=figure.split,
                value=row.value,
                text=(row.text if row.text is not None else figure.text).format(**sentences),
                claim=row.claim,
                source=row.source or figure.source,
                place=places[figure.item],
            )
            default = preset.default or row.default or figure.default
            made[key] = replace(preset, default=default, published=(*preset.published, said))
            places[figure.item] += 1
    for more in experiment.beyond:
        for of in more.of:
            beyond = _beyond(name, made[f"{name}-{of}"], more, sentences)
            made[beyond.name] = beyond
    return list(made.values())


def _key(*parts: Any) -> str:
    return "-".join(str(part) for part in parts if part is not None)


def _beyond(name: str, base: Preset, more: _Beyond, sentences: dict[str, Any]) -> Preset:
    """A setting on top of a preset; with a ``model.name`` of its own it is another network on its task."""
    published = tuple(said for said in base.published if said.item == more.item)
    config, key, title = base.config, base.name, base.title
    other = more.config.get("model", {})
    if "name" in other:
        key = _key(name, config["task"].get("length"), other["name"], other["hidden"])
        title = f"{other['name']} n={other['hidden']}"
        of = f"{look(config['model']['name']).label} n={config['model']['hidden']}"
        published = tuple(
            replace(said, text=of if said.value is not None else f"{of}: {said.text}") for said in published
        )
        config = {part: value for part, value in config.items() if part not in ("model", "optimizer")}
        config = merge({"optimizer": _EVERYWHERE["optimizer"]}, config)
    return Preset(
        name=f"{key}-{more.name}",
        title=f"{title}: {more.says}",
        parameters=more.parameters or base.parameters,
        published=published,
        note=more.note.format(**sentences),
        beyond=more.says,
        brief=more.brief,
        start=_key(name, more.start) if more.start else "",
        config=merge(config, more.config),
    )


def _preset(key: str, experiment: _Experiment, name: str, n: int, T: int | None, sentences: dict[str, Any]) -> Preset:
    model = experiment.models[name]
    at = model.at.get(str(n if T is None else T), _At())
    own: Table = {"model": {"name": name, "hidden": n}, "task": {} if T is None else {"length": T}}
    config = merge(_EVERYWHERE, experiment.config, model.config, at.config, own)
    config["optimizer"].setdefault("recurrent", dict(config["optimizer"]["rest"]))
    known = {**sentences, **config["model"].get("options", {}), "n": n, "T": T}
    note = (at.note if at.note is not None else model.note).format(**known, note=model.note.format(**known))
    title = f"{at.title or model.title} {experiment.title}".format(**known)
    parameters = at.parameters or model.parameters
    assert parameters is not None, key
    return Preset(name=key, title=title, parameters=parameters, published=(), note=note, config=config)


def _table(name: str) -> Table:
    text = resources.files("scornn.program.recipes").joinpath(f"{name}.toml").read_text(encoding="utf-8")
    table = tomllib.loads(text)
    below = table.pop("like", None)
    if below is None:
        return table
    other = _table(below)
    return merge(other, table, {"beyond": [*other.get("beyond", []), *table.get("beyond", [])]})
