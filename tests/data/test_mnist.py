"""MNIST: found in every usual place, checked by content, downloaded whole or not at all."""

import contextlib
import gzip
import http.server
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scornn.errors import DataError
from scornn.program.data import locate, mnist

NAMES = [file.name for file in mnist.SOURCES["mnist"].files]
LABELS = "t10k-labels-idx1-ubyte"


@pytest.fixture
def files(shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with links to the four real files, and a cache of this test alone."""
    monkeypatch.setenv("SCORNN_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "files"
    folder.mkdir()
    for name in NAMES:
        (folder / f"{name}.gz").symlink_to(shared_data / "mnist" / f"{name}.gz")
    return folder


def test_real_files(shared_data: Path) -> None:
    images = mnist.load("mnist", shared_data / "mnist")
    assert images.train_images.shape == (60_000, 28, 28)
    assert images.test_images.shape == (10_000, 28, 28)
    assert images.train_images.mean() == pytest.approx(33.3184, abs=1e-4)
    assert np.bincount(images.train_labels).tolist() == [
        5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949,
    ]  # fmt: skip
    assert images.train_labels[:5].tolist() == [5, 0, 4, 1, 9]


@pytest.mark.parametrize("below", [".", "mnist", "MNIST/raw"])
def test_found_below(files: Path, tmp_path: Path, below: str, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "root"
    (root / below).parent.mkdir(parents=True, exist_ok=True)
    files.rename(root / below)
    source = mnist.SOURCES["mnist"]
    assert mnist.find(source, root) == root / below
    assert mnist.find(source, None) is None
    monkeypatch.setenv("SCORNN_DATA", str(root))
    assert mnist.find(source, None) == root / below
    monkeypatch.delenv("SCORNN_DATA")
    monkeypatch.setenv("SCORNN_CACHE", str(root))
    assert mnist.find(source, tmp_path / "empty") == root / below


def test_unpacked_and_dotted_names(files: Path) -> None:
    content = gzip.decompress((files / f"{LABELS}.gz").read_bytes())
    (files / f"{LABELS}.gz").unlink()
    (files / "t10k-labels.idx1-ubyte").write_bytes(content)
    assert mnist.load("mnist", files).test_labels[:3].tolist() == [7, 2, 1]


def replace(files: Path, name: str, content: bytes) -> None:
    (files / f"{name}.gz").unlink()
    (files / f"{name}.gz").write_bytes(content)


NOT_MNIST = {
    "empty": (b"", "found an empty file, expected"),
    "html": (b"\n <html>sorry</html>", "found an HTML or XML page"),
    "git-lfs": (b"version https://git-lfs.github.com/spec/v1\n", "found a git-lfs pointer"),
    "other content": (
        gzip.compress(bytes([0, 0, 8, 1, 0, 0, 39, 16]) + bytes(10_000)),
        "expected t10k-labels",
    ),
    "noise in gzip": (b"\x1f\x8b\x08\x00" + b"\xff" * 60, "damaged gzip"),
    "bomb": (gzip.compress(bytes(50_000_000)), "found a file of"),
}


@pytest.mark.parametrize(("content", "message"), NOT_MNIST.values(), ids=NOT_MNIST)
def test_a_wrong_file_is_named(files: Path, content: bytes, message: str) -> None:
    replace(files, LABELS, content)
    with pytest.raises(DataError, match=message) as caught:
        mnist.load("mnist", files)
    assert str(files / f"{LABELS}.gz") in str(caught.value)
    assert "To get the right one, remove it and put the published file" in str(caught.value)


@settings(max_examples=50)
@given(st.data())
def test_damage_is_never_silent(shared_data: Path, data: st.DataObject) -> None:
    """A truncated gzip is refused; one with a flipped bit is refused or reads as what was stored."""
    source, whole = mnist.SOURCES["mnist"], (shared_data / "mnist" / f"{LABELS}.gz").read_bytes()
    file = next(file for file in source.files if file.name == LABELS)
    with pytest.raises(DataError):
        mnist.parse(source, file, whole[: data.draw(st.integers(0, len(whole) - 10))], "f")
    flipped = bytearray(whole)
    flipped[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with contextlib.suppress(DataError):
        assert np.array_equal(mnist.parse(source, file, bytes(flipped), "f"), mnist.parse(source, file, whole, "f"))


def test_the_other_data_set(files: Path) -> None:
    with pytest.raises(DataError, match=r"found a file of MNIST, expected .* of Fashion-MNIST"):
        mnist.load("fashion", files)


def test_a_part_of_it(files: Path) -> None:
    (files / f"{NAMES[0]}.gz").unlink()
    with pytest.raises(DataError, match=rf"holds only a part of MNIST\. Needed: {NAMES[0]}\.gz\."):
        mnist.load("mnist", files)


def test_offline_names_the_files_and_the_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCORNN_CACHE", str(tmp_path))
    with pytest.raises(DataError) as caught:
        mnist.load("mnist", tmp_path / "nowhere")
    assert all(f"{name}.gz" in str(caught.value) for name in NAMES)
    assert str(tmp_path / "mnist") in str(caught.value)
    assert "SCORNN_OFFLINE" in str(caught.value)
    assert caught.value.exit_code == 3


class Mirror(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, str]]:
    """A web server on this machine, its folder and its address."""
    folder = tmp_path / "mirror"
    folder.mkdir()

    def handler(*args: object) -> Mirror:
        return Mirror(*args, directory=str(folder))  # type: ignore[arg-type]

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.delenv("SCORNN_OFFLINE")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    yield folder, f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


def sources(*mirrors: str) -> dict[str, mnist.Source]:
    real = mnist.SOURCES["mnist"]
    return {"mnist": mnist.Source(real.name, real.files, real.below, (), mirrors, "")}


def test_download(files: Path, mirror: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A mirror that fails or lies is passed over; the cache gets the right files and nothing else."""
    folder, address = mirror
    (folder / "bad").mkdir()
    for name in NAMES:
        shutil.copy(files / f"{name}.gz", folder)
    (folder / "bad" / f"{NAMES[0]}.gz").write_text("<html>")
    whole = (folder / f"{NAMES[1]}.gz").read_bytes()
    (folder / "bad" / f"{NAMES[1]}.gz").write_bytes(whole[:1000])
    monkeypatch.setattr(mnist, "SOURCES", sources(f"{address}bad/", address))
    images = mnist.load("mnist")
    assert images.test_labels[:3].tolist() == [7, 2, 1]
    cache = locate.cache_directory() / "mnist"
    assert sorted(path.name for path in cache.iterdir()) == sorted(f"{name}.gz" for name in NAMES)

    shutil.rmtree(folder)
    assert np.array_equal(mnist.load("mnist").test_labels, images.test_labels)
    (cache / f"{NAMES[3]}.gz").unlink()
    with pytest.raises(DataError, match=r"404.*Needed: t10k-labels-idx1-ubyte\.gz\."):
        mnist.load("mnist")


def test_cache_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCORNN_CACHE", "/somewhere")
    assert locate.cache_directory() == Path("/somewhere")
    monkeypatch.delenv("SCORNN_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert locate.cache_directory() == Path("/xdg/scornn")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", "/home/someone")
    assert locate.cache_directory() == Path("/home/someone/.cache/scornn")
