"""The idx reader: what it reads, and every kind of file that it must refuse by name."""

import contextlib
import gzip
import io
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scornn.errors import DataError
from scornn.program.data import idx


def packed(array: np.ndarray, kind: int = 8) -> bytes:
    return bytes([0, 0, kind, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


IMAGES = np.arange(3 * 4 * 5, dtype=np.uint8).reshape(3, 4, 5)
GOOD = packed(IMAGES)


def parse(content: bytes, dimensions: int = 3) -> np.ndarray:
    return idx.parse(io.BytesIO(content), dimensions, "some/file")


@pytest.mark.parametrize("wrap", [bytes, gzip.compress])
def test_reads(tmp_path: Path, wrap: type) -> None:
    (tmp_path / "f").write_bytes(wrap(GOOD))
    assert np.array_equal(idx.read(tmp_path / "f", 3), IMAGES)
    assert parse(wrap(packed(np.zeros((0, 2, 2), np.uint8)))).shape == (0, 2, 2)


@pytest.mark.parametrize("wrap", [bytes, gzip.compress])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "an empty"),
        (GOOD[:3], "found magic"),
        (GOOD[:10], "header of 10 bytes, expected 16"),
        (GOOD[:-1], "found 59 bytes of data, expected 60"),
        (GOOD + b"\0", "more data than the 60 bytes of 3 x 4 x 5"),
        (packed(IMAGES, kind=13), "found magic 00000d03, expected .*magic 00000803"),
        (packed(IMAGES[0]), "found magic 00000802"),
        (struct.pack(">4I", 0x803, 2**32 - 1, 28, 28) + b"x", "more than the file can hold"),
    ],
    ids=["empty", "magic cut", "header cut", "data cut", "too long", "floats", "dimensions", "huge"],
)
def test_refuses(wrap: type, content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=f"^some/file: .*{message}"):
        parse(wrap(content))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"<!DOCTYPE html><html><body>404", "an HTML or XML page"),
        (b"\n <html>", "an HTML or XML page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 9912422\n", "git-lfs pointer"),
        (b"PK\x03\x04", "a zip archive"),
        (b"\x1f\x8b", "truncated gzip"),
        (b"\x1f\x8b\x08\x00" + b"\xff" * 60, "damaged gzip"),
    ],
    ids=["html", "html after blanks", "git-lfs", "zip", "two bytes of gzip", "noise in gzip"],
)
def test_other_things_in_its_place(content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        parse(content)


def test_a_directory_or_nothing(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read: Is a directory"):
        idx.read(tmp_path, 3)
    with pytest.raises(DataError, match="cannot be read: No such file"):
        idx.read(tmp_path / "none", 3)


@settings(max_examples=200)
@given(st.data())
def test_damage_is_never_silent(data: st.DataObject) -> None:
    """A truncated gzip is refused; one with a flipped bit is refused or reads as what was stored."""
    whole = gzip.compress(GOOD, mtime=0)
    with pytest.raises(DataError):
        parse(whole[: data.draw(st.integers(0, len(whole) - 1))])
    flipped = bytearray(whole)
    flipped[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        array = parse(bytes(flipped))
    except DataError:
        return
    assert np.array_equal(array, IMAGES)


@given(st.binary(max_size=200))
def test_any_bytes_end_in_an_array_or_a_data_error(content: bytes) -> None:
    for candidate in (content, b"\x1f\x8b" + content, GOOD[:4] + content):
        with contextlib.suppress(DataError):
            assert parse(candidate).dtype == np.uint8


def test_a_bomb_is_not_inflated() -> None:
    """Gigabytes of zeros behind a small header: refused after reading what the header announces."""
    bomb = gzip.compress(GOOD + bytes(50_000_000))
    with pytest.raises(DataError, match="more data than"):
        parse(bomb)
