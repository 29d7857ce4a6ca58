"""The record: what is copied of a run, what is made from it, and that the README is what it makes."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from scornn import nn
from scornn.errors import DataError, UsageError
from scornn.nn.catalogue import MODELS, look
from scornn.program import plugins
from scornn.program.cli import main
from scornn.program.paper import figures, match, record, tables, verdict
from scornn.program.paper import page as reproduction
from scornn.program.paper.items import ITEMS, Item
from scornn.program.paper.reproduce import Request, reproduce
from scornn.program.paper.results import collect, spread
from scornn.program.recipes.presets import presets
from scornn.program.train import checkpoint

ROOT = Path(__file__).resolve().parents[2]


def whole(preset: str, seed: int = 5544, **more: Any) -> dict[str, Any]:
    """The config of a run of a preset, as the trainer writes it."""
    places = {"data": "/home/somebody/data", "plugins": ["/home/somebody/mine.py"]}
    return {**match.whole(preset), "seed": seed, **places, **more}


@pytest.fixture
def results(tmp_path: Path, runs: SimpleNamespace) -> Path:
    """A record of made-up runs: three seeds of a row of the paper, one cut short, one beyond the paper."""
    made = tmp_path / "made"
    for seed in (1, 2, 3):
        runs.make(made / f"a{seed}", whole("copying-1000-scornn-190", seed), steps=10_000)
    runs.make(made / "lstm", whole("copying-1000-lstm-68"), steps=4000, learns=False)
    config = whole("copying-1000-scornn-190")
    config["task"] = {**config["task"], "length": 5000}
    runs.make(made / "beyond", config, steps=100)
    record.record(sorted(made.iterdir()), tmp_path / "results", None)
    return tmp_path / "results"


def test_runs_are_copied_small_and_without_paths(results: Path) -> None:
    kept = sorted(p.name for p in results.iterdir() if p.is_dir() and p.name != "figures")
    assert kept == [
        "copying-1000-lstm-68-s5544",
        "copying-1000-scornn-190-s1",
        "copying-1000-scornn-190-s2",
        "copying-1000-scornn-190-s3",
        "copying-5000-scornn-190-s5544",
    ]
    for file in (path for path in results.rglob("*") if path.is_file()):
        assert b"/home/somebody" not in file.read_bytes()
    for run in results.glob("copying-*"):
        assert {p.name for p in run.iterdir()} <= {"config.json", "metrics.jsonl", "summary.json", "spectrum.json"}
        assert (run / "metrics.jsonl").stat().st_size <= record.LARGEST
        assert json.loads((run / "config.json").read_text())["plugins"] == ["mine.py"]
    assert (results / "copying-1000-scornn-190-s1" / "spectrum.json").is_file()
    assert not (results / "copying-1000-lstm-68-s5544" / "spectrum.json").exists()


def test_nothing_is_left_of_a_run_that_another_replaces(results: Path, tmp_path: Path, runs: SimpleNamespace) -> None:
    name = "copying-1000-scornn-190-s1"
    (results / name / "audio").mkdir()
    own = ("weights.safetensors", "weights.safetensors.md", "gradients.json", "audio/scores.json")
    files = [results / name / file for file in own]
    for file in files:
        file.write_text("{}")
    record.record([tmp_path / "made" / "a1"], results, None)
    assert all(file.exists() for file in files)
    runs.make(tmp_path / "longer", whole("copying-1000-scornn-190", 1), steps=9000)
    record.record([tmp_path / "longer"], results, None)
    assert not any(file.exists() for file in files)


def test_a_run_takes_the_place_of_its_like_alone(results: Path, tmp_path: Path, runs: SimpleNamespace) -> None:
    """One that is of no preset may still get the name of one."""
    config = whole("copying-1000-scornn-190", 1)
    rest = {**config["optimizer"]["rest"], "lr": 0.05}
    config["optimizer"] = {**config["optimizer"], "rest": rest}
    other = runs.make(tmp_path / "other", config, steps=100)
    before = {file: file.read_bytes() for file in results.rglob("*") if file.is_file()}
    with pytest.raises(UsageError, match=r"place of .*copying-1000-scornn-190-s1.*: rate 0.05 instead of 0.001"):
        record.record([other], results, None)
    assert {file: file.read_bytes() for file in results.rglob("*") if file.is_file()} == before
    both = [runs.make(tmp_path / str(steps), {**config, "seed": 9}, steps=steps) for steps in (100, 200)]
    with pytest.raises(UsageError, match="two different runs would both be"):
        record.record(both, results, None)


def contents(directory: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in directory.rglob("*") if file.is_file()}


@pytest.mark.parametrize("damaged", ["timing", "gradients", "no config", "end of the README", "sweep"])
def test_what_cannot_be_read_is_told_before_anything_is_written(
    damaged: str, tmp_path: Path, runs: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    out, results, readme = tmp_path / "out", tmp_path / "results", tmp_path / "README.md"
    good = runs.make(out / "runs" / "good", whole("copying-1000-scornn-190"), steps=9000)
    with_checkpoint(good)
    given, code = [str(out)], 3
    match damaged:
        case "timing":
            (out / "timing").mkdir()
            (file := out / "timing" / "x.json").write_text('{"preset":')
        case "gradients":
            (file := good / "gradients.json").write_text("[")
        case "no config":
            (file := tmp_path / "bad").mkdir()
            (file / "config.json").write_text("{}")
            given.append(str(file))
        case "end of the README":
            readme.write_text(record.BEGIN)
            file, code = Path("the README"), 2
        case _:
            file = Path("sweeps/x.json")
            (results / "sweeps").mkdir(parents=True)
            (results / file).write_text("{}")
    before = contents(tmp_path)
    assert main(["reproduce", "record", *given, "--out", str(results)]) == code
    assert str(file) in capsys.readouterr().err
    assert contents(tmp_path) == before


def with_checkpoint(run: Path) -> None:
    """The weights of a scoRNN in a made-up run, in place of their spectrum."""
    (run / "spectrum.json").unlink()
    model = json.loads((run / "config.json").read_text())["model"]
    layer = nn.build("scornn", 10, model["hidden"], **model["options"])
    (run / "checkpoints").mkdir()
    checkpoint.save(run / "checkpoints", 30, nn.SequenceModel(layer, 9).state_dict(), {}, {})


def test_the_spectrum_of_weights_goes_into_the_record_and_not_into_the_run(
    tmp_path: Path, runs: SimpleNamespace
) -> None:
    run = runs.make(tmp_path / "run", whole("copying-1000-scornn-190"), steps=9000)
    with_checkpoint(run)
    before = contents(run)
    (kept,) = record.record([run], tmp_path / "results", None)
    assert json.loads((kept / "spectrum.json").read_text())["step"] == 30
    assert contents(run) == before


def test_a_run_of_a_model_of_ones_own_is_recorded(
    tmp_path: Path, runs: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its spectrum too, where the plugin is one that its user has named; without it where the file is gone."""
    plugin = tmp_path / "mine.py"
    plugin.write_text(
        "from scornn.nn import ScoRNN\nfrom scornn.nn.catalogue import model\n\n\n"
        "@model('of-the-record')\nclass Mine(ScoRNN):\n    pass\n"
    )
    named = plugins.load([str(plugin)])
    for name, files in (("there", named), ("gone", [str(tmp_path / "gone.py")])):
        config = whole("copying-1000-scornn-190", plugins=files, name=name)
        config["model"] = {**config["model"], "name": "of-the-record" if name == "there" else "nobodys"}
        run = runs.make(tmp_path / name, config, steps=9000)
        (run / "spectrum.json").write_text("{}")
        with_checkpoint(run)
        (kept,) = record.record([run], tmp_path / "results", None)
        assert (kept / "spectrum.json").is_file() == (name == "there")
    del MODELS["of-the-record"]
    assert "gone is recorded without it: no spectrum of W: step-30 cannot be used" in capsys.readouterr().err


