"""What all tests share: no network, no writing to the user's cache, and the real data where it is at hand."""

import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def isolated(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test, and each program that it starts, has a cache of its own and may not download."""
    monkeypatch.setenv("SCORNN_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
    monkeypatch.setenv("SCORNN_OFFLINE", "1")
    monkeypatch.delenv("SCORNN_DATA", raising=False)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data sets (mnist, timit_sample, iban_subset)."""
    beside = Path(__file__).parents[2] / "shared" / "data"
    path = Path(os.environ.get("SCORNN_SHARED_DATA", beside))
    if not path.is_dir():
        pytest.skip(f"real data sets not at {path}; set SCORNN_SHARED_DATA to their folder")
    return path
