"""The paper's settings: found for every task and model, complete, and of the published size."""

from typing import Any

import pytest

from scornn.errors import UsageError
from scornn.nn import parameter_count
from scornn.paper.presets import TASKS, choose, presets, resolve
from scornn.train.engine import build_model
from scornn.train.tables import merge

SIZES = {"copying": (10, 9), "adding": (2, 1), "mnist": (1, 10), "speech": (129, 129)}


class Shape:
    """The sizes of a task, without its data."""

    read = "all"

    def __init__(self, name: str) -> None:
        self.input_size, self.output_size = SIZES[name]


@pytest.mark.parametrize("name", presets())
def test_a_preset_resolves_to_itself_and_has_its_number_of_parameters(name: str) -> None:
    preset = presets()[name]
    config, origin = resolve(preset.config)
    assert name in origin
    if preset.parameters < 300_000:
        model = build_model(config, Shape(preset.config["task"]["name"]))  # type: ignore[arg-type]
        assert parameter_count(model) == preset.parameters


@pytest.mark.parametrize(
    ("task", "model", "expected"),
    [
        ("copying", {}, {"hidden": 190, "rho": 95, "lr": 1e-3, "recurrent": 1e-4}),
        ("copying", {"hidden": 64}, {"hidden": 64, "rho": 32, "lr": 1e-3, "recurrent": 1e-4}),
        ("mnist", {}, {"hidden": 170, "rho": 17, "lr": 1e-3, "recurrent": 1e-4}),
        ("mnist", {"hidden": 512}, {"hidden": 512, "rho": 51, "lr": 1e-3, "recurrent": 1e-5}),
        ("pmnist", {"hidden": 360}, {"hidden": 360, "rho": 180, "lr": 1e-3, "recurrent": 1e-5}),
        ("adding", {}, {"hidden": 170, "rho": 119, "lr": 1e-3, "recurrent": 1e-4}),
    ],
)
def test_the_papers_settings_are_the_defaults(task: str, model: dict[str, Any], expected: dict[str, Any]) -> None:
    config, _ = resolve({"task": TASKS[task], "model": model})
    rules = config.optimizer
    found = (config.model.hidden, config.model.options["rho"], rules.rest.lr, rules.recurrent.lr)
    assert found == tuple(expected.values())
    assert config.seed == 5544


def test_rho_of_adding_goes_by_length() -> None:
    for length, rho in ((200, 85), (400, 119), (750, 119)):
        config, _ = resolve({"task": {"name": "adding", "length": length}})
        assert config.model.options["rho"] == rho
        assert config.epochs == 10


def test_iterations_take_the_place_of_epochs() -> None:
    config, _ = resolve({"task": TASKS["mnist"], "steps": 7})
    assert (config.steps, config.epochs) == (7, None)


def test_a_model_without_a_setting_says_so() -> None:
    config, origin = resolve({"task": TASKS["copying"], "model": {"name": "gru"}})
    assert config.model.name == "gru"
    assert "gives no setting of gru" in origin
    assert choose(TASKS["copying"], "gru") is None


def test_a_whole_config_stands_on_its_own() -> None:
    config, _ = resolve({"task": TASKS["copying"]})
    from scornn.train.config import to_table

    whole = to_table(config)
    del whole["model"]["options"]["rho"]
    again, _ = resolve(whole)
    assert "rho" not in again.model.options


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"task": {"name": "copyng"}}, "unknown task 'copyng'; did you mean copying"),
        ({}, "unknown task None"),
        ({"task": 3}, "expected tables"),
        ({"task": {"name": "copying"}, "model": {"name": "scorn"}}, "unknown model 'scorn'; did you mean scornn"),
    ],
)
def test_unknown_names_are_refused(table: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        resolve(merge(table, {}))
