"""What a training step spends around the recurrence can be measured for any config."""

import pytest

from scornn.program.analysis.overhead import PARTS, measure
from scornn.program.recipes.presets import resolve
from scornn.program.tasks import TASKS


@pytest.mark.parametrize(
    ("model", "options"),
    [("scornn", {}), *((name, {}) for name in ("lstm", "goru", "linear-memory")), ("scornn", {"num_layers": 2})],
)
def test_the_parts_make_the_step(model: str, options: dict[str, int]) -> None:
    task = {**TASKS["copying"].table(), "length": 10, "train_size": 40, "test_size": 20}
    config, _ = resolve({"task": task, "model": {"name": model, "hidden": 8, "options": options}, "threads": 1})
    found = measure(config, steps=4, warmup=2)
    assert set(found["parts"]) == set(PARTS)
    assert found["step"] == pytest.approx(sum(found["parts"].values()))
    assert all(milliseconds > 0 for milliseconds in found["parts"].values())
    if model == "scornn" and not options:
        assert found["share"] == pytest.approx(1 - found["recurrence"] / found["step"])
    else:
        assert found["recurrence"] is None
