"""The paper's settings: each builds, has its number of parameters, can be trained, and stands where it should."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from scornn.errors import UsageError
from scornn.nn.catalogue import parameter_count
from scornn.program.paper import match
from scornn.program.paper.items import ITEMS, chosen
from scornn.program.paper.reproduce import Request, settings
from scornn.program.recipes.presets import choose, presets, resolve
from scornn.program.tasks import Batch, Task
from scornn.program.train.config import Average, Schedule, build, to_table
from scornn.program.train.distributed import World
from scornn.program.train.engine import Engine, build_model
from scornn.program.train.tables import merge

NAMES = list(presets())
SIZES = {"copying": (10, 9, "all"), "adding": (2, 1, "last"), "mnist": (1, 10, "last"), "speech": (129, 129, "all")}


def test_a_task_is_named_in_a_file_as_on_the_command_line() -> None:
    written = resolve({"task": {"name": "mnist", "permuted": True}})
    assert resolve({"task": {"name": "pmnist"}}) == written
    assert resolve({**to_table(written[0]), "task": {"name": "pmnist", "permuted": True}})[0] == written[0]
    with pytest.raises(UsageError, match="unknown task 'pmnst'; did you mean pmnist or mnist"):
        resolve({"task": {"name": "pmnst"}})
    for table in ({}, {"length": 5}):
        with pytest.raises(UsageError, match=r"task\.name is missing: expected one of .*copying"):
            resolve({"task": table})


class Toy(Task):
    """Random sequences with the input, output and reading of a task of the paper."""

    name = "toy"
    splits = ("train", "test")
    baseline = None
    headline = "loss"
    goal = "min"

    def __init__(self, like: str) -> None:
        self.input_size, self.output_size, self.read = SIZES[like]

    def size(self, split: str) -> int:
        return 2

    def batch_size(self, split: str) -> int:
        return 2

    def batch(self, split: str, epoch: int, step: int) -> Batch:
        shape = (14, 2, self.output_size) if self.read == "all" else (2, self.output_size)
        return Batch(torch.rand(14, 2, self.input_size), torch.rand(shape))  # 14 is a stride of a preset

    def loss(self, outputs: Tensor, batch: Batch) -> tuple[Tensor, int]:
        return F.mse_loss(outputs, batch.targets, reduction="sum"), batch.targets.numel()

    def measure(self, outputs: Tensor, batch: Batch) -> dict[str, tuple[float, float]]:
        total, count = self.loss(outputs, batch)
        return {"loss": (total.item(), count)}


def task_of(name: str) -> Toy:
    return Toy(presets()[name].config["task"]["name"])


@pytest.mark.parametrize("name", NAMES)
def test_has_its_number_of_parameters(name: str) -> None:
    config = build(merge({"threads": 1}, presets()[name].config))
    assert parameter_count(build_model(config.model, task_of(name))) == presets()[name].parameters


@pytest.mark.parametrize("name", NAMES)
def test_takes_a_step_at_a_small_size(name: str) -> None:
    item = next(item for item in ITEMS.values() if name in (*item.presets, *item.beyond))
    config = settings(presets()[name], item, 1, Request(out=Path()))
    assert config.model.hidden == 8
    engine = Engine(config, task_of(name), World())
    before = [p.detach().clone() for p in engine.parameters]
    first = engine.step(0, 0).loss
    assert first > 0
    assert all(not torch.equal(a, b) for a, b in zip(before, engine.parameters, strict=True) if b.grad.abs().max() > 0)
    error = engine.orthogonality()
    assert error is None or error < 1e-4


def test_every_published_figure_is_in_its_item_and_the_reverse() -> None:
    published = {(p.item, name) for name, preset in presets().items() for p in preset.published}
    assert published == {(item.name, name) for item in ITEMS.values() for name in (*item.presets, *item.beyond)}
    rows = {name: len(item.presets) for name, item in ITEMS.items()}
    assert rows == {
        "fig-copying": 10,
        "fig-adding": 18,
        "table-mnist": 22,
        "table-timit": 12,
        "fig-orthogonality": 2,
        "fig-gradients": 2,
        "table-timing": 14,
    }


def test_plain_settings_keep_averaged_weights_and_null_takes_them_away() -> None:
    plain, said = resolve({"task": {"name": "arrays"}})
    assert plain.optimizer.average == Average()
    assert "taking plain ones" in said
    assert resolve({"task": {"name": "arrays"}, "optimizer": {"average": None}})[0].optimizer.average is None


def test_plain_settings_keep_a_unitary_matrix_on_its_manifold() -> None:
    own = {"task": {"name": "arrays"}, "model": {"name": "full-urnn"}}
    assert resolve(own)[0].optimizer.recurrent.kind == "stiefel-rms"
    assert resolve({**own, "optimizer": {"recurrent": {"kind": "adam"}}})[0].optimizer.recurrent.kind == "adam"


def test_plain_settings_name_no_rate_of_what_a_model_has_not() -> None:
    table = {"task": {"name": "arrays"}, "model": {"name": "lstm"}, "optimizer": {"rest": {"lr": 0.003}}}
    config, said = resolve(table)
    assert config.optimizer.recurrent == config.optimizer.rest
    assert "optimizer.rest adam 0.003, steps 1500" in said
    assert (config.optimizer.clip_norm, config.optimizer.schedule) == (1.0, Schedule(kind="cosine"))
    for model in ("exprnn", "memory-blocks"):
        other, said = resolve({**table, "model": {"name": model}})
        assert other.optimizer.recurrent.lr == 3e-4
        assert "optimizer.recurrent rmsprop 0.0003" in said
    for task in ("arrays", "copying"):  # of the paper's problems too, by scoRNN's settings
        gru, _ = resolve({"task": {"name": task}, "model": {"name": "gru"}})
        assert gru.optimizer.recurrent == gru.optimizer.rest
    for value in (None, 3, "adam"):
        with pytest.raises(UsageError, match=r"optimizer.*: expected"):
            resolve({**table, "optimizer": value})


def test_published_values() -> None:
    """A few cells of the paper's tables, by hand."""

    def value(name: str, item: str, split: str = "test") -> float | None:
        return next(p.value for p in presets()[name].published if p.item == item and p.split == split)

    assert value("mnist-scornn-170", "table-mnist") == 0.973
    assert value("pmnist-scornn-512", "table-mnist") == 0.966
    assert value("pmnist-full-urnn-116", "table-mnist") == 0.925
    assert value("mnist-urnn-2170", "table-timing") == 50.1
    assert value("timit-scornn-425", "table-timit", "valid") == 7.97
    assert value("timit-urnn-158", "table-timit") == 18.51


