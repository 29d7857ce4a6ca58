"""Where data is looked for: ``--data``, then ``SCORNN_DATA``, then the user's cache directory.

``SCORNN_CACHE`` moves the cache; ``SCORNN_OFFLINE=1`` forbids downloads.
"""

import os
from pathlib import Path

from scornn.errors import DataError


def expanded(path: Path | str) -> Path:
    """A path whose ``~`` is the home that it names."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise DataError(f"{path}: {error}; expected ~ or the name of a user who has one") from None


def cache_directory() -> Path:
    """``SCORNN_CACHE``, or ``scornn`` in the user's cache directory. It need not exist."""
    if own := os.environ.get("SCORNN_CACHE"):
        return expanded(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base and Path(base).is_absolute() else Path.home() / ".cache") / "scornn"


def roots(data: Path | None) -> list[Path]:
    """The folders to search, in order."""
    given = [data] if data is not None else []
    if environment := os.environ.get("SCORNN_DATA"):
        given.append(Path(environment))
    return [*map(expanded, given), cache_directory()]


def folders(data: Path | None, below: tuple[str, ...], elsewhere: tuple[str, ...] = ()) -> list[Path]:
    """The folders that exist: of each root those ``below`` it, then itself; then those ``elsewhere``."""
    candidates = [root / name for root in roots(data) for name in (*below, ".")]
    return [path for path in (*candidates, *map(Path, elsewhere)) if path.is_dir()]


_OTHERS = {
    b"version https://git-lfs": "a git-lfs pointer (run `git lfs pull` where it came from)",
    b"<": "an HTML or XML page (an error page saved under this name?)",
    b"PK": "a zip archive",
    b"\x1f\x8b": "a gzip file",
    b"ajkg": "a file compressed with shorten",
}


def described(content: bytes) -> str:
    """What stands in the place of a data file, by how it starts."""
    text = content[:64].lstrip(b"\xef\xbb\xbf \t\r\n")
    if not content:
        return "an empty file"
    return next((what for start, what in _OTHERS.items() if text.startswith(start)), f"a file of {content[:8]!r} …")