def test_a_line_of_metrics_that_was_cut_is_left_out(tmp_path: Path, runs: SimpleNamespace) -> None:
    run = runs.make(tmp_path / "run", whole("copying-1000-lstm-68"), steps=4000)
    whole_lines = (run / "metrics.jsonl").read_text()
    (run / "metrics.jsonl").write_text(whole_lines + '{"step": 40')
    (kept,) = record.record([run], tmp_path / "results", None)
    assert (kept / "metrics.jsonl").read_text() == record.thinned(whole_lines)


def test_accuracy_over_parameters_has_the_unbeaten_settings_of_a_model_beside_the_papers(
    tmp_path: Path, runs: SimpleNamespace
) -> None:
    made = {"recipe": (0.97, 0.96), "mlp": (0.965, 0.98)}  # of two seeds each, and 61,051 parameters in the second
    for name, values in made.items():
        for seed, value in enumerate(values):
            config = whole(f"mnist-scornn-170-{name}", seed)
            recorded(tmp_path / f"{name}-{seed}", runs, config, value, value - 0.01, 20)
    recorded(tmp_path / "worse", runs, whole("mnist-scornn-170"), 0.96, 0.96, 70)
    recorded(tmp_path / "larger", runs, whole("mnist-scornn-512"), 0.97, 0.97, 70)
    recorded(tmp_path / "short", runs, whole("mnist-lstm-128"), 0.999, 0.999, 30)
    (panel,) = figures.by_parameters(collect(tmp_path))
    by_label = {
        curve.label: [(x, round(y, 6)) for x, y in zip(*curve.members[0], strict=True)] for curve in panel.curves
    }
    assert by_label["scoRNN"] == [(16_415, 0.965), (61_051, 0.9725)]
    assert by_label["scoRNN, paper"] == [(16_415, 0.973), (68_950, 0.983), (136_970, 0.985)]
    assert "LSTM" not in by_label
    assert "LSTM, paper" in by_label


