"""Timing and drift: what they count, not how long it takes."""

from __future__ import annotations

from scornn.program import tasks
from scornn.program.analysis import drift, seconds_per_step
from scornn.program.analysis.timing import minutes_per_epoch
from scornn.program.train.config import Config, ModelConfig, OptimizerConfig, StepRule


def test_counts_the_steps_it_timed() -> None:
    rule = StepRule(kind="rmsprop", lr=1e-3)
    task = tasks.CopyingConfig(length=5, train_size=8, test_size=4, batch=4)
    config = Config(
        task=task,
        model=ModelConfig(name="scornn", hidden=6),
        optimizer=OptimizerConfig(rest=rule, recurrent=rule),
        steps=1,
        threads=1,
    )
    made = tasks.make(task, config.seed)
    shown: list[int] = []
    found = seconds_per_step(config, made, steps=5, progress=shown.append)
    assert found["steps"] == 5
    assert shown == [1, 2, 3, 4, 5]
    assert found["seconds_per_step"] > 0
    assert seconds_per_step(config, made, steps=50, seconds=0)["steps"] == 3
    assert minutes_per_epoch({"seconds_per_step": 0.6}) == 11


def test_drift_takes_each_step_once_and_nothing_of_free_models() -> None:
    rows = [
        {"step": 10, "split": "train", "orthogonality": 1e-6},
        {"step": 20, "split": "train", "orthogonality": 2e-6},
        {"step": 20, "split": "test", "orthogonality": 2e-6},
    ]
    epochs, errors = drift(rows, steps_per_epoch=20)
    assert epochs.tolist() == [0.5, 1.0]
    assert errors.tolist() == [1e-6, 2e-6]
    assert drift([{"step": 10, "split": "train"}], 20)[0].size == 0
