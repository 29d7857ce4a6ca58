"""What all tests share: one thread, fresh memory filled with NaN, and the way to the real data."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import numpy as np
import pytest
import torch

ROOT = Path(__file__).resolve().parents[1]


def pytest_configure(config: pytest.Config) -> None:
    torch.set_num_threads(1)  # xdist runs one worker on each core
    os.environ["OMP_NUM_THREADS"] = "1"  # for the programs that tests start: threads of two that wait spin
    hypothesis.settings.register_profile("scornn", deadline=None, derandomize=True)  # a busy machine is no failure
    hypothesis.settings.load_profile("scornn")


@pytest.fixture(autouse=True)
def _seeded_and_poisoned() -> Iterator[None]:
    """A fixed seed, and ``torch.empty`` full of NaN: a read of memory that nobody wrote shows itself."""
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture(autouse=True)
def _isolated(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test, and no program that one starts, downloads anything or touches the user's cache."""
    monkeypatch.setenv("SCORNN_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
    monkeypatch.setenv("SCORNN_OFFLINE", "1")
    monkeypatch.delenv("SCORNN_DATA", raising=False)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder with real MNIST, the TIMIT sample and the Iban corpus; tests that need it are skipped without it."""
    folder = Path(os.environ.get("SCORNN_SHARED_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real data: {folder} does not exist; set SCORNN_SHARED_DATA")
    return folder


def _sphere(samples: np.ndarray, rate: int = 16_000) -> bytes:
    """A NIST SPHERE file of 16-bit samples, as on TIMIT's disc."""
    fields = f"""channel_count -i 1
sample_count -i {len(samples)}
sample_rate -i {rate}
sample_n_bytes -i 2
sample_byte_format -s2 01
sample_sig_bits -i 16
end_head
"""
    return b"NIST_1A\n   1024\n" + fields.encode().ljust(1024 - 16) + samples.astype("<i2").tobytes()


@pytest.fixture(scope="session")
def timit_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All of TIMIT in the LDC's layout: 630 speakers of 10 sentences, tiny sounds, linked from eight files.

    The ids of the 462 training speakers are made up, seven of them with "sa" in them as on the disc.
    """
    from scornn.program.data.corpora import timit

    root = tmp_path_factory.mktemp("timit")
    sounds = []
    for number in range(8):
        sounds.append(root / f"sound{number}")
        noise = np.random.default_rng(number).integers(-3000, 3000, 600 + 150 * number)
        sounds[-1].write_bytes(_sphere(noise))
    letters = "bcdghklnprtvwz"
    made_up = (f"{sex}{a}{b}{c}0" for a in letters for b in letters for c in letters for sex in "fm")
    listed = timit.DEVELOPMENT | timit.CORE
    unlisted = [name for name in made_up if name not in listed]
    train = [*(f"m{c}sa0" for c in letters[:7]), *unlisted[:455]]
    rest = unlisted[455 : 455 + 94]
    for part, speakers in (("TRAIN", train), ("TEST", [*sorted(listed), *rest])):
        for number, speaker in enumerate(speakers):
            folder = root / part / f"DR{number % 8 + 1}" / speaker.upper()
            folder.mkdir(parents=True)
            names = [
                "SA1",
                "SA2",
                *(f"SI{number + 630 * i}" for i in range(3)),
                *(f"SX{number % 90 + 90 * i}" for i in range(5)),
            ]
            for k, name in enumerate(names):
                os.link(sounds[(number + k) % 8], folder / f"{name}.WAV")
    return root