def test_pictures_of_the_readme_leave_out_what_is_too_short_to_say(tmp_path: Path, runs: SimpleNamespace) -> None:
    recorded(tmp_path / "a", runs, whole("mnist-scornn-170"), 0.9, 0.9, 70)
    recorded(tmp_path / "b", runs, whole("mnist-lstm-128"), 0.2, 0.2, 1)
    recorded(tmp_path / "c", runs, whole("mnist-scornn-512"), 0.5, 0.5, 1)
    for drawn in figures.pictured(collect(tmp_path)).values():
        own = [[curve.label for curve in panel.curves if "paper" not in curve.label] for _, panel in drawn]
        assert own in ([["scoRNN n=170"]], [["scoRNN"]])
    drawn = figures.panels(ITEMS["table-mnist"], collect(tmp_path))
    assert [[curve.label for curve in panel.curves] for panel in drawn] == [["scoRNN n=170"]]


def test_where_all_runs_are_short_the_page_draws_them(tmp_path: Path, runs: SimpleNamespace) -> None:
    recorded(tmp_path / "a", runs, whole("mnist-scornn-170"), 0.9, 0.9, 1)
    recorded(tmp_path / "b", runs, whole("mnist-lstm-128"), 0.2, 0.2, 1)
    (panel,) = figures.panels(ITEMS["table-mnist"], collect(tmp_path))
    assert [curve.label for curve in panel.curves] == ["scoRNN n=170", "LSTM n=128"]


def test_a_run_that_began_as_another_is_drawn_behind_its_epochs(tmp_path: Path, runs: SimpleNamespace) -> None:
    start = "mnist-scornn-360-strong-s5544/step-17600-averaged/0123456789abcdef"
    recorded(tmp_path / "a", runs, {**whole("mnist-scornn-512-grown"), "start": start}, 0.9, 0.9, 10)
    (panel,) = figures.panels(ITEMS["table-mnist"], collect(tmp_path))
    (x, _), *_ = panel.curves[0].members
    assert x[-1] == presets()["mnist-scornn-360-strong"].config["epochs"] + 10 == 26


def test_drift_is_that_of_the_weights_that_were_stepped(tmp_path: Path, runs: SimpleNamespace) -> None:
    run = runs.make(tmp_path / "run", whole("mnist-full-urnn-512"), steps=100)
    rows = [
        {"step": step, "split": "test", "loss": 1.0, "weights": weights, "orthogonality": error}
        for step, raw in ((50, 1e-6), (100, 1e-3))
        for weights, error in (("raw", raw), ("average", 1e-7))
    ]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (run / "summary.json").unlink()
    read = collect(tmp_path).runs["mnist-full-urnn-512"][0]
    assert list(verdict.orthogonality(read)[1]) == [1e-6, 1e-3]
    assert read.last("orthogonality") == 1e-3


def test_names_in_the_record() -> None:
    assert record.name_of(whole("mnist-scornn-170", 3)) == "mnist-scornn-170-s3"
    speech = whole("timit-lstm-84")
    assert record.name_of({**speech, "task": {**speech["task"], "corpus": "iban"}}) == "iban-lstm-84-s5544"
    other = {"task": {"name": "mnist", "permuted": True}, "model": {"name": "gru", "hidden": 5}, "seed": 1}
    assert record.name_of(other) == "pmnist-gru-5-s1"
    assert record.name_of({**other, "name": "mine-s1"}) == "mine-s1"
    with pytest.raises(DataError, match="no name of a directory"):
        record.name_of({**other, "name": "../mine"})
    for seed in ("/../../x", "1/../../x", None):
        with pytest.raises(DataError, match="no name of a directory"):
            record.name_of({**whole("mnist-scornn-170"), "seed": seed})


