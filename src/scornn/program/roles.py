"""What another value of a setting makes of a run, said on the setting's own field.

Where a field has no role, another experiment: such a run is not one of its preset any more.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

from msgspec import Struct


class Role(Enum):
    """In ``Annotated[..., Role.X]`` of a config's field."""

    FREE = "the same run: how long it goes on, what it is called, where its files are"
    RUN = "another run of the same experiment: its seed, its machine, how much data it sees and how often it looks"


@cache
def roles(type_: Any, prefix: str = "") -> Mapping[str, Role]:
    """The dotted keys of a struct, and of the structs in it, that have a role.

    Example:
        >>> from typing import Annotated
        >>> class Settings(Struct):
        ...     lr: float
        ...     seed: Annotated[int, Role.RUN]
        >>> {key: role.name for key, role in roles(Settings).items()}
        {'seed': 'RUN'}
    """
    found: dict[str, Role] = {}
    for name, hint in get_type_hints(type_, include_extras=True).items():
        own = next((part for part in get_args(hint) if isinstance(part, Role)), None)
        if own is not None:
            found[prefix + name] = own
        else:
            for inner in _structs(hint):
                found |= roles(inner, f"{prefix}{name}.")
    return found


def _structs(hint: Any) -> Iterable[Any]:
    if isinstance(hint, type) and issubclass(hint, Struct):
        yield hint
    elif get_origin(hint) is not None or get_args(hint):
        for inner in get_args(hint):
            yield from _structs(inner)
