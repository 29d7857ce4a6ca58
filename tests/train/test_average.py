"""The averaged weights: a second column beside a run that does not see them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from scornn.errors import CheckpointError, UsageError
from scornn.program.train import checkpoint, program, state
from scornn.program.train.config import Config, Schedule
from scornn.program.train.distributed import World
from scornn.program.train.engine import make_task
from scornn.program.train.loop import Trainer

Small = Callable[..., Config]


def start(config: Config, path: Path, **options: Any) -> program.Result:
    return program.start(config, path, quiet=True, tensorboard=False, **options)


def rows(path: Path, weights: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return [{**line, "seconds": 0} for line in lines if line.get("weights", "raw") == weights]


def test_it_is_the_exponential_average_of_the_parameters(small: Small) -> None:
    config = small(optimizer__average={"decay": 0.6, "warmup": 4})
    trainer = Trainer(config, make_task(config), World())
    expected = None
    for number in range(6):
        trainer.engine.step(0, number % 4)
        now = {name: p.detach().double().clone() for name, p in trainer.engine.model.named_parameters()}
        if expected is None:
            expected = now
        else:
            keep = min(0.6, (1 + number) / (4 + number))
            expected = {name: keep * expected[name] + (1 - keep) * p for name, p in now.items()}
    assert expected is not None
    found = dict(trainer.engine.network("average").named_parameters())
    for name, value in expected.items():
        torch.testing.assert_close(found[name].double(), value, rtol=1e-5, atol=1e-7)


def test_the_run_does_not_see_it(small: Small, tmp_path: Path) -> None:
    start(small(optimizer__average={"decay": 0.9}), tmp_path / "with")
    start(small(optimizer__average=None), tmp_path / "without")
    assert rows(tmp_path / "with", "raw") == rows(tmp_path / "without", "raw")
    assert not rows(tmp_path / "without", "average")
    tests = [row for row in rows(tmp_path / "with", "raw") if row["split"] == "test"]
    averaged = rows(tmp_path / "with", "average")
    assert [row["step"] for row in averaged] == [row["step"] for row in tests]
    assert [row["loss"] for row in averaged] != [row["loss"] for row in tests]


def test_the_average_of_a_stored_unitary_matrix_is_put_back_on_its_manifold(small: Small, tmp_path: Path) -> None:
    config = small(
        model={"name": "full-urnn", "hidden": 6},
        optimizer__recurrent={"kind": "stiefel", "lr": 1.0},
        optimizer__average={"decay": 0.9},
    )
    summary = start(config, tmp_path / "run").summary
    assert summary["average"]["orthogonality"] < 1e-5
    _, engine, found = program.load(tmp_path / "run", weights="average")
    assert engine.evaluate("test") == summary["average"]["final"]["test"]
    saved = checkpoint.load(tmp_path / "run" / "checkpoints" / f"step-{found.step}")
    state.restore_model(engine.model, state.average_of(saved.training))
    assert engine.orthogonality() > 1e-3
    other = start(config, tmp_path / "other", start_from=tmp_path / "run", start_weights="average").summary
    assert other["orthogonality"] < 1e-5


def test_a_model_whose_parameters_change_their_meaning_has_none(small: Small, tmp_path: Path) -> None:
    config = small(model={"name": "dtriv", "hidden": 6}, optimizer__average={"decay": 0.9})
    assert "average" not in start(config, tmp_path / "run").summary
    with pytest.raises(CheckpointError, match=r"has no averaged weights: those of dtriv cannot be averaged"):
        program.evaluate(tmp_path / "run", weights="average")


@pytest.mark.parametrize("best", [False, True])
def test_load_and_evaluate_know_both(best: bool, small: Small, tmp_path: Path) -> None:
    summary = start(small(optimizer__average={"decay": 0.9}), tmp_path / "run").summary
    for weights, figures in (("raw", summary), ("average", summary["average"])):
        found = program.evaluate(tmp_path / "run", best=best, weights=weights)  # type: ignore[arg-type]
        expected = figures["best"]["value"] if best else figures["final"]["test"]["recall"]
        assert found["splits"]["test"]["recall"] == expected
        assert found["weights"] == weights


def test_a_run_without_an_average_says_so(small: Small, tmp_path: Path) -> None:
    start(small(optimizer__average=None), tmp_path / "run")
    with pytest.raises(CheckpointError, match=r"step-14 has no averaged weights"):
        program.evaluate(tmp_path / "run", weights="average")


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (Schedule(kind="constant"), [1, 1, 1, 1, 1]),
        (Schedule(kind="halving", every=2), [1, 0.5**0.5, 0.5, 0.5**1.5, 0.25]),
        (Schedule(kind="halving", every=2, warmup=1), [0.5, 1, 0.5**0.5, 0.5, 0.5**1.5]),
        (Schedule(kind="linear"), [1, 0.8, 0.6, 0.4, 0.2]),
        (Schedule(kind="cosine"), [1, 0.9045085, 0.6545085, 0.3454915, 0.0954915]),
        (Schedule(kind="linear", warmup=2), [1 / 3, 2 / 3, 1, 2 / 3, 1 / 3]),
        (Schedule(kind="linear", hold=0.6), [1, 1, 1, 1, 0.5]),
        (Schedule(kind="cosine", hold=0.2), [1, 1, 0.8535534, 0.5, 0.1464466]),
        (Schedule(kind="linear", warmup=2, hold=0.2), [1 / 3, 2 / 3, 1, 2 / 3, 1 / 3]),
        (Schedule(kind="linear", hold=0), [1, 0.8, 0.6, 0.4, 0.2]),
    ],
)
def test_schedules(schedule: Schedule, expected: list[float]) -> None:
    assert [schedule.factor(step, 5) for step in range(5)] == pytest.approx(expected)


def test_a_schedule_says_what_it_lacks(small: Small) -> None:
    with pytest.raises(UsageError, match=r"optimizer.schedule.every is missing"):
        small(optimizer__schedule={"kind": "halving"})
    with pytest.raises(UsageError, match=r"only halving takes it, not cosine"):
        small(optimizer__schedule={"kind": "cosine", "every": 5})
    with pytest.raises(UsageError, match=r"schedule.hold = 0.5: only cosine and linear take it, not constant"):
        small(optimizer__schedule={"kind": "constant", "hold": 0.5})
    with pytest.raises(UsageError, match=r"optimizer.schedule.hold"):
        small(optimizer__schedule={"kind": "cosine", "hold": 1.0})


def test_a_later_end_says_what_happens_to_the_rates(
    small: Small, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start(small(optimizer__schedule={"kind": "cosine"}), tmp_path / "run")
    program.resume(tmp_path / "run", steps=20, tensorboard=False)
    assert "which moves from step 14 to 20" in capsys.readouterr().err