def test_rows_stand_in_the_papers_order() -> None:
    timing = [name.removeprefix("mnist-") for name in ITEMS["table-timing"].presets]
    assert timing[:4] == ["rnn-116", "scornn-170", "urnn-512", "full-urnn-116"]
    assert ITEMS["table-mnist"].presets[:3] == ("mnist-scornn-170", "pmnist-scornn-170", "mnist-scornn-360")
    assert ITEMS["fig-copying"].presets[4:6] == ("copying-1000-eurnn-512", "copying-2000-scornn-190")
    assert ITEMS["table-timit"].presets[3] == "timit-lstm-84"


def test_settings_of_a_file_that_is_like_another() -> None:
    """Permuted MNIST is MNIST but for what its file says."""
    mnist, permuted = (presets()[name] for name in ("mnist-scornn-360", "pmnist-scornn-360"))
    assert (mnist.config["model"]["options"]["rho"], permuted.config["model"]["options"]["rho"]) == ("n/10", "n/2")
    assert mnist.config["optimizer"] == permuted.config["optimizer"]
    assert permuted.config["optimizer"]["recurrent"] == {"kind": "rmsprop", "flavour": "tf1", "lr": 1e-5}
    assert permuted.config["task"] == {**mnist.config["task"], "permuted": True}
    assert permuted.note == mnist.note
    assert "pmnist-rnn-116" not in presets()


def test_settings_beyond_the_paper_say_what_differs_and_are_never_a_default() -> None:
    beyond = {name: preset for name, preset in presets().items() if preset.beyond}
    assert len(beyond) > 30
    for name, preset in beyond.items():
        assert not preset.default
        if "memory" in name:  # another network, beside a row of the paper's
            assert preset.beyond.startswith(("another network", "the same network"))
            beside, _, said = preset.published[0].text.partition(": ")
            length = f"{preset.config['task']['length']}-" if name.startswith("adding") else ""
            row = presets()[f"{name.partition('-')[0]}-{length}scornn-{beside.removeprefix('scoRNN n=')}"]
            assert (preset.published[0].value, said) == (row.published[0].value, row.published[0].text)
            assert "rho" not in preset.config["model"].get("options", {})
            continue
        base = presets()[name.rpartition("-")[0]]
        assert preset.published[0] == base.published[0]
        assert preset.title == f"{base.title}: {preset.beyond}"
        assert match.preset_of({**match.whole(name), "name": None}) is preset
    assert build(merge({"threads": 1}, beyond["pmnist-scornn-170-mlp"].config)).model.readout.width == 256
    chosen_preset = choose({"name": "mnist", "permuted": True}, "scornn", 170)
    assert chosen_preset is presets()["pmnist-scornn-170"]


@pytest.mark.parametrize("name", NAMES)
def test_a_run_of_a_preset_is_known_by_its_settings(name: str) -> None:
    table = match.whole(name)
    assert match.preset_of(table) is presets()[name]
    assert match.differences(table, presets()[name]) == []
    assert not match.is_reduced(table, presets()[name])
    longer = {**table, "task": {**table["task"], "length": 12345}}
    assert match.preset_of(longer) is None
    if presets()[name].beyond:
        return
    earlier = {key: value for key, value in table["optimizer"].items() if key not in ("schedule", "average")}
    assert match.preset_of({**table, "optimizer": earlier}) is presets()[name]
    assert match.preset_of({**table, "optimizer": {**earlier, "schedule": {"kind": "cosine"}}}) is None


