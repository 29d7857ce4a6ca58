"""One catalogue of tasks: entries made where the tasks are, and nobody else keeps a list."""

import re
from pathlib import Path

import pytest

import scornn
from scornn.errors import UsageError
from scornn.program.tasks import TASKS, CopyingConfig, PixelMnistConfig, Task, TaskConfig, make, task
from scornn.program.tasks.catalogue import find, name_of


def test_a_name_stands_for_a_table_and_back() -> None:
    for name, entry in TASKS.items():
        assert name_of(entry.table()) == name
        assert name_of({"name": entry.tag, **entry.settings, "batch": 3}) == name
    assert name_of({"name": "mnist"}) == "mnist"  # as the config's default is
    assert name_of(PixelMnistConfig(permuted=True)) == "pmnist"
    assert name_of({"name": "of a plugin"}) == "of a plugin"
    with pytest.raises(UsageError, match=r"unknown task 'copyng'; did you mean copying\?"):
        find("copyng")


def test_a_name_or_a_tag_is_given_once() -> None:
    class Other(TaskConfig, frozen=True, tag="copying"):
        pass

    with pytest.raises(ValueError, match="a task named 'copying' is there already: Copying"):
        task("copying", CopyingConfig)(Task)
    with pytest.raises(ValueError, match="the tag 'copying' is that of CopyingConfig already"):
        task("copying-too", Other)(Task)
    with pytest.raises(UsageError, match="not in the catalogue"):
        make(TaskConfig(), 0)
    assert "copying-too" not in TASKS


def test_pmnist_is_said_once() -> None:
    """In the rooms below the paper's own pages."""
    root = Path(scornn.__file__).parent
    rooms = ("nn", *(f"program/{room}" for room in ("tasks", "train", "data", "metrics", "analysis", "report")))
    said = [path for room in rooms for path in (root / room).rglob("*.py") if re.search(r'"pmnist"', path.read_text())]
    assert [path.name for path in said] == ["pixel_mnist.py"]