def test_thinning_keeps_every_evaluation_and_the_last_training_lines_it_can() -> None:
    rows = [{"step": k, "split": "train", "loss": 0.5} for k in range(1, 1001)]
    rows += [{"step": 1000, "split": "test", "loss": 0.1}]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    assert record.thinned(text, 1 << 20) == text
    kept = [json.loads(line) for line in record.thinned(text, 10_000).splitlines()]
    assert kept[-1] == rows[-1]
    assert len(kept) < 1001
    steps = [row["step"] for row in kept if row["split"] == "train"]
    assert steps[-1] > 990
    assert len({b - a for a, b in pairwise(steps)}) == 1
    assert len(record.thinned(text, 10_000)) <= 10_000


def test_numbers_come_from_the_runs_and_say_their_length(results: Path) -> None:
    found = collect(results)
    numbers = {(n.preset.name, n.measure): n for n in found.numbers(ITEMS["fig-copying"])}
    scornn = numbers["copying-1000-scornn-190", "cross-entropy"]
    assert len(scornn.values) == 3
    assert scornn.budget == "paper: 10,000 iterations; seeds 1, 2, 3"
    assert numbers["copying-1000-lstm-68", "recall"].budget == "short: 4,000 of 10,000 iterations; seed 5544"
    assert numbers["copying-2000-scornn-190", "recall"].budget == ""
    assert (scornn.verdict, scornn.complete) == (verdict.MET, True)
    lstm = numbers["copying-1000-lstm-68", "cross-entropy"]
    assert (lstm.verdict, lstm.complete) == (verdict.AGREES, False)
    assert numbers["copying-2000-scornn-190", "cross-entropy"].verdict == verdict.NOT_RUN
    assert [run.name for run in found.others] == ["copying-5000-scornn-190-s5544"]
    finals = []
    for seed in (1, 2, 3):
        rows = (results / f"copying-1000-scornn-190-s{seed}" / "metrics.jsonl").read_text().splitlines()
        finals.append([row for row in map(json.loads, rows) if row["split"] == "test"][-1]["loss"])
    assert scornn.values == tuple(finals)


def test_the_page_shows_every_item_and_says_what_is_missing(
    results: Path, dom: Callable[[str], Any], tmp_path: Path
) -> None:
    assert main(["reproduce", "page", "--from", str(results), "--out", str(tmp_path / "page.html")]) == 0
    page = dom((tmp_path / "page.html").read_text())
    assert page.open == []
    for item in ITEMS.values():
        assert f"{item.title} ({item.source})" in page.text
    assert (
        "Of 74 published losses and accuracies: met or beaten 1, direction agrees 1, not run 72 (24 of them on TIMIT, "
        "which is licensed). Of 6 published curves of W and of gradients: not run 6. "
        "Of 14 published minutes per epoch: not run 14." in page.text
    )
    assert "Not run: 8 of 10 published figures" in page.text
    assert "Beyond the paper" in page.text
    assert "T 5,000 instead of 1,000" in page.text
    assert "seeds 1, 2, 3" in page.text
    assert "5544" in page.text
    assert "5,544" not in page.text
    assert "9.26" in page.text  # published, with nothing beside it
    assert page.named("script") == []


def test_the_table_of_the_readme(results: Path, tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{record.BEGIN}\nof before\n{record.END}\nafter\n")
    record.rebuild(results, readme)
    text = readme.read_text()
    columns = "| problem | model | published | here | averaged weights | verdict |\n| --- |"
    assert text.startswith(f"before\n{record.BEGIN}\n{columns}")
    assert "All models together: of 74 published losses and accuracies: met or beaten 1" in text
    assert text.endswith(f"fig-copying-1.svg)\n{record.END}\nafter\n")
    rows = {line.split(" | ")[1]: line for line in text.splitlines() if line.startswith("| copying")}
    assert rows["scoRNN n=190"].startswith("| copying, T = 1000: cross-entropy | scoRNN n=190 | solves | **")
    assert "± " in rows["scoRNN n=190"].partition("**")[2]
    assert rows["scoRNN n=190"].endswith("** |  | met or beaten |")
    assert list(rows) == ["scoRNN n=190"]  # of the other models results/README.md tells
    assert text.count("](results/figures/") == 1
    assert "of before" not in text
    with pytest.raises(UsageError, match="no place for the table"):
        record.with_table("nothing", "table")


def test_the_whole_tables_stand_with_the_results(results: Path) -> None:
    text = (results / "README.md").read_text()
    assert "| problem | model | figure | published | here | averaged weights | verdict | how |\n| --- |" in text
    row = next(line for line in text.splitlines() if line.startswith("| copying, T = 1000 | scoRNN"))
    assert "| cross-entropy | converges immediately to zero" in row
    assert row.endswith("| met or beaten | paper: 10,000 iterations; seeds 1, 2, 3 |")
    short = next(line for line in text.splitlines() if line.startswith("| copying, T = 1000 | LSTM"))
    assert "**" not in short


@pytest.fixture(scope="module")
def brief() -> list[list[str]]:
    """The cells of the README's tables, of the real record."""
    lines = tables.table(collect(ROOT / "results")).splitlines()
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines if line.startswith("| ")]


