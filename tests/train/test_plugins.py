"""Tasks and models of users' own: the page runs as it stands, and a plugin only if its user named it."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import scornn
from scornn.errors import UsageError
from scornn.program import plugins
from scornn.program.cli import main
from scornn.program.train.loop import Trainer

PAGE = Path(__file__).resolve().parents[2] / "docs" / "extending.md"
BLOCK = re.compile(r"^```py\n# (\S+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ scornn (.*)$", re.MULTILINE)


@pytest.fixture(autouse=True)
def forget(new_process: Callable[[], None]) -> Callable[[], None]:
    for name, text in BLOCK.findall(PAGE.read_text()):
        Path(name).write_text(text)
    return new_process


def test_the_page_runs_as_it_stands(
    forget: Callable[[], None], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = COMMAND.findall(PAGE.read_text())
    assert "$ export SCORNN_PLUGINS=first.py\n" in PAGE.read_text()
    monkeypatch.setenv("SCORNN_PLUGINS", "first.py")
    assert len(commands) == 7
    for command in commands:
        more = " --tensorboard off --threads 1" if command.split()[0] == "train" else ""
        if "adding" in command:
            more += " --iterations 2 --set task.train_size=100 --set task.test_size=20"
        forget()
        assert main((command + more).split()) == 0, capsys.readouterr().err
    assert "Was the first number positive?" in Path("first.html").read_text()
    config = json.loads(Path("runs/first/config.json").read_text())
    assert config["task"] == {"name": "first", "batch": 16}
    assert config["plugins"] == [str(Path("first.py").resolve())]
    summary = json.loads(Path("runs/first/summary.json").read_text())
    assert summary["epochs"] == 6
    assert summary["best"]["value"] > 0.95, summary
    assert json.loads(Path("runs/symmetric/config.json").read_text())["model"]["options"] == {"gain": 0.3}
    subprocess.run([sys.executable, "in_python.py"], check=True)
    assert json.loads(Path("runs/in-python/summary.json").read_text())["task"] == "first"


def test_a_plugin_that_its_user_did_not_name_is_not_run(
    forget: Callable[[], None], capsys: pytest.CaptureFixture[str]
) -> None:
    short = ["--iterations", "1", "--tensorboard", "off", "--threads", "1", "--quiet"]
    assert main(["train", "first", "--plugin", "first.py", "--out", "run", *short]) == 0
    forget()
    Path("first.py").write_text("raise SystemExit('was run')")
    for command in (["resume", "run"], ["eval", "run"], ["train", "--config", "run/config.json", "--out", "again"]):
        assert main(command) == 2
        assert "whose code would be run: read it, then pass --plugin" in capsys.readouterr().err


def test_plugins_that_cannot_be_loaded(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    Path("broken.py").write_text("import nothing_of_that_name")
    Path("mine.txt").write_text("")
    Path("leaves.py").write_text("raise SystemExit(0)")
    for name, said in (
        ("leaves.py", "leaves.py: SystemExit: 0"),
        (".", "expected a Python file"),
        ("gone.py", "gone.py: expected a Python file"),
        ("broken.py", "broken.py: ModuleNotFoundError: No module named 'nothing_of_that_name'"),
        ("mine.txt", "mine.txt: expected a name that ends in .py"),
    ):
        assert main(["train", "copying", "--plugin", name]) == 2
        assert said in capsys.readouterr().err
    assert main(["train", "first"]) == 2
    assert "unknown task 'first'" in capsys.readouterr().err
    assert not Path("runs").exists()


def test_installed_packages_are_loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    class Entry:
        name, value = "mine", "my_package.tasks"

        def load(self) -> None:
            asked.append(self.name)

    asked: list[str] = []
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [Entry()] if group == "scornn.plugins" else [])
    plugins._load_installed.cache_clear()
    plugins.of_config({})
    plugins.load([])
    plugins._load_installed.cache_clear()
    assert asked == ["mine"]


def test_a_network_is_taken_along_without_the_file_of_its_task(
    forget: Callable[[], None], capsys: pytest.CaptureFixture[str]
) -> None:
    short = ["--hidden", "4", "--iterations", "2", "--threads", "1", "--tensorboard", "off", "--quiet"]
    assert main(["train", "first", "--plugin", "first.py", "--out", "run", *short]) == 0
    for to in ("safetensors", "onnx"):
        assert main(["export", "run", "--to", to, "--out", f"one.{to}"]) == 0, capsys.readouterr().err
        for file in (Path(f"one.{to}"), Path(f"one.{to}.md")):
            assert str(Path.cwd()).encode() not in file.read_bytes()  # where it was made is nobody's business
            assert b"first.py" in file.read_bytes()
    x = torch.randn(5, 2, 1)
    expected = scornn.load("run")(x)
    forget()
    Path("first.py").rename("gone")
    for path in ("run", max(Path("run/checkpoints").iterdir()), "one.safetensors"):
        network = scornn.load(path)
        assert torch.equal(network(x), expected)
        assert (network.task.name, network.task.input_size, network.task.output_size) == ("first", 1, 2)
        assert network.stored.config["task"] == {"name": "first", "batch": 16}
    assert main(["export", "one.safetensors", "--to", "safetensors", "--out", "two.safetensors"]) == 0
    capsys.readouterr()
    assert main(["eval", "two.safetensors"]) == 2
    assert "names the plugin first.py" in (said := capsys.readouterr().err)
    assert "pass --plugin" in said
    Path("gone").rename("first.py")
    assert main(["eval", "two.safetensors", "--plugin", "first.py"]) == 0, capsys.readouterr().err


def test_a_network_whose_model_is_of_a_plugin_needs_it(
    forget: Callable[[], None], capsys: pytest.CaptureFixture[str]
) -> None:
    small = "--hidden 4 --iterations 2 --threads 1 --tensorboard off --quiet --set task.train_size=100"
    train = f"train adding --model symmetric --plugin symmetric.py --set task.test_size=20 --out run {small}"
    assert main(train.split()) == 0, capsys.readouterr().err
    assert main(["export", "run", "--to", "safetensors", "--out", "one.safetensors"]) == 0, capsys.readouterr().err
    forget()
    for path, named in (("run", str(Path("symmetric.py").resolve())), ("one.safetensors", "symmetric.py")):
        with pytest.raises(UsageError, match=re.escape(f"plugins=[{named!r}] in Python")):
            scornn.load(path)
    assert scornn.load("one.safetensors", plugins=["symmetric.py"])(torch.randn(5, 2, 2)).shape == (2, 1)


def test_a_plugin_imports_the_files_beside_it(capsys: pytest.CaptureFixture[str]) -> None:
    Path("own").mkdir()
    Path("own/beside.py").write_text("size = 1\n")
    Path("own/beside_too.py").write_text("read = 'last'\n")
    text, line = Path("first.py").read_text(), "        self.config = config\n"
    assert line in text
    text = text.replace(line, f"{line}        import beside_too\n        self.read = beside_too.read\n")
    Path("own/first.py").write_text(f"import beside\n{text}\nFirst.input_size = beside.size\n")
    short = ["--hidden", "4", "--iterations", "2", "--threads", "1", "--tensorboard", "off", "--quiet"]
    assert main(["train", "first", "--plugin", "own/first.py", "--out", "run", *short]) == 0, capsys.readouterr().err


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_sweep_over_a_task_of_a_plugin_is_resumed_and_reported(
    forget: Callable[[], None], jobs: int, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("optuna")
    sweep = f"sweep first --plugin first.py --over model.options.rho=0,2 --hidden 4 --iterations 2 --jobs {jobs}"
    assert main([*sweep.split(), "--threads", "1", "--quiet", "--out", "s"]) == 0, capsys.readouterr().err
    forget()
    assert main(["sweep", "report", "s", "--plugin", "first.py"]) == 0, capsys.readouterr().err
    assert main(["sweep", "report", "s", "--out", "kept.json"]) == 0
    assert str(Path.cwd()) not in Path("kept.json").read_text()  # where it was made is nobody's business
    forget()
    Path("moved").mkdir()
    Path("first.py").rename("moved/first.py")
    assert main(["sweep", "resume", "s", "--quiet"]) == 2
    assert main(["sweep", "report", "kept.json"]) == 2
    assert capsys.readouterr().err.endswith(
        "scornn: kept.json was made with first.py: pass --plugin with where that is\n"
    )
    for command in (["resume", "s", "--quiet"], ["report", "s"], ["report", "kept.json"]):
        forget()
        assert main(["sweep", *command, "--plugin", "moved/first.py"]) == 0, capsys.readouterr().err


def test_averaged_weights_are_judged_where_only_the_trials_average(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("optuna")
    sweep = "sweep first --plugin first.py --hidden 4 --iterations 2 --threads 1 --quiet --weights average --trials 2"
    assert main([*sweep.split(), "--set", "optimizer.average=null", "--over", "seed=1,2", "--out", "s"]) == 2
    assert "averages nothing; give --set optimizer.average.decay=0.999" in capsys.readouterr().err
    assert main([*sweep.split(), "--over", "optimizer.average.decay=0.5..0.9", "--out", "s"]) == 0, (
        capsys.readouterr().err
    )
    assert Path("s/best.json").is_file()


def test_a_sweep_whose_plugin_was_edited_says_that_its_trials_do_not_compare(
    forget: Callable[[], None], capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("optuna")
    sweep = "sweep first --plugin first.py --over seed=1,2,3 --hidden 4 --iterations 2 --trials 2 --threads 1 --quiet"
    assert main([*sweep.split(), "--out", "s"]) == 0, capsys.readouterr().err
    forget()
    Path("first.py").write_text(Path("first.py").read_text() + "# edited\n")
    assert main(["sweep", "resume", "s", "--quiet", "--plugin", "first.py"]) == 0
    assert not capsys.readouterr().err  # no trial is left that the new code could make
    assert main(["sweep", "resume", "s", "--trials", "3", "--quiet"]) == 0
    said = capsys.readouterr().err
    assert said.startswith("warning: trials 0, 1 came from first.py "), said
    assert main(["sweep", "report", "s", "--out", "kept.json"]) == 0
    (note,) = json.loads(Path("kept.json").read_text())["notes"]
    assert re.fullmatch(
        r"Made with other code of the plugins, so that their figures may not compare: "
        r"trials 0, 1 with first\.py \w{12}; trials 2 with first\.py \w{12}\.",
        note,
    )
    assert main(["sweep", "report", "s"]) == 0
    assert "their figures may not compare" in Path("sweep.html").read_text()


def test_a_checkpoint_names_the_code_that_was_run(
    forget: Callable[[], None], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, step = Path("first.py"), Trainer._step
    text = file.read_text()

    def stepping(self: Trainer, stop: bool) -> bool:
        file.write_text(text + "# edited\n")
        return step(self, stop)

    short = ["--tensorboard", "off", "--quiet", "--iterations"]
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_step", stepping)
        train = ["train", "first", "--plugin", "first.py", "--threads", "1", "--out", "run"]
        assert main([*train, *short, "2"]) == 0, capsys.readouterr().err
    forget()
    file.write_text(text + "# edited\n")
    assert main(["eval", "run", "--plugin", "first.py"]) == 0
    assert "evaluated with other code than run was trained with: " in capsys.readouterr().err
    assert main(["resume", "run", "--plugin", "first.py", *short, "3"]) == 0
    assert "may not resume bit for bit: plugins " in capsys.readouterr().err
