"""Every kind of wrong configuration is refused by name, with what is allowed."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scornn.errors import UsageError
from scornn.program.train.config import Config, build, to_table
from scornn.program.train.tables import assign, merge, of_today, parse_setting, parse_value, read, set_values

Small = Callable[..., Config]


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("model.hiden", 3, r"unknown key model\.hiden; did you mean hidden\?"),
        ("hidden", 3, r"unknown key hidden; did you mean model\.hidden\?"),
        ("task.lenght", 3, r"unknown key task\.lenght of copying; did you mean length\?"),
        (
            "optimizer.rest.momentum",
            0.9,
            r"unknown key optimizer\.rest\.momentum; known: decay, eps, flavour, kind, lr, weight_decay",
        ),
        ("model.hidden", 0, "model.hidden = 0: expected `int` >= 1"),
        ("model.hidden", "many", "model.hidden = 'many': expected `int`"),
        ("model.hidden", None, "model.hidden: expected `int`, got `null`"),
        ("optimizer.rest.lr", math.nan, "optimizer.rest.lr = nan: expected a finite number"),
        ("optimizer.rest.lr", 0, "optimizer.rest.lr = 0: expected `float` > 0"),
        ("optimizer.rest.decay", 1.0, "optimizer.rest.decay = 1.0: expected `float` < 1.0"),
        ("optimizer.rest.kind", "adma", "optimizer.rest.kind = 'adma': expected one of adam, adamw, rmsprop, sgd"),
        ("optimizer.recurrent.weight_decay", 0.1, r"weight_decay = 0\.1: only adam and adamw take it, not rmsprop"),
        (
            "optimizer.recurrent",
            {"kind": "sgd", "lr": 1, "decay": 0.9},
            r"optimizer\.recurrent\.decay = 0\.9: only rmsprop, adam, adamw and stiefel-rms take it, not sgd",
        ),
        (
            "optimizer.recurrent",
            {"kind": "stiefel", "lr": 1, "eps": 0.1},
            r"optimizer\.recurrent\.eps = 0\.1: only .* take it, not stiefel",
        ),
        ("optimizer.rest.eps", 0, r"optimizer\.rest\.eps = 0: adam divides by it where a gradient is zero"),
        (
            "optimizer.rest.flavour",
            "theano",
            r"rest\.flavour = theano: only rmsprop takes it, not adam; .* --set optimizer\.rest\.flavour=tf1",
        ),
        ("optimizer.recurrent", {}, "optimizer.recurrent: object missing required field `kind`"),
        ("task.name", "sorting", "task.name = 'sorting': expected one of adding, arrays, copying"),
        ("task.length", 0, "task.length = 0: expected `int` >= 1"),
        ("task.permuted", True, r"unknown key task\.permuted"),
        ("seed", -1, "seed = -1: expected `int` >= 0"),
        ("seed", 1 << 32, "seed = 4294967296: expected `int` <= 4294967295"),
        ("threads", 0, "threads = 0: expected `int` >= 1"),
        ("device", "tpu", "device = 'tpu': expected one of cpu, cuda"),
        ("epochs", 3, r"both steps and epochs are given"),
        ("steps", None, r"neither steps nor epochs is given"),
        ("model.options.rho", 7, r"model\.options\.rho = 7: expected an integer from 0 to 6 \(model\.hidden\)"),
        ("model.options.rho", "half", r"model\.options\.rho = 'half': expected an integer"),
        ("model.options.x", [1], r"model\.options\[\.\.\.\]: expected `bool | int | float | str`, got `array`"),
        ("stop_when.recall", "high", r"stop_when\[\.\.\.\]: expected `float`, got `str`"),
        ("format", 2, r"format = 2: expected one of 1"),
        *((("name", name, r"name = .*: expected 1 to 100 letters")) for name in ("", "../x", "a/b", ".x")),
    ],
)
def test_a_wrong_value_is_refused_by_name(key: str, value: Any, said: str, small: Small) -> None:
    table = to_table(small())
    assign(table, key, value)
    with pytest.raises(UsageError, match=said):
        build(table)


def test_odd_and_smallest_sizes_are_allowed(small: Small) -> None:
    assert small(model={"name": "scornn", "hidden": 1, "options": {"rho": 1}}).model.options["rho"] == 1
    assert small(model__hidden=171, model__options={"rho": "7n/10"}).model.options["rho"] == 119
    assert small(model__hidden=171, model__options={"rho": "n/10"}).model.options["rho"] == 17
    assert small(model__options={"rho": "n"}).model.options["rho"] == 6


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.toml", "seed = 1\nseed = 2", r"a\.toml: .*overwrite"),
        ("a.toml", "seed =", r"a\.toml: no valid TOML: "),
        ("a.json", "[1]", "expected a table of keys, found list"),
        ("a.json", "{", r"a\.json: no valid JSON: "),
        ("a.yaml", "seed: 1", r"expected a name ending in \.toml or \.json"),
        ("a/b.toml", None, "no config file"),
    ],
)
def test_a_wrong_file_is_refused(name: str, text: str | None, said: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=said):
        read(tmp_path / name)


def test_an_option_of_today_is_not_set_in_a_config_of_before() -> None:
    """A default that is something would make every earlier run another one: to reports, sweeps and the hash."""
    found = sorted((Path(__file__).parents[2] / "results").glob("*/config.json"))
    assert found
    for path in found:
        written = of_today(json.loads(path.read_text()))
        assert set_values(written) == set_values(to_table(build(written))), path


def test_layers_merge_table_by_table() -> None:
    assert merge({"a": {"b": 1, "c": 2}}, {"a": {"c": 3}}) == {"a": {"b": 1, "c": 3}}
    assert merge({"steps": 5}, {"epochs": 2}) == {"epochs": 2}
    assert merge({"epochs": 5}, {"steps": 2}, {"seed": 1}) == {"steps": 2, "seed": 1}
    assert merge({"steps": 1, "epochs": None}, {"steps": None, "epochs": 2}) == {"steps": None, "epochs": 2}


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", 1), ("1e-3", 1e-3), (".5", 0.5), ("true", True), ("n/2", "n/2"), ('"7"', "7"), ("[1, 2]", [1, 2]), ("", "")],
)
def test_values_of_settings(text: str, value: Any) -> None:
    assert parse_value(text) == value
    assert parse_setting(f"a.b={text}") == ("a.b", value)


@pytest.mark.parametrize("text", ["a", "=1", "a..b=1", ".a=1"])
def test_a_setting_without_key_or_value_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="expected key=value"):
        parse_setting(text)