def test_every_cell_of_the_readme_is_short(brief: list[list[str]]) -> None:
    assert len(brief) > 10
    assert max(len(cell) for row in brief for cell in row) <= 45


def test_the_better_of_raw_and_averaged_weights_is_bold(brief: list[list[str]]) -> None:
    by_average = next(row for row in brief if row[:3] == ["MNIST: accuracy", "scoRNN n=170", "0.973"])
    assert ["**" in cell for cell in by_average[3:5]] == [False, True]
    raw = next(row for row in brief if row[:2] == ["adding, T = 750: MSE", "scoRNN n=170"])
    assert ["**" in cell for cell in raw[3:5]] == [True, False]


def test_what_left_the_baseline_and_came_back_says_how_far_it_was() -> None:
    lines = (ROOT / "results" / "README.md").read_text().splitlines()
    row = next(line for line in lines if line.startswith("| adding, T = 400 | oRNN n=128 |"))
    assert "| **0.1648**, at best 0.001406 |" in row


def test_of_the_settings_of_one_network_the_readme_has_the_best(brief: list[list[str]]) -> None:
    rows = [row for row in brief if row[0] == "MNIST: accuracy" and row[1].startswith("scoRNN n=170,")]
    assert [row[1] for row in rows] == ["scoRNN n=170, rates held, then falling", "scoRNN n=170, readout of two layers"]
    assert "| U in ±1; twice the learning rate, and A's as in the paper; 23 epochs;" in (
        ROOT / "results" / "README.md"
    ).read_text(encoding="utf-8")  # every setting


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ((), None),
        ((0.5,), "0.5"),
        ((0.5, 0.5), "0.5 ± 0"),
        ((0.9437, 0.9478, 0.9464), "0.946 ± 0.002"),
        ((0.98530, 0.98380, 0.98510), "0.9847 ± 0.0008"),
        ((0.02, 0.04), "0.03 ± 0.01"),
        ((2.3e-5, 2.5e-5), "(2.4 ± 0.1)e-5"),
        ((1e-7, 2e-4), "0.0001 ± 0.0001"),
        ((0.0, 2e-5), "(1 ± 1)e-5"),
        ((90.0, 110.0), "100 ± 14"),
        ((-1.0, 1.0), "0 ± 1"),
    ],
)
def test_a_spread_has_no_more_digits_than_it_knows(values: tuple[float, ...], said: str | None) -> None:
    assert spread(values) == said


def test_a_run_under_a_third_of_its_protocol_is_not_in_the_table(tmp_path: Path, runs: SimpleNamespace) -> None:
    runs.make(tmp_path / "made", whole("copying-1000-scornn-190"), steps=3330)
    record.record([tmp_path / "made"], tmp_path / "results", None)
    assert "scoRNN" not in tables.table(collect(tmp_path / "results"))


def speech(path: Path, runs: SimpleNamespace, corpus: str, error: float) -> None:
    """A made-up run of speech with its error at the epoch chosen on validation."""
    config = whole("timit-scornn-224")
    config["task"] = {**config["task"], "corpus": corpus}
    run: Path = runs.make(path, config, steps=100)
    rows = [{"step": 100, "split": split, "mse_padded": error} for split in ("valid", "test")]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    summary = json.loads((run / "summary.json").read_text()) | {"best_by_valid": {"step": 100, "value": error}}
    (run / "summary.json").write_text(json.dumps({**summary, "epochs": 100}))


def test_an_open_corpus_is_not_set_beside_the_papers(tmp_path: Path, runs: SimpleNamespace) -> None:
    speech(tmp_path / "results" / "speech", runs, "iban", 3.0)
    found = collect(tmp_path / "results")
    row = "| speech (iban) | scoRNN n=224 | eval MSE (padded) | 8.5 on TIMIT | 3 |  | not comparable |"
    assert row in tables.summary(found)
    assert "speech" not in tables.table(found)  # what cannot be compared is not in the README
    assert "On the corpus iban, not on TIMIT" in reproduction.render(found)


