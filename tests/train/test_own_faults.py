"""Faults in tasks and models of users' own: told in a sentence, before anything is written."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from scornn.program.cli import main

PAGE = Path(__file__).resolve().parents[2] / "docs" / "extending.md"
SOURCES = dict(re.findall(r"^```py\n# (\S+)\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL))
SHORT = ["--iterations", "2", "--threads", "1", "--tensorboard", "off", "--quiet", "--out", "run"]
TASK = ["train", "first", "--plugin", "first.py", *SHORT]
SMALL = ["--length", "5", "--hidden", "4", "--set", "task.train_size=60", "--set", "task.test_size=20"]
MADE = "return (self.part + self.part.mT) / 2"
MODEL = ["train", "adding", "--model", "symmetric", "--plugin", "symmetric.py", *SMALL, *SHORT]


pytestmark = pytest.mark.usefixtures("new_process")


def write(file: str, before: str, after: str) -> None:
    assert before in SOURCES[file]
    Path(file).write_text(SOURCES[file].replace(before, after, 1))


def fingerprint(returned: str) -> tuple[str, str]:
    end = "    def size(self, split: str) -> int:\n"
    return end, f"    def fingerprint(self):\n        return {returned}\n\n{end}"


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (
            '    splits = ("train", "test")\n',
            "",
            "task first: splits is 'not there'; expected train and test",
        ),
        (*fingerprint("{}['rows']"), r"the task first of .*first.py fails in fingerprint\(\): KeyError: 'rows'"),
        (*fingerprint("{'rows': (24, 8)}"), r"fingerprint\(\) is .*\(24, 8\).*; expected a dict of str by str"),
        (*fingerprint("{'rows': np.int64(40)}"), r"fingerprint\(\) is .*40.*; expected a dict of str by str"),
    ],
)
def test_of_a_task(before: str, after: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    write("first.py", before, after)
    assert main(TASK) == 2
    assert re.search(said, capsys.readouterr().err)
    assert not Path("run").exists()


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
    assert main(TASK) == 0
    write("first.py", '"accuracy", "max"', '"loss", "min"')
    new_process()
    assert main(["resume", "run", "--plugin", "first.py", "--iterations", "3", "--quiet"]) == 4
    said = "was trained for another task: headline loss instead of accuracy; goal min instead of max"
    assert said in capsys.readouterr().err


def test_a_stride_fits_every_split(capsys: pytest.CaptureFixture[str]) -> None:
    write("first.py", "(x[800:], y[800:])", "(x[800:, :49], y[800:])")
    assert main([*TASK, "--model", "memory-blocks", "--set", "model.options.stride=2"]) == 2
    assert "expected a divisor of the 49 steps of test of first" in capsys.readouterr().err
    assert not Path("run").exists()


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
