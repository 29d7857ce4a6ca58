"""Tables into frozen msgspec structs, with refusals in words.

Each names the key, the value found and the whole range allowed; an unknown key brings a suggestion.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from scornn.errors import UsageError, suggest
from scornn.program.train.tables import Table, lookup

T = TypeVar("T")


def convert(table: Table, type_: type[T]) -> T:
    """The table as a ``type_``, or a :class:`UsageError` that names the key."""
    root = inspect.type_info(type_)
    _check_keys(table, root, (), root)
    _check_values(table, (), root)
    try:
        return msgspec.convert(table, type_)
    except msgspec.ValidationError as error:
        raise UsageError(_explain(error, table, root)) from None


def known_keys(type_: inspect.Type, path: tuple[str, ...] = ()) -> list[str]:
    """All dotted keys that a table of this type may have."""
    keys = []
    for struct in _structs(type_, None):
        for field in struct.fields:
            here = (*path, field.encode_name)
            keys += known_keys(field.type, here) if list(_structs(field.type, None)) else [".".join(here)]
        if struct.tag_field:
            keys.append(".".join((*path, struct.tag_field)))
    return sorted(set(keys))


def _structs(type_: inspect.Type, table: Any) -> list[inspect.StructType]:
    """The struct types that a table may become; a tag in it picks one of a union."""
    options = list(type_.types) if isinstance(type_, inspect.UnionType) else [type_]
    structs = [option for option in options if isinstance(option, inspect.StructType)]
    if isinstance(table, Mapping):
        tagged = [s for s in structs if s.tag_field and table.get(s.tag_field) == s.tag]
        return tagged or structs
    return structs


def _check_keys(table: Any, type_: inspect.Type, path: tuple[str, ...], root: inspect.Type) -> None:
    structs = _structs(type_, table)
    if not structs or not isinstance(table, Mapping):
        return
    fields = {field.encode_name: field.type for struct in structs for field in struct.fields}
    tags = {struct.tag_field for struct in structs if struct.tag_field}
    for key, value in table.items():
        if key in fields:
            _check_keys(value, fields[key], (*path, key), root)
        elif key not in tags:
            full = ".".join((*path, str(key)))
            here = sorted((*tags, *fields))
            elsewhere = [k for k in known_keys(root) if k.rsplit(".", 1)[-1] == key and k != full]
            hint = f"; did you mean {' or '.join(elsewhere)}?" if elsewhere else suggest(str(key), here)
            of = f" of {structs[0].tag}" if tags and len(structs) == 1 else ""
            raise UsageError(f"unknown key {full}{of}{hint}")


def _explain(error: msgspec.ValidationError, table: Table, root: inspect.Type) -> str:
    """msgspec's message, with the key, the value found and the whole range allowed."""
    match = re.fullmatch(r"(?P<what>.*) - at `(?:key in )?\$\.?(?P<path>.*)`", str(error), re.DOTALL)
    what, where = (match["what"], match["path"]) if match else (str(error), "")
    where = re.split(r"\[(?:\.\.\.|\d+)\]", where)[0]  # how msgspec writes a value of a dict, an item of a list
    path = tuple(part for part in where.split(".") if part)
    missing = re.search(r"missing required field `(.*)`", what)
    if missing:
        path = (*path, missing[1])
        return f"{'.'.join(path)} is missing: expected {_allowed(path, root, table)}"
    value = lookup(table, ".".join(path)) if path else table
    if isinstance(value, Mapping) and match and "[...]" in match["path"]:
        allowed = _allowed((*path, "*"), root, table)
        return f"{'.'.join(path)} = {json.dumps(value, default=str)}: expected each value to be {allowed}"
    if isinstance(value, Mapping):
        return f"{'.'.join(path) or 'config'}: {what}"
    return f"{'.'.join(path)} = {json.dumps(value, default=str)}: expected {_allowed(path, root, table)}"


def _allowed(path: tuple[str, ...], type_: inspect.Type, table: Any) -> str:
    """The range of a key, in words."""
    for part in path:
        structs = _structs(type_, table)
        table = table.get(part) if isinstance(table, Mapping) else None
        if any(struct.tag_field == part for struct in structs):
            return "one of " + ", ".join(str(struct.tag) for struct in structs)
        fields = {field.encode_name: field.type for struct in structs for field in struct.fields}
        if part in fields:
            type_ = fields[part]
        elif isinstance(type_, inspect.DictType):
            type_ = type_.value_type
        else:
            return "a known key"
    return _in_words(type_)


def _in_words(type_: inspect.Type) -> str:
    match type_:
        case inspect.UnionType(types):
            return " or ".join(dict.fromkeys(_in_words(t) for t in types if not isinstance(t, inspect.NoneType)))
        case inspect.LiteralType(values):
            return "one of " + ", ".join(str(value) for value in values)
        case inspect.IntType() | inspect.FloatType():
            noun = "an integer" if isinstance(type_, inspect.IntType) else "a finite number"
            if type_.ge is not None and type_.le is not None:
                return f"{noun} from {type_.ge} to {type_.le}"
            signs = {">=": type_.ge, ">": type_.gt, "<=": type_.le, "<": type_.lt}
            limits = [f"{sign} {limit}" for sign, limit in signs.items() if limit is not None]
            return " ".join([noun, " and ".join(limits)]).strip()
        case inspect.BoolType():
            return "true or false"
        case inspect.StrType():
            return "text"
        case inspect.StructType() | inspect.DictType():
            return "a table"
        case inspect.TupleType(items):
            return "a list of " + ", ".join(map(_in_words, items))
        case inspect.CollectionType(item_type=item):
            return "a list" if isinstance(item, inspect.AnyType) else f"a list, each item {_in_words(item)}"
    return type(type_).__name__.removesuffix("Type").lower()


def _check_values(value: Any, path: tuple[str, ...], root: inspect.Type) -> None:
    """Refuse what JSON and UTF-8 cannot write, and msgspec takes."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            _check_values(item, (*path, str(key)), root)
        return
    for leaf in _leaves(value):
        if isinstance(leaf, float) and not math.isfinite(leaf):
            raise UsageError(f"{'.'.join(path)} = {value}: expected {_allowed(path, root, None)}")
        if isinstance(leaf, str) and leaf != leaf.encode(errors="replace").decode():
            raise UsageError(
                f"{'.'.join(path)} = {value!a}: it is not UTF-8; give a folder another name, or a link to it"
            )


def _leaves(value: Any) -> Iterator[Any]:
    """A value, or those in its lists and in tables in lists."""
    if isinstance(value, Mapping | list | tuple):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _leaves(item)
    else:
        yield value