def test_runs_on_other_data_are_neither_averaged_nor_lost(tmp_path: Path, runs: SimpleNamespace) -> None:
    speech(tmp_path / "iban", runs, "iban", 3.0)
    speech(tmp_path / "timit", runs, "timit", 8.0)
    found = collect(tmp_path)
    numbers = {n.measure: n for n in found.numbers(ITEMS["table-timit"]) if n.values}
    assert numbers["eval MSE (padded)"].values == (8.0,)
    assert numbers["eval MSE (padded)"].verdict == verdict.MET
    assert numbers["eval MSE (padded)"].budget.endswith("; seed 5544")
    assert "| speech (timit) | scoRNN n=224 | eval MSE (padded) | 8.5 | **8** |" in tables.summary(found)
    assert "beyond the paper: corpus iban instead of timit" in tables.summary(found)
    assert "corpus iban instead of timit" in reproduction.render(found).partition("Beyond the paper")[2]


def test_a_run_that_cannot_be_compared_hides_none_that_can(tmp_path: Path, runs: SimpleNamespace) -> None:
    few = whole("copying-1000-scornn-190", 2)
    few["task"] = {**few["task"], "test_size": 100}
    runs.make(tmp_path / "few", few, steps=10_000)
    runs.make(tmp_path / "fewer", {**few, "seed": 3, "task": {**few["task"], "test_size": 50}}, steps=10_000)
    runs.make(tmp_path / "few-too", {**few, "seed": 4}, steps=10_000)

    def row() -> Any:
        return collect(tmp_path).numbers(ITEMS["fig-copying"])[0]

    assert row().verdict == verdict.OTHER
    assert row().budget.endswith("; seeds 2, 4")
    runs.make(tmp_path / "whole", whole("copying-1000-scornn-190", 1), steps=10_000)
    assert (row().verdict, row().budget) == (verdict.MET, "paper: 10,000 iterations; seed 1")
    assert sorted(run.name for run in collect(tmp_path).others) == ["few", "few-too", "fewer"]


def test_the_figure_of_mnist_draws_of_each_network_the_papers_setting_and_the_best_beyond_it() -> None:
    unpermuted, permuted = figures.panels(ITEMS["table-mnist"], collect(ROOT / "results"))
    labels = [curve.label for curve in unpermuted.curves]
    assert {"scoRNN n=170", "scoRNN n=170, averaged weights", "scoRNN n=170, rates held, then falling"} <= set(labels)
    assert not {"scoRNN n=170, other rates", "scoRNN n=170, other rates, larger U"} & set(labels)
    for panel in (unpermuted, permuted):
        assert not [curve.label for curve in panel.curves if curve.line.average and curve.label.count(",") > 1]


def test_the_readmes_pictures_are_legible_on_a_phone() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = re.findall(r"!\[[^]]*\]\((results/figures/[^)]+)\)", readme)
    assert len(shown) == 6
    for path in shown:
        width = re.search(r'<svg [^>]*width="([\d.]+)pt"', (ROOT / path).read_text(encoding="utf-8"))
        assert width is not None, path
        assert 10 * 388 / float(width[1]) > 12, path  # pixels of its letters where the page leaves 388


@pytest.mark.parametrize("item", ITEMS.values(), ids=lambda item: item.name)
def test_models_of_one_figure_have_colours_of_their_own(item: Item) -> None:
    models = {presets()[name].config["model"]["name"] for name in (*item.presets, *item.beyond)}
    assert len({look(name).colour for name in models}) == len(models)


def test_a_smoke_run_is_no_result(tmp_path: Path) -> None:
    request = Request(out=tmp_path / "out", only=("adding-200-lstm-60",), quiet=True)
    reproduce([ITEMS["fig-adding"]], request)
    with pytest.raises(UsageError, match="is a smoke run"):
        record.record([tmp_path / "out"], tmp_path / "results", None)
    shutil.rmtree(tmp_path / "out" / "runs")
    file = tmp_path / "out" / "timing" / "mnist-scornn-170.json"
    file.parent.mkdir()
    config = whole("mnist-scornn-170")
    config["model"] = {**config["model"], "hidden": 8}
    timed = {"preset": "mnist-scornn-170", "config": config, "seconds_per_step": 0.001, "steps": 3}
    file.write_text(json.dumps(timed))
    with pytest.raises(UsageError, match=r"mnist-scornn-170\.json is a smoke run"):
        record.record([tmp_path / "out"], tmp_path / "results", None)
    assert not (tmp_path / "results").exists()
    with pytest.raises(DataError, match="expected a run directory"):
        record.record([tmp_path / "nothing"], tmp_path / "results", None)


