"""A wheel of `make wheels`: its tag, its library with the digest beside it, and a list of files that is true."""

from __future__ import annotations

import base64
import csv
import hashlib
import importlib.util
import zipfile
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "wheels.py"


def test_a_packed_wheel_is_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.spec_from_file_location("wheels", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    wheels = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(wheels)
    monkeypatch.setattr(wheels, "DIST", tmp_path)
    (tmp_path / "kernel").write_bytes(b"library")
    old = b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n\n"
    files = {"scornn/__init__.py": b"x = 1\n", "scornn-1.0.dist-info/WHEEL": old}
    target = wheels.TARGETS["linux-x86_64"]
    made = wheels.pack(files, tmp_path / "kernel", target)
    assert made.name == "scornn-1.0-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"
    with zipfile.ZipFile(made) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    about = content["scornn-1.0.dist-info/WHEEL"].decode().splitlines()
    tags = [f"Tag: py3-none-{tag}" for tag in target.tag.split(".")]
    assert about == ["Wheel-Version: 1.0", "Root-Is-Purelib: false", *tags]
    digest = hashlib.sha256(b"library").hexdigest()
    assert content["scornn/ops/libscornn.so.sha256"].decode() == f"{digest}\n"
    listed = {row[0]: row[1:] for row in csv.reader(content["scornn-1.0.dist-info/RECORD"].decode().splitlines())}
    assert listed.keys() == content.keys()
    for name, data in content.items():
        if not name.endswith("RECORD"):
            sum = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            assert listed[name] == [f"sha256={sum}", str(len(data))]
