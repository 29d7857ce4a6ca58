"""Tasks and models of users' own: a Python file, or an installed package with an entry point ``scornn.plugins``.

Loading a plugin runs its code. A file is run because its user names it, with ``--plugin`` or in the environment
variable ``SCORNN_PLUGINS``. A config.json names files too, but makes nothing run.
"""

import hashlib
import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from scornn.errors import UsageError
from scornn.program import durable

_digests: dict[str, str] = {}
"""Of the files that were run: one that is edited or deleted after that changes nothing of this process."""


def load(files: Iterable[str] = ()) -> list[str]:
    """Run the files that a user names, or those of ``SCORNN_PLUGINS``, once in a process; their absolute paths."""
    _load_installed()
    named = list(files) or [file for file in os.environ.get("SCORNN_PLUGINS", "").split(os.pathsep) if file]
    paths = [str(Path(file).expanduser().resolve()) for file in named]
    for path in paths:
        _run(path)
    return paths


def of_config(table: Mapping[str, Any], files: Iterable[str] = ()) -> list[str]:
    """The plugins of a stored config: ``files``, or those that it names, if their user has named them too."""
    here = load(files := list(files))
    if files:
        return here
    found = []
    for path in table.get("plugins") or []:
        known = path if was_run(path) else next((file for file in here if Path(file).name == Path(path).name), None)
        if known is None:
            raise UsageError(
                f"the config names the plugin {path}, whose code would be run: read it, then pass --plugin {path}, "
                f"or plugins=[{path!r}] in Python; SCORNN_PLUGINS names it for every command"
            )
        found.append(known)
    return found


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


def _run(path: str) -> None:
    name = f"scornn_plugin_{hashlib.sha256(path.encode()).hexdigest()[:16]}"
    if name in sys.modules:
        return
    if not Path(path).is_file():
        raise UsageError(f"no plugin {path}: expected a Python file")
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