def test_what_a_run_began_as_tells_its_preset() -> None:
    grown, other = presets()["mnist-scornn-512-grown"], presets()["mnist-scornn-512-strong"]
    table = {**match.whole(grown.name), "start": "mnist-scornn-360-strong-s7/step-17600-averaged/0123456789abcdef"}
    assert match.preset_of(table) is grown
    assert match.differences(table, grown) == []
    assert match.unlike(table, {**table, "start": table["start"].replace("s7", "s8")}) == []
    assert match.preset_of({**table, "start": None}) is None
    drawn = match.whole(other.name)
    assert match.preset_of(drawn) is other
    assert match.preset_of({**drawn, "start": table["start"]}) is None
    (said,) = match.differences({**table, "start": None}, grown)
    assert said == "start not set instead of mnist-scornn-360-strong-averaged"
    raw = {**table, "start": "mnist-scornn-360-strong-s7/step-17600/0123456789abcdef"}
    assert match.preset_of(raw) is None
    assert match.differences(raw, grown)[0].startswith("start mnist-scornn-360-strong instead of")


def test_a_run_named_after_a_preset_belongs_to_it_and_says_what_differs() -> None:
    preset = presets()["copying-1000-scornn-190"]
    config = settings(preset, ITEMS["fig-copying"], 7, Request(out=Path()))
    table = to_table(config)
    assert match.preset_of(table) is preset
    assert match.is_reduced(table, preset)
    assert "n 8 instead of 190" in match.differences(table, preset)
    assert match.length({"steps": 4000, "epochs": 4.0}, preset) == "4,000 of 10,000 iterations"
    assert match.length({"steps": 10000, "epochs": 10.0}, preset) == "10,000 iterations"
    assert match.length({"epochs": 3.5}, presets()["mnist-scornn-170"]) == "3.5 of 70 epochs"
    assert match.length({"epochs": 1.0}, presets()["adding-200-memory-blocks-65-closed"]) == "1 epoch"
    assert match.share_made({"epochs": 3.5}, presets()["mnist-scornn-170"]) == 0.05
    assert match.share_made({"steps": 4000, "epochs": 4.0}, preset) == 0.4


def test_what_a_preset_sets_and_its_run_does_not_differs_too() -> None:
    preset = presets()["copying-1000-scornn-190"]
    table = to_table(settings(preset, ITEMS["fig-copying"], 7, Request(out=Path(), scale="paper")))
    assert match.differences(table, preset) == []
    del table["model"]["options"]["rho"]
    assert match.differences(table, preset) == ["rho not set instead of 95"]
    falling = next(p for p in presets().values() if p.name.startswith("mnist-scornn-170") and "recipe" in p.name)
    table = to_table(settings(falling, ITEMS["table-mnist"], 7, Request(out=Path(), scale="paper")))
    table["optimizer"]["schedule"] = None
    assert "schedule not set instead of cosine" in match.differences(table, falling)


def test_an_open_corpus_is_named() -> None:
    preset = presets()["timit-scornn-224"]
    config = settings(preset, ITEMS["table-timit"], 7, Request(out=Path(), scale="paper", corpus="iban"))
    assert match.preset_of(to_table(config)) is preset
    assert match.differences(to_table(config), preset) == ["corpus iban instead of timit"]


@pytest.mark.parametrize(
    ("given", "preset"),
    [
        ({"task": {"name": "adding"}}, "adding-750-scornn-170"),
        ({"task": {"name": "adding", "length": 200}}, "adding-200-scornn-170"),
        ({"task": {"name": "adding", "length": 201}}, "adding-750-scornn-170"),
        ({"task": {"name": "adding", "length": 400}, "model": {"name": "lstm", "hidden": 61}}, "adding-400-lstm-60"),
        ({"task": {"name": "mnist"}, "model": {"hidden": 512}}, "mnist-scornn-512"),
        ({"task": {"name": "mnist"}, "model": {"hidden": 500}}, "mnist-scornn-170"),
        ({"task": {"name": "pmnist"}, "model": {"name": "gru", "hidden": 360}}, "pmnist-scornn-360"),
    ],
)
def test_a_preset_is_that_of_the_length_and_size_or_the_default(given: dict[str, Any], preset: str) -> None:
    assert f"preset {preset}" in resolve(given)[1]


def test_unknown_item() -> None:
    with pytest.raises(Exception, match="did you mean fig-copying"):
        chosen("fig-copy")
    assert len(chosen("all")) == 7


def test_a_part_of_a_corpus_is_allowed_by_a_flag_of_reproduce() -> None:
    preset = next(preset for preset in presets().values() if preset.config["task"]["name"] == "speech")
    item = next(item for item in ITEMS.values() if preset.name in (*item.presets, *item.beyond))
    for partial in (False, True):
        config = settings(preset, item, 1, Request(out=Path(), allow_partial=partial))
        assert to_table(config)["task"]["allow_partial"] is partial


def test_a_name_and_what_it_stands_for_agree() -> None:
    with pytest.raises(UsageError, match=r"task.permuted = false: task.name = pmnist is for true"):
        resolve({"task": {"name": "pmnist", "permuted": False}})
