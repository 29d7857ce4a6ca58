"""Tasks and models of users' own: a Python file, or an installed package with an entry point ``scornn.plugins``.

Loading a plugin runs its code. A file is run because its user named it with ``--plugin``; a run remembers the name,
and the user's cache remembers that this user has named it. A config.json from elsewhere can name files too, but makes
nothing run: the file must be named once more.
"""

import hashlib
import importlib.metadata
import importlib.util
import json
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from scornn.errors import StorageError, UsageError
from scornn.program import durable
from scornn.program.data.locate import cache_directory

_digests: dict[str, str] = {}
"""Of the files that were run: one that is edited or deleted after that changes nothing of this process."""


def load(files: Iterable[str]) -> list[str]:
    """Run the files that a user has named, once in a process; their absolute paths, which a run keeps."""
    _load_installed()
    paths = [_absolute(file) for file in files]
    for path in paths:
        _run(path)
    _remember(paths)
    return paths


def load_remembered(table: Mapping[str, Any]) -> list[str]:
    """Run the files that a config names, if this user has named them before."""
    _load_installed()
    paths = table.get("plugins") or []
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        raise UsageError(f"plugins = {paths!r}: expected a list of paths")
    for path in paths:
        if path not in _named():
            raise UsageError(
                f"the config names the plugin {path}, whose code would be run, and you have not named it yourself: "
                f"read it, then {_ask_for(path)}"
            )
        _run(path)
    return list(paths)


def _ask_for(path: str) -> str:
    where = "" if Path(path).is_absolute() else ", with where it is"  # a file for others has its name alone
    return f"pass --plugin {path}, or in Python plugins=[{path!r}]{where}"


def was_run(path: str) -> bool:
    """Whether a file is one that this process has run."""
    return path in _digests


def without_places(table: Mapping[str, Any]) -> dict[str, Any]:
    """A config for others to read: where its data and its plugins lay is nobody's business."""
    names = [Path(file).name for file in table.get("plugins") or ()]
    return {**table, "data": None, **({"plugins": names} if names else {})}


def digest(paths: Iterable[str]) -> str:
    """What identifies the code of plugins: the names of the files and a sha256 of each, as it was when it was run."""
    return ", ".join(f"{Path(path).name} {(_digests.get(path) or durable.sha256_file(path))[:12]}" for path in paths)


def _absolute(file: str) -> str:
    """The path as a run keeps it, which a config must be able to hold."""
    try:
        path = str(Path(file).expanduser().resolve())
        path.encode()
    except (ValueError, RuntimeError, OSError) as error:  # a NUL, no such home, links in a circle, bytes of no encoding
        raise UsageError(f"plugin {file!a}: {error}; expected the name of a Python file") from None
    return path


def _run(path: str) -> None:
    name = f"scornn_plugin_{hashlib.sha256(path.encode()).hexdigest()[:16]}"
    if name in sys.modules:
        return
    if not Path(path).is_file():
        raise UsageError(
            f"no plugin {path}: expected a Python file; pass --plugin, or in Python plugins=[…], with where it is now"
        )
    specification = importlib.util.spec_from_file_location(name, path)
    if specification is None or specification.loader is None:
        raise UsageError(f"plugin {path}: expected a name that ends in .py")
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    if (folder := str(Path(path).parent)) not in sys.path:
        sys.path.insert(0, folder)  # as `python FILE` does: files beside it can be imported, then and later
    try:
        _digests[path] = durable.sha256_file(path)
        specification.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise UsageError(f"plugin {path}: {type(error).__name__}: {error}") from error


@cache
def _load_installed() -> None:
    """Installed packages that say that they are plugins, once in a process."""
    for entry in importlib.metadata.entry_points(group="scornn.plugins"):
        try:
            entry.load()
        except Exception as error:
            raise UsageError(f"the plugin {entry.name} ({entry.value}) of an installed package: {error!r}") from error


def _list() -> Path:
    return cache_directory() / "plugins.json"


def _named() -> list[str]:
    try:
        named = json.loads(_list().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    return [path for path in named if isinstance(path, str)] if isinstance(named, list) else []


def _remember(paths: list[str]) -> None:
    """Note that this user has named these files. Without a cache to write to they are named each time."""
    new = [path for path in paths if path not in _named()]
    if new:
        try:
            durable.make_directory(_list().parent)
            durable.write_json(_list(), [*_named(), *new])
        except StorageError:
            return
