"""Each instruction set of the kernel that this machine has."""

from __future__ import annotations

import ctypes

import pytest

from scornn.ops import library

KERNEL = library.load()


def _usable(name: str) -> bool:
    if isinstance(KERNEL, str):
        return False
    return bool(ctypes.CDLL(str(KERNEL.path)).scornn_isa_supported(library.ISA[name]))


@pytest.fixture(params=[name for name in library.ISA if name != "best" and _usable(name)])
def isa(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each instruction set that this machine has, in turn."""
    monkeypatch.setattr(KERNEL, "isa", library.ISA[request.param])
    return str(request.param)
