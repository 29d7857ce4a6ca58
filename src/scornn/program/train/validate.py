"""Tables into frozen msgspec structs, with refusals that name the key, the value found and what is allowed."""

import math
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from scornn.errors import UsageError, suggest
from scornn.program.train.tables import Table, flat, lookup

T = TypeVar("T")


def convert(table: Table, type_: type[T]) -> T:
    """The table as a ``type_``, or a :class:`UsageError` that names the key."""
    root = inspect.type_info(type_)
    _check_keys(table, root, "", root)
    for key, value in flat(table).items():
        if isinstance(value, float) and not math.isfinite(value):
            raise UsageError(f"{key} = {value}: expected a finite number")
    try:
        return msgspec.convert(table, type_)
    except msgspec.ValidationError as error:
        raise UsageError(_explain(str(error), table, root)) from None


def known_keys(type_: inspect.Type, prefix: str = "") -> list[str]:
    """All dotted keys that a table of this type may have."""
    keys: set[str] = set()
    for struct in _structs(type_):
        for field in struct.fields:
            full = prefix + field.encode_name
            keys.update(known_keys(field.type, f"{full}.") or [full])
        if struct.tag_field:
            keys.add(prefix + struct.tag_field)
    return sorted(keys)


def _structs(type_: inspect.Type, table: Any = None) -> list[inspect.StructType]:
    """The struct types that a table may become; a tag in it picks one of a union."""
    options = type_.types if isinstance(type_, inspect.UnionType) else [type_]
    structs = [option for option in options if isinstance(option, inspect.StructType)]
    tagged = [s for s in structs if isinstance(table, Mapping) and s.tag_field and table.get(s.tag_field) == s.tag]
    return tagged or structs


def _fields(type_: inspect.Type, table: Any) -> dict[str, inspect.Type]:
    return {field.encode_name: field.type for struct in _structs(type_, table) for field in struct.fields}


def _check_keys(table: Any, type_: inspect.Type, prefix: str, root: inspect.Type) -> None:
    structs = _structs(type_, table)
    if not structs or not isinstance(table, Mapping):
        return
    fields, tags = _fields(type_, table), {struct.tag_field for struct in structs if struct.tag_field}
    for key, value in table.items():
        if key in fields:
            _check_keys(value, fields[key], f"{prefix}{key}.", root)
        elif key not in tags:
            full = f"{prefix}{key}"
            elsewhere = [k for k in known_keys(root) if k.rsplit(".", 1)[-1] == key and k != full]
            hint = (
                f"; did you mean {' or '.join(elsewhere)}?"
                if elsewhere
                else suggest(str(key), sorted({*tags, *fields}))
            )
            of = f" of {structs[0].tag}" if tags and len(structs) == 1 else ""
            raise UsageError(f"unknown key {full}{of}{hint}")


def _explain(message: str, table: Table, root: inspect.Type) -> str:
    """msgspec's message behind the key and its value; where these are few, all that are allowed."""
    what, _, where = message.partition(" - at `$.")
    key = where.rstrip("`")
    value = lookup(table, key)
    found = key if value is None or isinstance(value, Mapping) else f"{key} = {value!r}"
    choices = _choices(root, key.split("."), table)
    said = f"expected one of {', '.join(map(str, choices))}" if choices else what[:1].lower() + what[1:]
    return f"{found}: {said}" if key else what


def _choices(type_: inspect.Type, path: Iterable[str], table: Any) -> list[Any]:
    """The values of a key that takes a few alone."""
    for part in path:
        tags = [struct.tag for struct in _structs(type_) if struct.tag_field == part]
        if tags:
            return tags
        type_ = _fields(type_, table).get(part, inspect.AnyType())
        table = table.get(part) if isinstance(table, Mapping) else None
    options = type_.types if isinstance(type_, inspect.UnionType) else [type_]
    return [value for option in options if isinstance(option, inspect.LiteralType) for value in option.values]
