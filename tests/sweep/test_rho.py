"""``--rho auto``: within a tenth of the steps, and then a number like any other."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from scornn.errors import DivergedError
from scornn.program.cli import main
from scornn.program.sweep import rho
from scornn.program.sweep.program import open_sweep
from scornn.program.train.engine import Engine, Outcome

COPYING: dict[str, Any] = {"task": {"name": "copying", "length": 5, "train_size": 100}, "threads": 1}


def settings(n: int, steps: int, value: Any = "auto") -> dict[str, Any]:
    return {**COPYING, "model": {"hidden": n, "options": {"rho": value}}, "steps": steps}


@pytest.mark.parametrize("best", [0, 2, 5, 10, 14, 20])
def test_the_best_candidate_is_found_within_a_tenth_of_the_steps(best: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[int, int]] = []

    def step(self: Engine, epoch: int, number: int) -> Outcome:
        signs = self.model.layer.state_dict()["sign_hh_l0"]
        own = int((signs < 0).sum())
        made.append((own, epoch * 5 + number))
        if own == (best + 20) % 40:  # 20 where 0 is best, and 0 where 20 is
            raise DivergedError("loss nan")
        return Outcome(abs(own - best) + 1.0, False)

    monkeypatch.setattr(Engine, "step", step)
    table, said = rho.settle(settings(20, 1000))
    assert table == settings(20, 1000, best)
    found = re.match(rf"rho = {best} of n = 20, chosen in (\d+) steps", said)
    assert found
    assert len(made) <= int(found[1]) <= 100
    assert [number for own, number in made if own == best] == list(range(sum(own == best for own, _ in made)))


def test_train_and_sweep_write_the_number_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny = ["--length", "5", "--hidden", "4", "--threads", "1", "--rho", "auto", "--iterations", "200"]
    tiny += ["--set", "task.train_size=100", "--set", "task.test_size=20", "--tensorboard", "off"]
    assert main(["train", "copying", *tiny, "--out", "run"]) == 0
    said = capsys.readouterr().out
    chosen = json.loads(Path("run/config.json").read_text())["model"]["options"]["rho"]
    assert f"rho = {chosen} of n = 4, chosen in " in said
    assert f"model.options.rho = {chosen}" in said
    assert main(["sweep", "copying", *tiny, "--over", "seed=1,2", "--out", "s", "--quiet"]) == 0
    assert json.loads(Path("s/best.json").read_text())["model"]["options"]["rho"] == chosen


def test_auto_beside_numbers(sweep: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rho, "choose", lambda config: (2, f"rho = 2 of n = {config.model.hidden}"))
    few = ("--set", "steps=200", "--set", "eval_every=200", "--set", "checkpoint_every=200")
    assert sweep("--over", "model.options.rho=auto,1,n/2", *few, "--out", "s", "--quiet") == 0
    auto, one, half = open_sweep(Path("s")).all()
    assert auto.user_attrs["outcome"] == "rho = 2 of n = 4"
    assert json.loads(Path("s/trials/0000/config.json").read_text())["model"]["options"]["rho"] == 2
    assert half.user_attrs["outcome"] == "as trial 0, which has the same settings"
    best = json.loads(Path("s/best.json").read_text())["model"]["options"]["rho"]
    assert best == (2 if auto.value >= one.value else 1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--iterations", "20"], "--rho auto: 20 steps are too few to try"),
        (["--iterations", "500", "--model", "lstm"], "--rho auto: model.options.rho: lstm takes no rho"),
        (["--iterations", "500", "--start-from", "run"], "--rho auto: the weights of --start-from have their D"),
    ],
)
def test_refusals(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "copying", "--length", "5", "--hidden", "4", "--rho", "auto", *arguments]) == 2
    assert said in capsys.readouterr().err