def test_measurements_are_recorded(tmp_path: Path) -> None:
    timed = {
        "preset": "mnist-scornn-170",
        "config": whole("mnist-scornn-170"),
        "seconds_per_step": 0.06,
        "steps": 40,
        "machine": {"processor": "a processor"},
    }
    file = tmp_path / "out" / "timing" / "mnist-scornn-170.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(timed))
    record.record([tmp_path / "out"], tmp_path / "results", None)
    found = collect(tmp_path / "results")
    timing = next(n for n in found.numbers(ITEMS["table-timing"]) if n.preset is presets()["mnist-scornn-170"])
    assert timing.values == (1.1,)
    assert timing.verdict == verdict.MET
    assert timing.budget == "40 steps timed, scaled to 1,100"
    assert "a processor" in (tmp_path / "results" / "README.md").read_text()
    assert "minutes per epoch" in reproduction.render(found)


def test_remarks_are_shown_beside_their_row(results: Path) -> None:
    remarks = {"copying-1000-lstm-68": "The forget bias was tried at -4 too.", "mnist-scornn-170": "Of one seed."}
    (results / "remarks.json").write_text(json.dumps(remarks))
    text = reproduction.render(collect(results))
    assert "LSTM n=68, T\xa0=\xa01000: The forget bias was tried at -4 too." in text
    assert text.count("Of one seed.") == 1  # not beside the time of its step


def recorded(
    path: Path, runs: SimpleNamespace, config: dict[str, Any], raw: float, average: float, epochs: float
) -> None:
    """A made-up run of MNIST with the best accuracies of its weights and of their average."""
    run: Path = runs.make(path, config, steps=100)
    summary = json.loads((run / "summary.json").read_text())
    summary |= {"epochs": epochs, "best": {"value": raw, "step": 100}, "average": {"best": {"value": average}}}
    (run / "summary.json").write_text(json.dumps(summary))


@pytest.mark.parametrize(
    ("raw", "average", "epochs", "expected"),
    [
        (0.9641, 0.9731, 70, verdict.MET),
        (0.9726, 0.9, 20, verdict.MET),
        (0.9641, 0.9650, 70, verdict.AGREES),
        (0.9641, 0.9650, 30, verdict.AGREES),
        (0.9641, 0.9650, 20, verdict.SHORT),
        (0.9, 0.91, 69, verdict.SHORT),
        (0.9, 0.91, 70, verdict.MISSED),
    ],
)
def test_verdicts_on_a_number(
    raw: float, average: float, epochs: float, expected: str, tmp_path: Path, runs: SimpleNamespace
) -> None:
    recorded(tmp_path / "run", runs, whole("mnist-scornn-170"), raw, average, epochs)
    found = collect(tmp_path).numbers(ITEMS["table-mnist"])[0]
    assert (found.values, found.averaged) == ((raw,), (average,))
    assert found.verdict == expected
    assert found.complete == (epochs == 70)


