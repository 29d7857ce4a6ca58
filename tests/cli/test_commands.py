"""The command line: what it says, what it refuses, and with which exit code."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from scornn.program.cli import COMMANDS, main
from scornn.program.cli import _options as options
from scornn.program.recipes.presets import resolve
from scornn.program.tasks import TASKS
from scornn.program.train.loop import Trainer

TINY = ["--hidden", "4", "--length", "10", "--threads", "1", "--iterations", "6", "--eval-every", "3"]
TINY += ["--set", "task.train_size=40", "--set", "task.test_size=20", "--tensorboard", "off"]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCORNN_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SCORNN_DATA", raising=False)


def train(*more: str, task: str = "copying") -> int:
    return main(["train", task, *TINY, *more])


def test_bash_completes_commands_and_options(tmp_path: Path) -> None:
    assert main(["--tyro-write-completion", "bash", "script"]) == 0
    if shutil.which("bash") is None:
        pytest.skip("no bash here")
    for line, answer in (("tr", "train"), ("train --mod", "--model"), ("train --tensorboard of", "off")):
        words = ["scornn", *line.split()]
        code = f"source ./script; COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; "
        code += "_tyro_scornn; printf '%s\\n' \"${COMPREPLY[@]}\""
        done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True)
        assert answer in done.stdout.split(), (line, done)


def test_help_teaches_without_torch() -> None:
    commands = ("train", "resume", "eval", "doctor")
    code = f"import sys\nfrom scornn.program.cli import main\nfor command in {commands}: main([command, '--help'])\n"
    code += "main(['--help'])\nprint('torch' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.endswith("False\n")
    assert all(f"usage: scornn {command}" in said for command in commands)
    assert all(f"    scornn {command} " in said for command in commands[:3])
    assert all(f"• {command} " in said for command in COMMANDS)


def test_tasks_named_in_the_help_are_those_of_the_catalogue() -> None:
    assert sorted(name for name, entry in TASKS.items() if entry.kind.__module__.startswith("scornn.")) == [
        *options.TASKS
    ]


def test_a_goal_that_was_not_reached_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert train("--until", "recall=1", "--until", "loss=0.001") == 0
    assert "not reached in 6 steps: recall=1, loss=0.001" in capsys.readouterr().out


def test_a_rate_of_what_a_model_has_not_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert train("--model", "lstm", "--quiet") == 0
    assert capsys.readouterr().err == ""
    assert train("--model", "lstm", "--quiet", "--recurrent-lr", "0.01") == 0
    assert "optimizer.recurrent changes nothing" in capsys.readouterr().err


def test_version_and_no_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("scornn ")
    assert main([]) == 0
    assert "usage: scornn [-h] {train," in capsys.readouterr().out


def test_a_run_from_start_to_evaluation(capsys: pytest.CaptureFixture[str]) -> None:
    assert train() == 0
    said = capsys.readouterr().out
    assert "preset copying-1000-scornn-190" in said
    assert "runs/copying-10-scornn-4-s5544" in said
    assert "step 6/6 · loss" in said
    run = Path("runs/copying-10-scornn-4-s5544")
    assert json.loads((run / "config.json").read_text())["model"]["options"]["rho"] == 2
    summary = json.loads((run / "summary.json").read_text())
    assert main(["eval", str(run), "--json"]) == 0
    evaluated = json.loads(capsys.readouterr().out)
    assert evaluated["splits"]["test"] == summary["final"]["test"]
    assert evaluated["parameters"] == summary["parameters"]
    assert main(["eval", str(run)]) == 0
    assert "recall" in capsys.readouterr().out


def test_config_json_repeats_a_run_bit_for_bit() -> None:
    assert train("--quiet", "--out", "a", "--rho", "3", "--seed", "7", "--lr", ".002") == 0
    assert main(["train", "--config", "a/config.json", "--out", "b", "--quiet", "--tensorboard", "off"]) == 0
    assert Path("a/config.json").read_bytes() == Path("b/config.json").read_bytes()
    for name in ("model.safetensors", "training.safetensors"):
        assert Path("a/checkpoints/step-6", name).read_bytes() == Path("b/checkpoints/step-6", name).read_bytes()


def test_file_then_flags_then_settings() -> None:
    Path("my.toml").write_text(
        "seed = 1\neval_every = 2\nepochs = 1\ndata = 'here'\n"
        "[model]\nhidden = 5\n[optimizer.rest]\nlr = 0.5\n[task]\nlength = 11"
    )
    argv = (
        "train adding --config my.toml --quiet --tensorboard off --out run --threads 1 --hidden 6 --seed 2 --set seed=3"
    )
    argv += " --set task.train_size=100 --set task.test_size=20 --until mse=1000"
    assert main(argv.split()) == 0
    config = json.loads(Path("run/config.json").read_text())
    assert (config["seed"], config["model"]["hidden"], config["task"]["length"]) == (3, 6, 11)
    assert (config["steps"], config["epochs"], config["eval_every"]) == (None, 1, 2)
    rest = config["optimizer"]["rest"]
    assert {key: value for key, value in rest.items() if value is not None} == {
        "kind": "adam",
        "lr": 0.5,
        "flavour": "tf1",
    }
    assert config["optimizer"]["recurrent"]["lr"] == 1e-4
    assert config["data"] == str(Path("here").absolute()), "a run is resumed from anywhere"
    assert json.loads(Path("run/summary.json").read_text())["steps"] == 2


def test_the_same_run_again_is_refused_and_another_makes_room(capsys: pytest.CaptureFixture[str]) -> None:
    assert train("--quiet") == 0
    assert train("--quiet") == 2
    error = capsys.readouterr().err
    assert "holds a finished run: see `scornn eval" in error
    assert "give it a later end with `scornn resume" in error
    assert train("--quiet", "--lr", "0.5") == 0
    assert Path("runs/copying-10-scornn-4-s5544-2/summary.json").exists()
    assert train("--quiet", "--lr", "0.25", "--out", "runs/copying-10-scornn-4-s5544") == 2
    assert "finished run of another config" in capsys.readouterr().err
    Path("mine").mkdir()
    Path("mine/thesis.tex").write_text("")
    assert train("--quiet", "--out", "mine") == 2
    assert "holds files that are not of a run" in capsys.readouterr().err
    Path("empty").mkdir()
    assert train("--quiet", "--out", "empty") == 0


def test_an_interrupted_run_says_how_to_go_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    step = Trainer._step

    def interrupted(self: Trainer, stop: bool) -> bool:
        if self.ledger.step == 1:
            signal.raise_signal(signal.SIGINT)
        return step(self, stop)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_step", interrupted)
        assert train("--quiet", "--out", "run") == 130
    assert "continue with: scornn resume run" in capsys.readouterr().err
    assert train("--quiet", "--out", "run") == 2
    assert "continue it with `scornn resume run`" in capsys.readouterr().err
    assert main(["resume", "run", "--quiet", "--tensorboard", "off"]) == 0
    assert main(["resume", "run", "--quiet", "--tensorboard", "off", "--epochs", "4"]) == 0
    assert json.loads(Path("run/summary.json").read_text())["steps"] == 8


def test_missing_data_is_exit_3_and_makes_no_directory(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCORNN_OFFLINE", "1")
    assert main(["train", "mnist", "--out", "run"]) == 3
    assert "train-images-idx3-ubyte" in capsys.readouterr().err
    assert not Path("run").exists()


def test_divergence_is_exit_5(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "scornn.program.tasks.Copying.loss", lambda self, outputs, batch: (outputs.sum() * torch.nan, 1)
    )
    assert train("--quiet", "--out", "run") == 5
    assert "not finite at step 1: loss nan" in capsys.readouterr().err


@pytest.mark.parametrize("out", ["file", "file/below", "/proc/none/run", "link"])
def test_no_place_to_write_is_exit_6(out: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("file").write_text("")
    Path("link").symlink_to("gone")
    assert train("--quiet", "--out", out) == 6
    assert out in capsys.readouterr().err


def test_other_system_errors_are_exit_6_and_debug_shows_the_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(**_: object) -> None:
        raise OSError(28, "No space left on device", "somewhere")

    monkeypatch.setattr("scornn.program.cli.resume.at_least_one", full)
    assert main(["resume", "run"]) == 6
    assert capsys.readouterr().err == "scornn: somewhere: No space left on device (ENOSPC)\n"
    assert main(["resume", "run", "--debug"]) == 6
    assert "Traceback" in capsys.readouterr().err


def test_a_reader_that_leaves_is_no_error() -> None:
    code = "import sys; from scornn.program.cli import main; sys.exit(main(['--help']))"
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([sys.executable, "-c", code], stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


def test_doctor_tells_versions_backends_and_data(capsys: pytest.CaptureFixture[str], shared_data: Path) -> None:
    assert main(["doctor", "--data", str(shared_data)]) == 0
    said = capsys.readouterr().out
    for part in (torch.__version__, "naive", "manual", "native", str(shared_data / "mnist")):
        assert part in said


def test_origin_names_the_preset_and_what_differs() -> None:
    copying = {"name": "copying"}
    assert resolve({"task": copying})[1] == (
        "scoRNN n=190 on the copying problem, T=1000 (preset copying-1000-scornn-190)"
    )
    changed = {"task": {**copying, "length": 900}, "model": {"hidden": 190}, "steps": 7, "data": "/x", "name": "mine"}
    assert resolve(changed)[1] == (
        "preset copying-1000-scornn-190 (scoRNN n=190 on the copying problem, T=1000) with task.length = 900, steps = 7"
    )
