"""What all tests share: one thread, fresh memory filled with NaN, and the way to the real data."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[1]


def pytest_configure(config: pytest.Config) -> None:
    torch.set_num_threads(1)  # xdist runs one worker on each core


@pytest.fixture(autouse=True)
def _seeded_and_poisoned() -> Iterator[None]:
    """A fixed seed, and ``torch.empty`` full of NaN: a read of memory that nobody wrote shows itself."""
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder with real MNIST, the TIMIT sample and the Iban corpus; tests that need it are skipped without it."""
    folder = Path(os.environ.get("SCORNN_SHARED_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real data: {folder} does not exist; set SCORNN_SHARED_DATA")
    return folder
