"""One catalogue of tasks: entries made where the tasks are, and nobody else keeps a list."""

import re
from pathlib import Path

import pytest

import scornn
from scornn.errors import UsageError
from scornn.program.tasks import TASKS, CopyingConfig, PixelMnistConfig, Task, TaskConfig, make, task
from scornn.program.tasks.catalogue import Entry, find, name_of


def test_a_name_stands_for_a_table_and_back() -> None:
    for name, entry in TASKS.items():
        assert name_of(entry.table()) == name
        assert name_of({"name": entry.tag, **entry.settings, "batch": 3}) == name
    assert name_of({"name": "mnist"}) == "mnist"
    assert name_of(PixelMnistConfig(permuted=True)) == "pmnist"
    assert name_of({"name": "of a plugin"}) == "of a plugin"
    with pytest.raises(UsageError, match=r"unknown task 'copyng'; did you mean copying\?"):
        find("copyng")


def test_smoke_sizes_are_small() -> None:
    assert TASKS["copying"].small({"name": "copying", "length": 2000})["length"] == 40
    assert TASKS["adding"].small({"name": "adding"})["length"] == 50
    assert TASKS["speech"].small({}) == {"batch": 4}


def test_a_setting_that_a_config_asks_for_has_no_default() -> None:
    class Asking(TaskConfig, frozen=True, kw_only=True, tag="asking"):
        kind: str
        length: int

    entry = Entry("asking-a", Task, Asking, "asking", settings={"kind": "a"}, shorten=10)
    assert entry.holds({"name": "asking", "kind": "a"})
    assert not entry.holds({"name": "asking", "kind": "b"})
    assert not entry.holds({"name": "asking"})
    assert entry.small({"name": "asking", "length": 50}) == {"length": 5}


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
    rooms = ("tasks", "train", "nn", "data", "metrics", "analysis", "report")
    said = [path for room in rooms for path in (root / room).rglob("*.py") if re.search(r'"pmnist"', path.read_text())]
    assert [path.name for path in said] == ["pixel_mnist.py"]


def test_data_goes_through_the_rooms_downwards() -> None:
    """Tasks, models and training know nothing of the paper's tables; their settings come as an argument."""
    root = Path(scornn.__file__).parent
    rooms = ("tasks", "train", "nn", "ops", "data", "metrics")
    sources = {path: path.read_text() for room in rooms for path in (root / room).rglob("*.py")}
    assert sources
    assert [path for path, text in sources.items() if re.search(r"scornn\.(paper|report|cli)\b", text)] == []
