"""Sound files to samples: mono, in any format that libsndfile reads, NIST SPHERE and RIFF wav among them."""

import io
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scornn.errors import DataError, UsageError, not_installed
from scornn.program.data import locate

_RATES = range(8_000, 192_001)
_SECONDS = (0.032, 60.0)
"""At least one window of the transform, at most what a batch can hold."""


def library() -> Any:
    """The package soundfile, which the extra ``speech`` brings with SciPy."""
    try:
        import scipy  # noqa: F401
        import soundfile
    except ModuleNotFoundError:
        raise UsageError(not_installed("speech", "soundfile", "scipy")) from None
    return soundfile


def read(path: Path, expected_rate: int | None = None) -> tuple[NDArray[np.float64], int]:
    """The samples of a mono file, full scale 1, and their rate; a :class:`DataError` names a file that is unfit."""
    soundfile = library()
    try:
        content = path.read_bytes()
        with soundfile.SoundFile(io.BytesIO(content)) as file:
            _check(file, content, expected_rate)
            samples, rate, frames = file.read(), file.samplerate, file.frames
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    except soundfile.LibsndfileError as error:
        raise DataError(
            f"{path}: found {locate.described(content)}, expected SPHERE or RIFF audio ({error.error_string}); "
            "`sph2pipe -f wav` decompresses SPHERE, `sox` converts other kinds"
        ) from error
    except ValueError as error:
        raise DataError(f"{path}: {error}") from error
    if len(samples) != frames:
        raise DataError(f"{path}: truncated: decoded {len(samples)} of {frames} samples")
    if not np.isfinite(samples).all():
        raise DataError(f"{path}: found samples that are not finite")
    if np.ptp(samples) == 0:
        raise DataError(f"{path}: silent: all {len(samples)} samples are equal")
    return samples, rate


def _check(file: Any, content: bytes, expected_rate: int | None) -> None:
    """Raise a :class:`ValueError` for what must not be decoded: other channels, another rate, a wrong length."""
    if file.channels != 1:
        raise ValueError(f"found {file.channels} channels, expected one; `sox` makes mono of it")
    if expected_rate is not None and file.samplerate != expected_rate:
        raise ValueError(f"found {file.samplerate} samples a second, expected {expected_rate}")
    if file.samplerate not in _RATES:
        raise ValueError(f"found {file.samplerate} samples a second, expected {_RATES[0]} to {_RATES[-1]}")
    if (announced := _announced(content)) > len(content):
        raise ValueError(f"truncated: its header announces {announced} bytes, found {len(content)}")
    if not _SECONDS[0] <= (seconds := file.frames / file.samplerate) <= _SECONDS[1]:
        raise ValueError(f"{seconds:.3f} seconds of sound, expected {_SECONDS[0]} to {_SECONDS[1]:.0f}")


def _announced(content: bytes) -> int:
    """Where the samples of a mono file end by its header, in bytes: libsndfile reads a file cut off without a word."""
    if content.startswith(b"NIST_1A"):
        header = int(content[8:16])
        fields = dict(re.findall(rb"(sample_count|sample_n_bytes) -i (\d{1,18})\b", content[:header]))
        return header + int(fields.get(b"sample_count", 0)) * int(fields.get(b"sample_n_bytes", 0))
    position, size = 12, 0
    while content.startswith(b"RIFF") and position + 8 <= len(content):
        tag, size = struct.unpack_from("<4sI", content, position)
        position += 8
        if tag == b"data":
            return position + size
        position += size + size % 2
    return 0
