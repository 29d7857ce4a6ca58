"""The package as a whole: its public names, its borders, and its examples."""

from __future__ import annotations

import ast
import doctest
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import scornn

SOURCE = Path(scornn.__file__).parent
ROOMS = [
    ["errors"],
    ["torch_internals"],
    ["functional"],
    ["ops"],
    ["matrices"],
    ["nn"],
    ["optim"],
    ["program.durable"],
    ["program.progress"],
    ["program.data"],
    ["program.tasks"],
    ["program.metrics"],
    ["program.plugins"],
    ["program.train"],
    ["program.recipes"],
    ["program.analysis"],
    ["program.deploy"],
    ["program.report"],
    ["program.paper"],
    ["program.sweep"],
    ["program.cli"],
]
ORDER = {room: level for level, rooms in enumerate(ROOMS) for room in rooms}
FILES = sorted(SOURCE.rglob("*.py"))
MODULES = [
    ".".join(["scornn", *path.relative_to(SOURCE).with_suffix("").parts]).removesuffix(".__init__")
    for path in FILES
    if path.stem != "__main__"
]


def test_public_names() -> None:
    assert sorted(scornn.__all__) == [
        "LinearMemory",
        "ScaledCayley",
        "ScoRNN",
        "ScoRNNCell",
        "__version__",
        "backends",
        "cached",
        "convert",
        "deploy",
        "functional",
        "load",
        "matrices",
        "nn",
        "ops",
        "optim",
        "parametrizations",
        "widen",
    ]
    for name in scornn.__all__:
        assert getattr(scornn, name) is not None
    with pytest.raises(AttributeError, match="ScoRMM"):
        _ = scornn.ScoRMM


def room_of(module: str) -> str:
    """The room of a module's full name: its part after ``scornn``, two parts for the program's."""
    parts = module.split(".")[1:]
    return ".".join(parts[: 2 if parts[0] == "program" else 1])


def imports(path: Path) -> set[str]:
    """The rooms of scornn that a module imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            whole = node.module in ("scornn", "scornn.program")
            names = [f"{node.module}.{alias.name}" for alias in node.names] if whole else [node.module]
        found |= {room_of(name) for name in names if name.startswith("scornn.")}
    return found & set(ORDER)


def test_no_room_reaches_back_up() -> None:
    for path in FILES:
        room = room_of(".".join(["scornn", *path.relative_to(SOURCE).with_suffix("").parts]))
        for other in imports(path) - {room} if room in ORDER else ():
            assert ORDER[other] < ORDER[room], f"{path}: {room} imports {other}, which stands below it"


def test_private_names_of_torch_stand_in_one_file() -> None:
    private = re.compile(r"\btorch\.(\w+\.)*_[a-zA-Z]|\bfrom torch[\w.]* import _|forward_ad\._|_dynamo_")
    for path in (SOURCE / "functional.py", *(SOURCE / "ops").glob("*.py")):
        assert not private.search(path.read_text(encoding="utf-8")), path
    assert private.search((SOURCE / "torch_internals.py").read_text(encoding="utf-8"))


def test_training_needs_nothing_of_the_record() -> None:
    assert not imports(SOURCE / "program" / "cli" / "train.py") & {"program.report", "program.paper", "program.sweep"}


def test_a_module_is_read_in_one_sitting() -> None:
    lengths = {str(path.relative_to(SOURCE)): len(path.read_text(encoding="utf-8").splitlines()) for path in FILES}
    assert {name: lines for name, lines in lengths.items() if lines > 400} == {}


def test_help_does_not_import_torch_nor_the_layers_scipy() -> None:
    code = "import sys, scornn.program.cli; assert 'torch' not in sys.modules, 'torch'"
    layers = "import scornn.nn; assert 'scipy' not in sys.modules, 'scipy'"
    subprocess.run([sys.executable, "-c", f"{code}; {layers}"], check=True)


def test_an_import_changes_no_other() -> None:
    code = "import sys; before = list(sys.meta_path); import scornn; assert sys.meta_path == before"
    subprocess.run([sys.executable, "-c", f"{code}; assert 'torch' not in sys.modules"], check=True)


@pytest.mark.parametrize("module", MODULES)
def test_examples_in_docstrings(module: str) -> None:
    torch.manual_seed(0)
    results = doctest.testmod(
        importlib.import_module(module),
        extraglobs={"torch": torch, "scornn": scornn},
        optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS,
    )
    assert results.failed == 0


def test_the_program_trains_and_reports_without_other_extras(tmp_path: Path) -> None:
    """As ``pip install ".[program]"`` has it; speech says what it lacks."""
    code = """
import sys
for name in ("soundfile", "scipy", "pystoi", "pesq", "optuna", "onnx", "onnxruntime", "tensorboard", "huggingface_hub"):
    sys.modules[name] = None
from scornn.program.cli import main
train = ["--length", "9", "--hidden", "8", "--iterations", "2", "--threads", "1", "--quiet", "--out", "run"]
small = ["--set", "task.train_size=8", "--set", "task.test_size=4"]
assert main(["train", "copying", *train, *small]) == 0
assert main(["report", "run", "--out", "page.html"]) == 0
assert main(["export", "run", "--to", "safetensors", "--out", "a.safetensors"]) == 0
assert main(["reproduce", "page", "--from", "run", "--out", "page"]) in (0, 2)
assert main(["train", "speech", "--data", "."]) in (2, 3)
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
