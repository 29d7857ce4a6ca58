"""Sound files to samples: NIST SPHERE and RIFF wav, mono, uncompressed.

The header is checked against the file's real size before anything is decoded, so that one that lies costs
an error and not gigabytes. Everything refused is a :class:`~scornn.errors.DataError` that names the path.
"""

import io
import struct
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

from scornn.errors import DataError

_LARGEST_FILE = 64 << 20
_RATES = range(8_000, 192_001)
_SPHERE_HEADERS = range(1024, (1 << 16) + 1)
_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
_OTHERS = {
    b"ajkg": "a file compressed with shorten",
    b"fLaC": "a FLAC file",
    b"OggS": "an Ogg file",
    b"ID3": "an MP3 file",
    b"FORM": "an AIFF file",
    b"RF64": "an RF64 file",
    b"version https://git-lfs": "a git-lfs pointer (run `git lfs pull` where it came from)",
    b"<": "an HTML or XML page",
    b"PK": "a zip archive",
    b"\x1f\x8b": "a gzip file",
}
_CONVERT = "convert it to 16-bit mono wav, for example with `sox`"


def read(path: Path, expected_rate: int | None = None) -> tuple[NDArray[np.float64], int]:
    """The samples of a mono file, full scale 1, and their rate.

    Args:
        path: a SPHERE or RIFF file.
        expected_rate: refuse another rate than this one.
    """
    try:
        size = path.stat().st_size
        content = path.read_bytes() if size <= _LARGEST_FILE else b""
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    if size > _LARGEST_FILE:
        raise DataError(f"{path}: {size} bytes; an utterance may have at most {_LARGEST_FILE}")
    return decode(content, str(path), expected_rate)


def decode(content: bytes, name: str, expected_rate: int | None = None) -> tuple[NDArray[np.float64], int]:
    """As :func:`read`, of a file's content; ``name`` is what errors call it."""
    announced, count = check(content, name)
    if expected_rate is not None and announced != expected_rate:
        raise DataError(f"{name}: found {announced} samples a second, expected {expected_rate}")
    if announced not in _RATES:
        raise DataError(f"{name}: found {announced} samples a second, expected {_RATES[0]} to {_RATES[-1]}")
    try:
        samples, rate = soundfile.read(io.BytesIO(content), dtype="float64", always_2d=False)
    except (soundfile.LibsndfileError, RuntimeError, ValueError) as error:
        raise DataError(f"{name}: cannot be decoded ({error}); {_CONVERT}") from error
    if (len(samples), rate) != (count, announced):
        raise DataError(
            f"{name}: decoded {len(samples)} samples at {rate} Hz where the header announces {count} at {announced} Hz"
        )
    if not np.isfinite(samples).all():
        raise DataError(f"{name}: found samples that are not finite")
    if len(samples) == 0 or np.ptp(samples) == 0:
        raise DataError(f"{name}: silent: all {len(samples)} samples are equal")
    return samples, rate


def check(content: bytes, name: str) -> tuple[int, int]:
    """Samples a second and samples in all, by a header that is checked: format, coding, channels, and length."""
    if not content:
        raise DataError(f"{name}: an empty file, expected SPHERE or RIFF audio")
    if content.startswith(b"NIST_1A"):
        return _sphere(content, name)
    if content.startswith(b"RIFF") and content[8:12] == b"WAVE":
        return _riff(content, name)
    found = next((what for start, what in _OTHERS.items() if content.startswith(start)), "something else")
    raise DataError(f"{name}: found {found} (it starts with {content[:8]!r}), expected SPHERE or RIFF audio")


def _sphere(content: bytes, name: str) -> tuple[int, int]:
    size_line = content[8:16].strip()
    size = int(size_line) if size_line.isdigit() else 0
    if size not in _SPHERE_HEADERS or size > len(content):
        raise DataError(
            f"{name}: found a SPHERE header of {size_line!r} bytes in a file of {len(content)}, expected 1024"
        )
    text, end, _ = content[16:size].partition(b"end_head")
    if not end:
        raise DataError(f"{name}: its SPHERE header has no end_head")
    fields = _sphere_fields(text)
    coding = fields.get("sample_coding", "pcm")
    if coding != "pcm":
        advice = "decompress it with `sph2pipe -f wav`" if "shorten" in coding else _CONVERT
        raise DataError(f"{name}: found SPHERE coding {coding!r}, expected plain pcm; {advice}")
    counts = {key: _count(fields.get(key)) for key in ("sample_count", "sample_rate", "sample_n_bytes")}
    for key, value in counts.items():
        if value is None:
            raise DataError(f"{name}: its SPHERE header has no {key} that is a number: {fields.get(key)!r}")
    channels = _count(fields.get("channel_count", "1"))
    samples, rate, width = (value or 0 for value in counts.values())
    return _verified(name, rate, channels or 0, samples * width, len(content) - size, width, exact=True)


def _sphere_fields(text: bytes) -> dict[str, str]:
    fields = {}
    for line in text.decode("latin-1").splitlines():
        parts = line.split(maxsplit=2)
        if len(parts) == 3 and parts[1].startswith("-"):
            fields[parts[0]] = parts[2].strip()
    return fields


def _count(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() and len(text) < 20 else None


def _riff(content: bytes, name: str) -> tuple[int, int]:
    form: tuple[int, int, int, int] | None = None
    position = 12
    while position + 8 <= len(content):
        tag, size = struct.unpack_from("<4sI", content, position)
        position += 8
        if tag == b"fmt " and size >= 16 and position + 16 <= len(content):
            coding, channels, rate, _, block, _ = struct.unpack_from("<HHIIHH", content, position)
            if coding == _EXTENSIBLE and size >= 40 and position + 26 <= len(content):
                (coding,) = struct.unpack_from("<H", content, position + 24)
            form = coding, channels, rate, block
        elif tag == b"data":
            if form is None:
                raise DataError(f"{name}: its RIFF data comes before any format")
            coding, channels, rate, block = form
            if coding not in (_PCM, _FLOAT):
                raise DataError(f"{name}: found RIFF coding {coding}, expected PCM (1) or float (3); {_CONVERT}")
            width = block // max(channels, 1)
            return _verified(name, rate, channels, size, len(content) - position, width, exact=False)
        position += size + size % 2
    raise DataError(f"{name}: truncated: a RIFF file of {len(content)} bytes without sound data")


def _verified(
    name: str, rate: int, channels: int, announced: int, held: int, width: int, *, exact: bool
) -> tuple[int, int]:
    """``announced`` bytes of one channel's data against the bytes that the file ``held``."""
    if channels != 1:
        raise DataError(f"{name}: found {channels} channels, expected one; {_CONVERT}")
    if not 1 <= width <= 8:
        raise DataError(f"{name}: found {width} bytes a sample, expected 1 to 8")
    if announced > held:
        raise DataError(
            f"{name}: truncated, or its header lies: it announces {announced} bytes of sound and {held} follow"
        )
    if exact and announced < held:
        raise DataError(f"{name}: its header lies: it announces {announced} bytes of sound and {held} follow")
    return rate, announced // width
