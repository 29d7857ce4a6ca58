"""List the data sets that are found, verify them, or say where the cache is.

`list` (the default) shows where each data set was found; nothing is read or downloaded. `verify` reads
every file of those found: content against the known sha256 for MNIST, headers and samples for speech.
`path` prints the directory where downloads and computed features are kept.

Data is looked for in --data, then in SCORNN_DATA, then in the cache.

Examples:
    scornn data
    scornn data verify --data ~/data
"""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from scornn.errors import DataError, UsageError, suggest
from scornn.program.cli._options import absolute, option

ACTIONS = ("list", "verify", "path")


@dataclass(frozen=True)
class Flags:
    action: Annotated[str, tyro.conf.Positional, option("[ACTION]", f"{', '.join(ACTIONS)}.")] = "list"
    data: Annotated[str | None, option("DIR", "Folder to look in first.")] = None


def main(flags: Flags) -> int:
    if flags.action not in ACTIONS:
        raise UsageError(f"unknown action {flags.action!r}{suggest(flags.action, ACTIONS)}")
    data = absolute(flags.data)

    from scornn.program.data import locate
    from scornn.program.data.catalogue import SOURCES

    if flags.action == "path":
        print(locate.cache_directory())
        return 0
    found = {name: source.find(data) for name, source in SOURCES.items()}
    if flags.action == "verify":
        return _verify({name: place for name, place in found.items() if place}, data)
    for name, folder in found.items():
        print(f"{name:<14} {folder or f'not found; {SOURCES[name].advice}'}")
    print(f"{'looked in':<14} {', '.join(dict.fromkeys(str(path) for path in locate.roots(data)))}")
    where = f" --data {shlex.quote(str(data))}" if data else ""
    known = f"verify{where}" if any(found.values()) else "--data DIR, with the folder where your data is"
    print(f"{'try':<14} scornn data {known}")
    return 0


def _verify(found: dict[str, Path], data: Path | None) -> int:
    from scornn.program.data import locate
    from scornn.program.data.catalogue import SOURCES

    if not found:
        looked = ", ".join(str(path) for path in locate.roots(data))
        raise DataError(f"no data set to verify below {looked}; pass --data or set SCORNN_DATA")
    broken = []
    for name, folder in found.items():
        try:
            said = f"ok: {SOURCES[name].verify(folder)}"
        except DataError as error:
            broken.append(name)
            said = f"BROKEN: {error}"
        print(f"{name:<14} {said}", flush=True)
    if broken:
        raise DataError(f"broken: {', '.join(broken)}; see above")
    return 0
