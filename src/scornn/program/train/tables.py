"""Nested tables, as TOML and JSON files and ``--set key=value`` give them: reading, merging, assigning."""

import json
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from scornn.errors import StorageError, UsageError

Table = dict[str, Any]


def read(path: Path) -> Table:
    """The tables of a ``.toml`` or ``.json`` file, not yet validated."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (FileNotFoundError, IsADirectoryError) as error:
        raise UsageError(f"no config file {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from None
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error
    try:
        if path.suffix == ".json":
            table = json.loads(text)
        elif path.suffix == ".toml":
            table = tomllib.loads(text)
        else:
            raise UsageError(f"config file {path}: expected a name ending in .toml or .json")
    except ValueError as error:  # both decoders' errors are ValueErrors
        raise UsageError(f"{path}: no valid {path.suffix[1:].upper()}: {error}") from None
    if not isinstance(table, dict):
        raise UsageError(f"{path}: expected a table of keys, found {type(table).__name__}")
    return table


def merge(*layers: Mapping[str, Any]) -> Table:
    """Later layers over earlier ones, table by table; ``steps`` takes back ``epochs``, and the reverse."""
    merged: Table = {}
    for layer in layers:
        for given, other in (("steps", "epochs"), ("epochs", "steps")):
            if layer.get(given) is not None and layer.get(other) is None:
                merged.pop(other, None)
        for key, value in layer.items():
            if isinstance(value, Mapping):
                below = merged.get(key)
                merged[key] = merge(below if isinstance(below, Mapping) else {}, value)
            else:
                merged[key] = value
    return merged


def flat(table: Mapping[str, Any], prefix: str = "") -> Table:
    """The values by their dotted keys: ``{"model": {"hidden": 190}}`` as ``{"model.hidden": 190}``."""
    found: Table = {}
    for key, value in table.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return found


def set_values(table: Mapping[str, Any]) -> Table:
    """:func:`flat` without what is None or empty: a file of before an option says the same as one of today."""
    return {key: value for key, value in flat(table).items() if value is not None and value != []}


def of_today(table: Table) -> Table:
    """A config's table with the keys of today: ``optimizer.halve_every`` of version 0.1 is a schedule now."""
    optimizer = table.get("optimizer")
    if not isinstance(optimizer, Mapping) or "halve_every" not in optimizer:
        return table
    rest = {key: value for key, value in optimizer.items() if key != "halve_every"}
    if optimizer["halve_every"] is not None:
        rest["schedule"] = {"kind": "halving", "warmup": 0, "every": optimizer["halve_every"]}
    return {**table, "optimizer": rest}


def lookup(table: Mapping[str, Any], key: str) -> Any:
    """The value at a dotted key; None where there is none."""
    value: Any = table
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def assign(table: Table, key: str, value: Any) -> None:
    """Set ``a.b.c`` in nested tables, making the tables on the way."""
    *parents, last = key.split(".")
    for parent in parents:
        table = table.setdefault(parent, {})
        if not isinstance(table, dict):
            raise UsageError(f"{key}: {parent} is a value, not a table")
    table[last] = value


def parse_setting(text: str, flag: str = "--set", example: str = "optimizer.rest.lr=0.01") -> tuple[str, Any]:
    """``key=value`` of ``--set``. The value is read as TOML; what is not TOML is text."""
    key, equals, value = text.partition("=")
    key = key.strip()
    if not equals or not all(key.split(".")):
        raise UsageError(f"{flag} {text!r}: expected key=value, for example {flag} {example}")
    return key, parse_value(value)


def parse_value(text: str) -> Any:
    """A number, or a value as TOML writes it, or ``null``, which takes a setting back, or the text itself."""
    text = text.strip()
    if text == "null":
        return None
    for number in (int, float):
        with suppress(ValueError):
            return number(text)
    try:
        parsed = tomllib.loads(f"value = {text}")
    except ValueError:  # no TOML, or a number of too many digits
        return text
    return parsed["value"] if len(parsed) == 1 else text
