"""MNIST and Fashion-MNIST: found on disk or downloaded, and known by the sha256 of their content."""

import gzip
import hashlib
import http.client
import io
import math
import os
import urllib.request
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from scornn.errors import DataError
from scornn.program import durable
from scornn.program.data import locate
from scornn.program.progress import Bar

_LARGEST_DOWNLOAD = 64 << 20
_TIMEOUT = 30


@dataclass(frozen=True)
class File:
    """One idx file: its name (without .gz), the shape of its array, the sha256 of the unpacked file."""

    name: str
    shape: tuple[int, ...]
    sha256: str


@dataclass(frozen=True)
class Source:
    """A data set of four files, the folders where people keep it, and its mirrors."""

    name: str
    files: tuple[File, File, File, File]
    below: tuple[str, ...]
    elsewhere: tuple[str, ...]
    mirrors: tuple[str, ...]
    advice: str


@dataclass(frozen=True)
class Images:
    """60,000 training and 10,000 test images (N, 28, 28) with labels 0..9, all uint8."""

    train_images: NDArray[np.uint8]
    train_labels: NDArray[np.uint8]
    test_images: NDArray[np.uint8]
    test_labels: NDArray[np.uint8]
    fingerprint: dict[str, str]


def _files(train_images: str, train_labels: str, test_images: str, test_labels: str) -> tuple[File, File, File, File]:
    return (
        File("train-images-idx3-ubyte", (60_000, 28, 28), train_images),
        File("train-labels-idx1-ubyte", (60_000,), train_labels),
        File("t10k-images-idx3-ubyte", (10_000, 28, 28), test_images),
        File("t10k-labels-idx1-ubyte", (10_000,), test_labels),
    )


SOURCES = {
    "mnist": Source(
        "MNIST",
        _files(
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
        below=("mnist", "MNIST/raw"),
        elsewhere=(),
        mirrors=(
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
        ),
        advice="",
    ),
    "fashion": Source(
        "Fashion-MNIST",
        _files(
            "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        ),
        below=("fashion-mnist", "FashionMNIST/raw"),
        elsewhere=("/usr/share/datasets/fashion-mnist",),
        mirrors=(
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        ),
        advice="; on Debian, `apt install dataset-fashion-mnist` puts it where it is found",
    ),
}


def load(dataset: str, data: Path | None = None) -> Images:
    """The images of ``dataset`` ("mnist" or "fashion"), from the first folder that holds any of its files.

    What no folder holds is downloaded to the cache. Files are .gz or unpacked; their content must have the
    known sha256.
    """
    source = SOURCES[dataset]
    cache = locate.cache_directory() / source.below[0]
    folder = find(source, data) or cache
    paths = {file: _variant(folder, file) for file in source.files}
    missing = [file for file, path in paths.items() if path is None]
    if missing and folder != cache:
        raise DataError(_absent(source, missing, f"{folder} holds only a part of {source.name}", folder))
    for file in missing:
        paths[file] = _download(source, file, cache)
    train_images, train_labels, test_images, test_labels = (
        _read(source, file, path) for file, path in paths.items() if path is not None
    )
    fingerprint = {file.name: f"sha256 {file.sha256}" for file in source.files}
    return Images(train_images, train_labels, test_images, test_labels, fingerprint)


def find(source: Source, data: Path | None) -> Path | None:
    """The first folder that holds any of the files."""
    folders = locate.folders(data, source.below, source.elsewhere)
    return next((folder for folder in folders if any(_variant(folder, file) for file in source.files)), None)


def _variant(folder: Path, file: File) -> Path | None:
    dotted = file.name.replace("-idx", ".idx")
    names = (f"{file.name}.gz", file.name, f"{dotted}.gz", dotted)
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _read(source: Source, file: File, path: Path) -> NDArray[np.uint8]:
    try:
        return parse(source, file, path.read_bytes(), str(path))
    except (OSError, DataError) as error:
        problem = f"{path}: cannot be read: {error.strerror}" if isinstance(error, OSError) else error
        raise DataError(f"{problem}. To get the right one, remove it and {_where(source, path.parent)}") from error


def parse(source: Source, file: File, content: bytes, name: str) -> NDArray[np.uint8]:
    """The array of an idx file, plain or gzipped, whose content has the known sha256; errors call it ``name``.

    The format: a big-endian magic and sizes, then unsigned bytes.
    """
    header = 4 + 4 * len(file.shape)
    if content.startswith(b"\x1f\x8b"):
        try:
            content = gzip.GzipFile(fileobj=io.BytesIO(content)).read(header + math.prod(file.shape) + 1)
        except (EOFError, OSError, zlib.error) as error:
            raise DataError(f"{name}: truncated or damaged gzip: {error}") from error
    sha256 = hashlib.sha256(content).hexdigest()
    if sha256 == file.sha256:
        return np.frombuffer(content, np.uint8, offset=header).reshape(file.shape)
    found = locate.described(content)
    for other in SOURCES.values():
        if any(sha256 == known.sha256 for known in other.files):
            found = f"a file of {other.name}"
    expected = f"{file.name} of {source.name}"
    raise DataError(f"{name}: found {found}, expected {expected}; its sha256 is {sha256}, not {file.sha256}")


def _where(source: Source, folder: Path) -> str:
    mirrors = " or ".join(source.mirrors)
    return f"put the published file (from {mirrors}) in {folder}{source.advice}"


def _absent(source: Source, missing: list[File], reason: str, folder: Path) -> str:
    names = ", ".join(f"{file.name}.gz" for file in missing)
    return (
        f"{source.name} is missing: {reason}. Needed: {names}. To go on, {_where(source, folder)}; "
        f"or pass --data or set SCORNN_DATA to the folder that has them"
    )


def _download(source: Source, file: File, folder: Path) -> Path:
    """Fetch one file from the first mirror that gives the right content; it gets its name only then."""
    refused = []
    path = folder / f"{file.name}.gz"
    offline = os.environ.get("SCORNN_OFFLINE", "") not in ("", "0")
    for mirror in () if offline else source.mirrors:
        url = f"{mirror}{path.name}"
        try:
            content = _fetch(url)
            parse(source, file, content, url)
        except (OSError, http.client.HTTPException, DataError) as error:
            refused.append(str(error) if isinstance(error, DataError) else f"{url}: {error}")
        else:
            durable.make_directory(folder)
            durable.write_bytes(path, content)
            return path
    why = "SCORNN_OFFLINE forbids the download" if offline else f"no mirror gave it ({'; '.join(refused)})"
    missing = [other for other in source.files if _variant(folder, other) is None]
    raise DataError(_absent(source, missing, f"no folder has it, and {why}", folder))


def _fetch(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=_TIMEOUT) as response:
        length = int(response.headers.get("Content-Length") or 0)
        content = io.BytesIO()
        with Bar(f"downloading {url}", length or None, aside=True) as bar:
            while content.tell() <= _LARGEST_DOWNLOAD and (block := response.read(1 << 16)):
                content.write(block)
                bar.update(content.tell())
        return content.getvalue()
