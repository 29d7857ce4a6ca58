"""The record: what is copied of a run, what is made from it, and that the README is what it makes."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from scornn.cli import main
from scornn.errors import DataError, UsageError
from scornn.paper import match
from scornn.paper.items import ITEMS
from scornn.paper.presets import presets
from scornn.paper.reproduce import Request, reproduce
from scornn.report import record, reproduction
from scornn.report.results import collect

ROOT = Path(__file__).resolve().parents[2]


def whole(preset: str, seed: int = 5544, **more: Any) -> dict[str, Any]:
    """The config of a run of a preset, as the trainer writes it."""
    return {**match.whole(preset), "seed": seed, "data": "/home/somebody/data", **more}


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
    assert (results / "copying-1000-scornn-190-s1" / "spectrum.json").is_file()
    assert not (results / "copying-1000-lstm-68-s5544" / "spectrum.json").exists()


def test_names_in_the_record() -> None:
    assert record.name_of(whole("mnist-scornn-170", 3)) == "mnist-scornn-170-s3"
    speech = whole("timit-lstm-84")
    assert record.name_of({**speech, "task": {**speech["task"], "corpus": "iban"}}) == "iban-lstm-84-s5544"
    other = {"task": {"name": "mnist", "permuted": True}, "model": {"name": "gru", "hidden": 5}, "seed": 1}
    assert record.name_of(other) == "pmnist-gru-5-s1"
    assert record.name_of({**other, "name": "mine-s1"}) == "mine-s1"
    with pytest.raises(DataError, match="no name of a directory"):
        record.name_of({**other, "name": "../mine"})


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
    assert scornn.deviation is not None
    assert scornn.budget == "paper: 10,000 iterations"
    assert numbers["copying-1000-lstm-68", "recall"].budget == "short: 4,000 of 10,000 iterations"
    assert numbers["copying-2000-scornn-190", "recall"].budget == "missing"
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
    assert "2 of the 80 rows and curves have a result here" in page.text
    assert "Missing: 8 of 10." in page.text
    assert "Beyond the paper" in page.text
    assert "3 seeds" in page.text
    assert "9.26" in page.text  # published, with nothing beside it
    assert page.named("script") == []


def test_the_table_of_the_readme(results: Path, tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{record.BEGIN}\nold\n{record.END}\nafter\n")
    record.rebuild(results, readme)
    text = readme.read_text()
    assert text.startswith(f"before\n{record.BEGIN}\n| problem |")
    assert text.endswith(f"fig-copying.svg)\n{record.END}\nafter\n")
    assert "| copying, T = 1000 | scoRNN n=190 | cross-entropy | converges immediately to zero" in text
    assert "paper: 10,000 iterations; 3 seeds" in text
    assert text.count("](results/figures/") == 1
    assert "old" not in text
    with pytest.raises(UsageError, match="no place for the table"):
        record.with_table("nothing", "table")


def test_a_run_made_for_another_figure_is_not_in_the_table(tmp_path: Path, runs: SimpleNamespace) -> None:
    runs.make(tmp_path / "made", whole("copying-1000-scornn-190"), steps=99)
    record.record([tmp_path / "made"], tmp_path / "results", None)
    assert "scoRNN" not in record.table(collect(tmp_path / "results"))


def test_an_open_corpus_is_not_set_beside_the_papers(tmp_path: Path, runs: SimpleNamespace) -> None:
    config = whole("timit-scornn-224")
    config["task"] = {**config["task"], "corpus": "iban"}
    run = runs.make(tmp_path / "results" / "speech", config, steps=100)
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    rows += [{"step": 100, "split": split, "loss": 9.0, "mse": 9.0, "mse_padded": 3.0} for split in ("valid", "test")]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    summary = json.loads((run / "summary.json").read_text())
    (run / "summary.json").write_text(json.dumps({**summary, "best_by_valid": {"step": 100, "value": 9.0}}))
    found = collect(tmp_path / "results")
    assert "| speech (iban) | scoRNN n=224 | eval MSE | 8.5 on TIMIT | **3** |" in record.table(found)
    assert "On the corpus iban, not on TIMIT" in reproduction.render(found)


def test_figures_of_the_record(results: Path) -> None:
    assert {p.name for p in (results / "figures").iterdir()} == {"fig-copying.svg", "fig-copying.png"}
    assert "scoRNN" in (results / "README.md").read_text() or "scornn" in (results / "README.md").read_text()


def test_a_smoke_run_is_no_result(tmp_path: Path) -> None:
    request = Request(out=tmp_path / "out", only=("adding-200-lstm-60",), quiet=True)
    reproduce([ITEMS["fig-adding"]], request)
    with pytest.raises(UsageError, match="is a smoke run"):
        record.record([tmp_path / "out"], tmp_path / "results", None)
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
    assert timing.budget == "40 steps timed, scaled to 1,100"
    assert "a processor" in (tmp_path / "results" / "README.md").read_text()
    assert "minutes per epoch" in reproduction.render(found)


def test_remarks_are_shown_beside_their_row(results: Path) -> None:
    remarks = {"copying-1000-lstm-68": "The forget bias was tried at -4 too."}
    (results / "remarks.json").write_text(json.dumps(remarks))
    assert "LSTM n=68: The forget bias was tried at -4 too." in reproduction.render(collect(results))


def test_the_readme_and_the_results_page_are_what_the_results_make() -> None:
    found = collect(ROOT / "results")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert record.with_table(readme, record.table(found)) == readme, "run `scornn reproduce record`"
    assert (ROOT / "results" / "README.md").read_text(encoding="utf-8") == record.summary(found)


def test_recorded_files_are_small() -> None:
    for file in (ROOT / "results").rglob("*"):
        if file.is_file():
            assert file.stat().st_size <= 1_000_000, file
            assert file.suffix != ".safetensors"
            assert file.name != "metrics.jsonl" or file.stat().st_size <= record.LARGEST