@pytest.mark.parametrize(
    ("preset", "losses", "epochs", "expected"),
    [
        ("adding-750-scornn-170", (0.17, 0.08), 10, verdict.AGREES),
        ("adding-750-scornn-170", (0.17, 0.08), 1, verdict.SHORT),
        ("adding-750-scornn-170", (0.17, 0.01), 5, verdict.MET),
        ("adding-750-scornn-170", (0.17, 0.17), 5, verdict.SHORT),
        ("adding-750-scornn-170", (0.17, 0.17), 10, verdict.MISSED),
        ("adding-200-ornn-128", (0.05, 0.17), 1, verdict.MET),
        ("adding-200-ornn-128", (0.17, 0.05), 1, verdict.SHORT),
        ("adding-200-ornn-128", (0.17, 0.05), 10, verdict.AGREES),
        ("adding-200-ornn-128", (0.05, 0.13), 10, verdict.AGREES),
        ("adding-200-ornn-128", (0.17, 0.17), 10, verdict.MISSED),
        ("adding-750-eurnn-512", (0.9, 0.17), 1, verdict.MET),
        ("adding-750-eurnn-512", (0.17, 0.17), 1, verdict.SHORT),
    ],
)
def test_verdicts_on_a_curve(
    preset: str, losses: tuple[float, float], epochs: float, expected: str, tmp_path: Path, runs: SimpleNamespace
) -> None:
    run = runs.make(tmp_path / "run", whole(preset), steps=100)
    rows = [{"step": 50 * k, "split": "test", "loss": y, "mse": y} for k, y in enumerate(losses, start=1)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    summary = json.loads((run / "summary.json").read_text())
    final = {"test": {"loss": losses[-1], "mse": losses[-1]}}
    (run / "summary.json").write_text(json.dumps({**summary, "epochs": epochs, "final": final}))
    numbers = collect(tmp_path).numbers(ITEMS["fig-adding"])
    assert next(n for n in numbers if n.preset.name == preset and n.measure == "MSE").verdict == expected


@pytest.mark.parametrize(
    ("loss", "steps", "expected", "cells"),
    [
        (0.0204, 10_000, verdict.AGREES, "**0.0204**, at the baseline as published |  | direction agrees, one seed"),
        (0.0204, 3_000, verdict.SHORT, ""),
        (0.0001, 10_000, verdict.MET, "**1.00e-4** |  | met or beaten, one seed"),
    ],
)
def test_who_fails_as_published_agrees_and_one_seed_is_called_one(
    loss: float, steps: int, expected: str, cells: str, tmp_path: Path, runs: SimpleNamespace
) -> None:
    run = runs.make(tmp_path / "run", whole("copying-1000-lstm-68"), steps=steps)
    summary = json.loads((run / "summary.json").read_text())
    (run / "summary.json").write_text(json.dumps(summary | {"baseline": 0.0204, "final": {"test": {"loss": loss}}}))
    found = collect(tmp_path)
    assert next(n for n in found.numbers(ITEMS["fig-copying"]) if n.values).verdict == expected
    assert cells in tables.summary(found)


def test_every_claim_can_be_tested() -> None:
    said = [p for preset in presets().values() for p in preset.published]
    assert {p.claim for p in said if p.value is None} == set(verdict.CLAIMS)
    assert all(not p.claim for p in said if p.value is not None)


def test_settings_beyond_the_paper_stand_beside_its_figure(
    tmp_path: Path, runs: SimpleNamespace, dom: Callable[[str], Any]
) -> None:
    for seed, accuracy in ((1, 0.94), (2, 0.95), (3, 0.96)):
        config = whole("pmnist-scornn-170-recipe", seed)
        recorded(tmp_path / f"s{seed}", runs, config, accuracy, accuracy + 0.01, 20)
    found = collect(tmp_path)
    assert found.others == []
    number = next(n for n in found.numbers(ITEMS["table-mnist"], beyond=True) if n.values)
    assert number.verdict == verdict.MET
    row = next(line for line in tables.table(found).splitlines() if line.startswith("| permuted"))
    cells = "permuted MNIST: accuracy | scoRNN n=170, other rates | 0.943 | 0.95 ± 0.01 | **0.96 ± 0.01**"
    assert row == f"| {cells} | met or beaten |"
    whole_row = next(line for line in tables.summary(found).splitlines() if line.startswith("| permuted"))
    assert "| 0.95 ± 0.01 | **0.96 ± 0.01** | met or beaten | beyond: 20 epochs; seeds 1, 2, 3 | twice" in whole_row
    text = dom(reproduction.render(found)).text
    assert "Beyond the paper: the same problem, set otherwise" in text
    assert "not run 74" in text
    assert "0.985 (scoRNN n=512)" in reproduction.render(collect(ROOT / "results"), [ITEMS["table-mnist"]])


def test_a_page_of_one_item_lists_that_item_and_says_why_norms_start_higher() -> None:
    text = reproduction.render(collect(ROOT / "results"), [ITEMS["fig-gradients"]])
    assert "divided once more by the 50 samples of the batch it is 0.008055" in text
    assert "Copying problem" not in text


def test_the_readme_and_the_results_page_are_what_the_results_make() -> None:
    found = collect(ROOT / "results")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert record.with_table(readme, tables.table(found)) == readme, "run `scornn reproduce record`"
    assert (ROOT / "results" / "README.md").read_text(encoding="utf-8") == tables.summary(found)


def test_recorded_files_are_small() -> None:
    for file in (ROOT / "results").rglob("*"):
        if file.is_file():
            assert file.stat().st_size <= 1_000_000, file
            assert file.suffix != ".safetensors" or file.name == "weights.safetensors"
            assert file.name != "metrics.jsonl" or file.stat().st_size <= record.LARGEST
