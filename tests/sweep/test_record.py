"""The sweeps on record: they can be read, and what the pages say about them is what they hold."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from scornn.program.sweep import record
from scornn.program.sweep.page import page

ROOT = Path(__file__).resolve().parents[2]
KEPT = sorted((ROOT / "results" / "sweeps").glob("*.json"))


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_a_record_reads_back_as_it_stands(path: Path) -> None:
    assert record.to_json(record.read(path)) == path.read_text()
    assert path.stat().st_size < 100_000


@pytest.mark.parametrize("path", [path for path in KEPT if path.stem.startswith("rho-")], ids=lambda path: path.stem)
def test_what_the_docs_say_about_rho(path: Path) -> None:
    found = record.read(path)
    said = (ROOT / "docs" / "commands" / "sweep.md").read_text(encoding="utf-8")
    (row,) = (line for line in said.splitlines() if f"`{path.stem}`" in line)
    cells = [cell.strip() for cell in row.strip("|").split("|")][1:]
    by_rho = {trial.values["model.options.rho"]: trial for trial in found.trials}
    figures = (by_rho["n/2"], found.best(1)[0])
    assert [re.search(r"[\d.]+$", cell)[0] for cell in cells] == [f"{trial.value:.4g}" for trial in figures]  # type: ignore[index]


def test_a_trial_has_one_colour_on_its_card_and_its_curve() -> None:
    text = page(record.read(ROOT / "results" / "sweeps" / "rho-mnist.json"))  # the second best, auto, has no curve
    swatches = re.findall(r"stroke:(var\(--c\d\)).{0,200}?(trial \d)", text, re.DOTALL)
    colours = {trial: {colour for colour, of in swatches if of == trial} for _, trial in swatches}
    assert len(swatches) > len(colours) == 5
    assert all(len(found) == 1 for found in colours.values()), colours


def test_a_page_names_the_best_settings_only_where_there_are_some() -> None:
    done = record.read(ROOT / "results" / "sweeps" / "rho-copying-200.json")
    begun = msgspec.structs.replace(done.trials[0], state="running", outcome="running", value=None)
    for trials, named in ((done.trials, True), ((begun,), False)):
        text = page(msgspec.structs.replace(done, directory="s", trials=trials))
        assert "scornn sweep resume s" in text
        assert ("scornn train --config s/best.json" in text) == named
