"""Random numbers by position: a pure function of (seed, stream, epoch, row), with no state to save.

Philox4x64 is a counter-based generator: any place of its stream is reached at once. Only its raw 64-bit
words are used, so the numbers do not depend on the version of numpy.
"""

import zlib

import numpy as np
from numpy.typing import NDArray

_WORDS_PER_COUNT = 4


def words(seed: int, stream: str, first: int, rows: int, per_row: int, epoch: int = 0) -> NDArray[np.uint64]:
    """Rows ``first .. first + rows`` of an endless table of uniform 64-bit words, ``per_row`` in each.

    The table depends on (seed, stream, epoch) and ``per_row``; a row, on nothing but its number.
    """
    if not 0 <= seed < 1 << 64:
        raise ValueError(f"seed must be in 0 .. 2**64 - 1, got {seed}")
    counts_per_row = -(-per_row // _WORDS_PER_COUNT)
    philox = np.random.Philox(
        key=seed | zlib.crc32(stream.encode()) << 64, counter=first * counts_per_row | epoch << 128
    )
    table = philox.random_raw(rows * counts_per_row * _WORDS_PER_COUNT)
    return table.reshape(rows, counts_per_row * _WORDS_PER_COUNT)[:, :per_row]


def uniform(word: NDArray[np.uint64]) -> NDArray[np.float32]:
    """Words to float32 in [0, 1): multiples of 2^-24."""
    return (word >> np.uint64(40)).astype(np.float32) * np.float32(2**-24)


def below(word: NDArray[np.uint64], bound: int) -> NDArray[np.int64]:
    """Words to integers in 0 .. bound - 1, for bound up to 2^31."""
    return (((word >> np.uint64(32)) * np.uint64(bound)) >> np.uint64(32)).astype(np.int64)


def permutation(seed: int, stream: str, epoch: int, size: int) -> NDArray[np.int64]:
    """A random order of 0 .. size - 1."""
    return np.argsort(words(seed, stream, 0, 1, size, epoch)[0], kind="stable").astype(np.int64)
