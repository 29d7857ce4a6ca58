"""Freed memory stays with the process.

A training step frees and asks again for the same large tensors. glibc gives such blocks back to the system each time,
and the next step waits while their pages are mapped and cleared once more.
"""

import ctypes
import sys

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_MOST = (1 << 31) - 1


def keep_freed_memory() -> None:
    """Tell glibc's malloc to keep what is freed; elsewhere nothing happens."""
    if sys.platform.startswith("linux"):
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # other C libraries have none
        if mallopt is not None:
            mallopt(_M_MMAP_THRESHOLD, 1 << 30) or mallopt(
                _M_MMAP_THRESHOLD, 32 << 20
            )  # older ones take 32 MiB at most
            mallopt(_M_TRIM_THRESHOLD, _MOST)
