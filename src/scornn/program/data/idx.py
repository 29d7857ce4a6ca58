"""The idx format of MNIST, plain or gzipped: big-endian magic, sizes, then unsigned bytes.

Nothing that a file says is believed before it is checked, and no more is allocated than the file can hold.
"""

import gzip
import io
import math
import struct
import zlib
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from scornn.errors import DataError

_GZIP_MAGIC = b"\x1f\x8b"
_DEFLATE_LIMIT = 1032  # deflate cannot expand by more


def read(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """The array in an idx file of unsigned bytes with so many dimensions."""
    try:
        with open(path, "rb") as file:
            return parse(file, dimensions, str(path))
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error


def parse(file: BinaryIO, dimensions: int, name: str) -> NDArray[np.uint8]:
    """The array in an open idx file; ``name`` is what errors call it."""
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    start = file.read(64)
    file.seek(0)
    if start[:2] != _GZIP_MAGIC:
        return _array(file, size, start, dimensions, name)
    try:
        with gzip.GzipFile(fileobj=file) as unpacked:
            return _array(cast(BinaryIO, unpacked), size * _DEFLATE_LIMIT, start, dimensions, name)
    except EOFError as error:
        raise DataError(f"{name}: truncated gzip: it ends before its end-of-stream mark") from error
    except (zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{name}: damaged gzip ({error})") from error


def _array(stream: BinaryIO, limit: int, start: bytes, dimensions: int, name: str) -> NDArray[np.uint8]:
    """From a stream of at most so many bytes, whose file starts so."""
    header = stream.read(4 + 4 * dimensions)
    expected_magic = bytes([0, 0, 8, dimensions])
    if header[:4] != expected_magic:
        raise DataError(
            f"{name}: found {_describe(start, header)}, expected an idx file of unsigned bytes with "
            f"{dimensions} dimension(s) (magic {expected_magic.hex()})"
        )
    if len(header) < 4 + 4 * dimensions:
        raise DataError(f"{name}: found a header of {len(header)} bytes, expected {4 + 4 * dimensions}")
    shape = struct.unpack(f">{dimensions}I", header[4:])
    count = math.prod(shape)
    if count > limit:
        raise DataError(f"{name}: the header announces {_sizes(shape)} = {count} bytes, more than the file can hold")
    content = stream.read(count)
    if len(content) < count:
        raise DataError(f"{name}: truncated: found {len(content)} bytes of data, expected {count}")
    if stream.read(1):
        raise DataError(f"{name}: found more data than the {count} bytes of {_sizes(shape)} in its header")
    return np.frombuffer(content, dtype=np.uint8).reshape(shape)


def _sizes(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))


def _describe(start: bytes, header: bytes) -> str:
    """What a file is that is not idx, in words."""
    text = start.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if not start:
        return "an empty file"
    if start[:2] == _GZIP_MAGIC and not header:
        return "an empty gzip file"
    if text.startswith(b"version https://git-lfs"):
        return "a git-lfs pointer (run `git lfs pull` where it came from)"
    if text.startswith((b"<!doctype", b"<html", b"<?xml", b"<head", b"<")):
        return "an HTML or XML page (an error page saved under this name?)"
    if start[:2] == b"PK":
        return "a zip archive"
    return f"magic {header[:4].hex()}"
