"""`scornn data`: what is found where, verification by content, exit codes."""

import gzip
import os
from pathlib import Path

import pytest

from scornn.program.cli import main
from scornn.program.data import catalogue


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = main(["data", *argv])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_path(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "path") == (0, os.environ["SCORNN_CACHE"] + "\n", "")


def test_list(capsys: pytest.CaptureFixture[str], shared_data: Path, tmp_path: Path) -> None:
    code, out, _ = run(capsys, "--data", str(shared_data))
    assert code == 0
    lines = dict(line.split(maxsplit=1) for line in out.splitlines())
    assert lines["MNIST"] == str(shared_data / "mnist")
    assert lines["TIMIT"] == str(shared_data / "timit_sample")
    assert lines["Iban"] == str(shared_data / "iban_subset")
    code, out, _ = run(capsys, "list", "--data", str(tmp_path))
    assert code == 0
    assert "not found; licensed: LDC93S1" in out
    assert str(tmp_path) in out


def test_verify(capsys: pytest.CaptureFixture[str], shared_data: Path) -> None:
    code, out, _ = run(capsys, "verify", "--data", str(shared_data))
    assert code == 0
    assert f"60000 + 10000 images in {shared_data / 'mnist'}, sha256 as published" in out
    assert "96 train, 16 valid, 16 test utterances" in out
    assert "partial TIMIT" in out
    assert "417 train, 65 valid, 89 test utterances" in out


def test_verify_finds_what_is_broken(capsys: pytest.CaptureFixture[str], shared_data: Path, tmp_path: Path) -> None:
    (tmp_path / "mnist").mkdir()
    for path in (shared_data / "mnist").glob("*.gz"):
        (tmp_path / "mnist" / path.name).symlink_to(path)
    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(b"nothing"))
    for speaker in ("fabc0", "mabc0", "mbcd0"):
        (tmp_path / "timit" / f"dr1-{speaker}").mkdir(parents=True)
        (tmp_path / "timit" / f"dr1-{speaker}" / "sx1.wav").write_bytes(b"")
    code, out, err = run(capsys, "verify", "--data", str(tmp_path))
    assert code == 3
    assert "MNIST          BROKEN: " in out
    assert "t10k-labels-idx1-ubyte.gz: found a file of" in out
    assert "TIMIT          BROKEN: 3 of 3 files cannot be used" in out
    assert err.splitlines()[-1] == "scornn: broken: MNIST, TIMIT; see above"


def test_nothing_to_verify(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(catalogue.SOURCES, "Fashion-MNIST")  # this machine may have it installed
    code, _, err = run(capsys, "verify", "--data", str(tmp_path))
    assert code == 3
    assert "no data set to verify" in err


def test_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "verifi")[0] == 2
    code, out, _ = run(capsys, "--help")
    assert code == 0
    assert "scornn data verify" in out


def test_what_to_do_next_is_suggested(capsys: pytest.CaptureFixture[str], shared_data: Path) -> None:
    assert "unknown action 'verfy'; did you mean verify?" in run(capsys, "verfy")[2]
    assert run(capsys, "--data", str(shared_data))[1].endswith(
        f"try            scornn data verify --data {shared_data}\n"
    )
