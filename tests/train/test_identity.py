"""Which runs are the same, and their figures; the recorded runs and the examples in the docstrings too."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scornn.program.train.config import Config, build, to_table
from scornn.program.train.figures import figures
from scornn.program.train.identity import Identity, in_words

Small = Callable[..., Config]

RESULTS = sorted((Path(__file__).parents[2] / "results").glob("*/summary.json"))
HASHES = {
    "copying-1000-scornn-190-s5544": "cf1d7a14",
    "pmnist-scornn-170-s5544": "f87b61c8",
    "mnist-scornn-512-s5544": "20c5175b",
}


def test_what_another_value_makes_of_a_run(small: Small) -> None:
    of = Identity.of
    here = of(small())
    same: dict[str, tuple[Any, str]] = {
        "name": ("x", "course study setting experiment problem"),
        "data": ("/elsewhere", "course study experiment problem"),
        "steps": (99, "course experiment problem"),
        "threads": (2, "study setting experiment problem"),
        "backend": ("manual", "study setting experiment problem"),
        "seed": (1, "setting experiment problem"),
        "eval_every": (5, "setting experiment problem"),
        "task__batch": (7, "experiment problem"),
        "optimizer__average": ({"decay": 0.99}, "experiment problem"),
        "optimizer__rest__lr": (0.02, "problem"),
        "task__length": (11, ""),
    }
    parts = ("course", "study", "setting", "experiment", "problem")
    for key, (value, shared) in same.items():
        other = of(small(**{key: value}))
        assert [part for part in parts if here.same(other, part)] == shared.split(), key
        assert [part for part in parts if here.digest(part) == other.digest(part)] == shared.split(), key
        assert [part for part in parts if not here.differences(other, part)] == shared.split(), key


def test_a_stored_table_is_the_same_run_as_its_config(small: Small) -> None:
    table = json.loads(json.dumps(to_table(small())))
    assert Identity.of(table) == Identity.of(small())
    of_before = {key: value for key, value in table.items() if value is not None}  # before these options were there
    assert Identity.of(of_before).digest() == Identity.of(small()).digest()
    table["task"] = {"name": "nobody's", "length": 10, "own": 1}
    assert Identity.of(table).at("problem") == {"task.name": "nobody's", "task.length": 10}


def test_data_and_code_count_by_their_content_where_it_is_known() -> None:
    config = {"data": "/here", "plugins": ["own.py"]}
    known = [Identity.of({**config, "data": place}, {"a": "sha256 1"}, "own.py 2") for place in ("/here", "/there")]
    assert known[0].same(known[1], "setting")
    assert not known[0].same(Identity.of(config, {"a": "sha256 3"}, "own.py 2"), "setting")
    assert not known[0].same(Identity.of(config, {"a": "sha256 1"}, "own.py 3"), "study")
    assert not Identity.of(config).same(Identity.of({**config, "data": "/there"}), "setting")
    drawn = [Identity.of({"seed": k}, {"train": f"first batch sha256 {k}"}) for k in (1, 2)]
    assert drawn[0].same(drawn[1], "setting")


def test_folders_are_problems_of_their_own_where_the_task_says_so() -> None:
    own, other = ({"task": {"name": "arrays"}, "data": f"/data/{name}"} for name in ("fish", "birds"))
    assert in_words(Identity.of(own).differences(Identity.of(other), "problem")) == ["data fish instead of birds"]
    assert "data" not in Identity.of({**own, "task": {"name": "adding"}}).at("problem")


def test_a_start_is_the_same_for_every_seed() -> None:
    first, second, raw = (
        Identity.of({"start": f"mnist-s{seed}/step-{9 + seed}{averaged}/{seed}abc"})
        for seed, averaged in ((1, "-averaged"), (2, "-averaged"), (1, ""))
    )
    assert first.same(second, "setting")
    assert not first.same(second, "course")
    assert not first.same(raw, "experiment")


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.parent.name)
def test_recorded_runs(path: Path) -> None:
    """Their summaries were written step by step: the figures of their lines are the same, digit for digit."""
    summary = json.loads(path.read_text())
    rows = [json.loads(line) for line in path.with_name("metrics.jsonl").read_text().splitlines()]
    for weights, said in (("raw", summary), ("average", summary.get("average"))):
        if said is not None:
            found = figures(rows, summary["headline"], summary["goal"], weights)  # type: ignore[arg-type]
            assert (found.final, found.best, found.best_by_valid) == (
                *(said["final"], said["best"], said["best_by_valid"]),
            )
    table = json.loads(path.with_name("config.json").read_text())
    digest = Identity.of(table).digest()
    assert digest == Identity.of(build(table)).digest()
    if path.parent.name in HASHES:
        assert digest.startswith(HASHES[path.parent.name])


def test_figures_go_on_where_they_were() -> None:
    rows = [
        {"step": step, "epoch": 1, "split": split, "accuracy": value, "seconds": 1.0, "weights": weights}
        for step, values in enumerate([(0.1, 0.4), (0.3, 0.2), (0.3, 0.5), (0.2, 0.9)])
        for weights, factor in (("raw", 1.0), ("average", 0.5))
        for split, value in zip(("valid", "test"), (factor * value for value in values), strict=True)
    ]
    whole = figures(rows, "accuracy", "max")
    assert whole.best == {"step": 3, "epoch": 1, "split": "test", "value": 0.9}
    assert whole.best_by_valid == {"step": 1, "epoch": 1, "split": "test", "value": 0.2, "valid": 0.3}
    assert whole.kept_step == 1
    for cut in range(0, len(rows), 4):
        first = figures(rows[:cut], "accuracy", "max")
        assert figures(rows[cut:], "accuracy", "max", before=first) == whole
    assert figures(rows, "accuracy", "max", "average").best == {"step": 3, "epoch": 1, "split": "test", "value": 0.45}
