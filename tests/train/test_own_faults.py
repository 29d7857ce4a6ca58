"""Faults in tasks and models of users' own: told in a sentence, before anything is written."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from scornn.program.cli import main

PAGE = Path(__file__).resolve().parents[2] / "docs" / "extending.md"
SOURCES = dict(re.findall(r"^```py\n# (\S+)\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL))
SHORT = ["--threads", "1", "--tensorboard", "off", "--quiet", "--out", "run"]
TASK = ["train", "first", "--plugin", "first.py", *SHORT, "--iterations"]
SMALL = [
    "--iterations",
    "2",
    "--length",
    "5",
    "--hidden",
    "4",
    "--set",
    "task.train_size=60",
    "--set",
    "task.test_size=20",
]
MADE = "return (self.part + self.part.mT) / 2"
MODEL = ["train", "adding", "--model", "symmetric", "--plugin", "symmetric.py", *SMALL, *SHORT]


pytestmark = pytest.mark.usefixtures("new_process")


def write(file: str, before: str, after: str) -> None:
    assert before in SOURCES[file]
    Path(file).write_text(SOURCES[file].replace(before, after, 1))


LINE, ARRAYS, SPLITS = "        self.config = config\n", "        self.arrays = ", '    splits = ("train", "test")\n'
SIZE = "    def size(self, split: str) -> int:\n"
FINGERPRINT = "    def fingerprint(self):\n        return {'rows': (24, 8)}\n\n"


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (LINE, "        {}['nothing']\n", r"the task first of {file} cannot be made .*: KeyError: 'nothing'"),
        (SPLITS, "", "task first: splits is 'not there'; expected train and test"),
        (SIZE, FINGERPRINT + SIZE, r"fingerprint\(\) is .*\(24, 8\).*; expected a dict of str by str"),
    ],
)
def test_of_a_task(before: str, after: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    write("first.py", before, after)
    assert main([*TASK, "2"]) == 2
    error = capsys.readouterr().err
    assert re.search(said.replace("{file}", str(Path("first.py").resolve())), error)
    assert "Traceback" not in error
    assert not Path("run").exists()


@pytest.mark.parametrize(
    ("before", "after", "code", "said"),
    [
        (ARRAYS, f"        y[90] = 7\n{ARRAYS}", 2, "fails in loss() of batch 6 of train: IndexError"),
        (ARRAYS, f"        y[830] = 7\n{ARRAYS}", 2, "fails in measure() of batch 2 of test: IndexError"),
        (ARRAYS, f"        x[90] = np.nan\n{ARRAYS}", 5, "; the inputs of batch 6 of train are not finite themselves"),
        (ARRAYS, f"        x[830] = np.nan\n{ARRAYS}", 5, "; the inputs of batch 2 of test are not finite"),
        ("Batch(x.transp", "Batch((x if step < 2 else x.double()).transp", 2, "batch 3 of test is"),
        ('return {"loss"', 'return {"f1": (0, 0), "loss"', 2, "measure()['f1'] counts nothing in the whole of test"),
    ],
)
def test_of_a_later_batch(before: str, after: str, code: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    write("first.py", before, after)
    assert main([*TASK, "8"]) == code
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("self.gain, self.part = gain", "self.gain, self.part = {}['gain']", "cannot be made: KeyError: 'gain'"),
        (MADE, "return self.part[:2, :2]", r"fails on a sample .*expected W of shape \(4, 4\)"),
        (MADE, "return self.part @ self.part[:1]", "fails on a sample of training: RuntimeError"),
    ],
)
def test_of_a_model(before: str, after: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    write("symmetric.py", before, after)
    assert main(MODEL) == 2
    assert re.search(said, capsys.readouterr().err)
    assert not Path("run").exists()


def test_a_task_that_has_changed_since_is_another_one(
    new_process: Callable[[], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """Its best figure would be one of another metric."""
    Path("first.py").write_text(SOURCES["first.py"])
    assert main([*TASK, "2"]) == 0
    write("first.py", '"accuracy", "max"', '"loss", "min"')
    new_process()
    assert main(["resume", "run", "--plugin", "first.py", "--iterations", "3", "--quiet"]) == 4
    said = "was trained for another task: headline loss instead of accuracy; goal min instead of max"
    assert said in capsys.readouterr().err


def test_plugins_are_not_a_setting(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "copying", "--set", 'plugins=["nope.py"]', *SHORT]) == 2
    assert "--set plugins: a plugin is named with --plugin FILE" in capsys.readouterr().err


def test_a_setting_can_be_taken_back() -> None:
    neutral = ["--set", "optimizer.average=null", "--set", "model.input_dropout=0", "--set", "model.read=last"]
    assert main(["train", "adding", *neutral, *SMALL, *SHORT]) == 0
    config = json.loads(Path("run/config.json").read_text())
    assert config["optimizer"]["average"] is None
    assert '"weights"' not in Path("run/metrics.jsonl").read_text()


def test_native_without_a_kernel_is_refused_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("scornn.ops.library.load", lambda: "no kernel was built")
    for model in ("scornn", "lstm"):
        assert main(["train", "adding", "--model", model, "--backend", "native", *SMALL, *SHORT]) == 2
        assert "backend = native: no kernel was built; expected auto, manual or naive" in capsys.readouterr().err
    assert not Path("run").exists()
