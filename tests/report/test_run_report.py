"""The page of some runs: what it shows, what it tolerates, and that nothing in it can act."""

import json
import re
import shutil
import subprocess

import pytest

from scornn.errors import DataError
from scornn.program.cli import main as program
from scornn.program.report import curves, run_report
from scornn.program.report.run_report import report
from scornn.program.report.runs import find, read
from scornn.program.report.settings import problems

HOSTILE = '</script><script>alert(1)</script>"><img src=x onerror=alert(2)>&amp;$x_{1'


@pytest.fixture(scope="module")
def several(tmp_path_factory, runs):
    tmp_path = tmp_path_factory.mktemp("several")
    for seed in (1, 2, 3):
        runs.make(tmp_path / f"sco-{seed}", runs.config(seed=seed))
    runs.make(tmp_path / "lstm", runs.config(model="lstm", hidden=68), learns=False)
    runs.make(tmp_path / "adding", runs.config("adding", hidden=170))
    runs.add_audio(runs.make(tmp_path / "deep" / "speech", runs.config("speech", hidden=224)))
    return tmp_path


@pytest.fixture(scope="module")
def several_page(several):
    return report([several])


def test_page_is_whole_and_shows_every_part(several_page, dom):
    page = dom(several_page)
    assert page.open == []
    figures = [a for a in page.named("svg") if a.get("role") == "img"]
    labels = " ".join(a["aria-label"] for a in figures)
    # copying 4 panels + spectrum, adding 3 + spectrum, speech 3 + spectrum + 2 × 2 spectrograms
    assert len(figures) == 5 + 4 + 8
    assert "scoRNN n=190 ends at" in labels
    assert "LSTM n=68 ends at" in labels
    assert "baseline 0.02039 at 0.0204" in labels
    assert "n·eps, n = 190" in labels
    assert "eigenvalues of W and the unit circle" in labels
    assert "mean of 3 seeds" in page.text
    assert "Copying, T = 1000" in page.text
    assert len(page.named("audio")) == 4
    assert all(a["src"].startswith("data:audio/wav;base64,UklGR") for a in page.named("audio"))
    assert page.text.index("Settings that differ") < page.text.index("Settings that all runs share")


def test_what_should_grow_has_a_linear_axis(tmp_path, runs, monkeypatch):
    """A recall of nothing and then all spans decades, and only the loss shows more in them."""
    path = runs.make(tmp_path / "run", runs.config(), steps=100)
    rows = [
        {"step": s, "epoch": 0, "split": "test", "loss": l, "recall": r} for s, l, r in ((50, 1, 1e-3), (100, 1e-3, 1))
    ]
    (path / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    seen = []
    drawn = run_report.page.panels
    monkeypatch.setattr(run_report.page, "panels", lambda panels: seen.extend(curves.agreed(panels)) or drawn(panels))
    report([path])
    assert {p.ylabel: p.axis for p in seen if p.title.startswith("Test")} == {"loss": "log", "recall": "linear"}


def test_page_holds_all_it_needs(several_page, dom):
    page, parsed = several_page, dom(several_page)
    for tag, attributes in parsed.tags:
        for name, value in attributes.items():
            if name in ("src", "href", "xlink:href", "srcset", "data", "poster"):
                assert re.match(r"data:|#", value), (tag, name, value)
    assert not re.search(r"url\((?!#)|@import|//[a-z]", re.sub(r"base64,[\w+/=\s]+", "", page))
    ids = [a["id"] for _, a in parsed.tags if "id" in a]
    assert len(ids) == len(set(ids))
    references = re.findall(r'(?:href="#|url\(#)([^")]+)', page)
    assert references
    assert set(references) <= set(ids)


def test_same_runs_same_page(several, several_page):
    assert report([several]) == several_page


def test_names_and_values_cannot_act(tmp_path, runs, dom):
    config = runs.config()
    config["name"] = config["model"]["name"] = config["task"]["name"] = HOSTILE
    config["model"]["options"] = {HOSTILE: HOSTILE}
    (tmp_path / "plain").mkdir()
    run = runs.make(tmp_path / "plain" / "<b>run", config)
    summary = json.loads((run / "summary.json").read_text())
    summary |= {"headline": HOSTILE, "final": {"test": {HOSTILE: 0.5, "loss": 1.0}}}
    (run / "summary.json").write_text(json.dumps(summary))
    with open(run / "metrics.jsonl", "a") as file:
        for step in (10, 20):
            file.write(json.dumps({"step": step, "split": "test", HOSTILE: 0.5, "orthogonality": 1e-6}) + "\n")
    runs.add_audio(run, ('"><script>alert(3)<',))
    page = report([tmp_path])
    parsed = dom(page)
    assert parsed.open == []
    assert not parsed.named("script")
    assert not parsed.named("img")
    assert not parsed.named("b")
    assert not [a for _, attributes in parsed.tags for a in attributes if a.startswith("on")]
    assert HOSTILE in parsed.text
    assert any(HOSTILE in str(a.get("aria-label")) for a in parsed.named("svg"))
    assert "default-src 'none'" in page
    page.encode()


def test_each_problem_is_explained_and_lengths_go_by_number(tmp_path, runs):
    for length in (1000, 10000, 2000):
        config = runs.config()
        config["task"] = {**config["task"], "length": length}
        runs.make(tmp_path / f"copying-{length}", config, steps=100)
    page = report([tmp_path])
    places = [page.index(f"Copying, T = {length}</h2>") for length in (1000, 2000, 10000)]
    assert places == sorted(places)
    assert "then 10,000 blanks; after a marker they are to be repeated" in page
    assert "Recall is the share of the ten symbols" in page


def test_averaged_weights_are_a_second_curve_and_column(tmp_path, runs, dom):
    run = runs.make(tmp_path / "run", runs.config("adding", hidden=170))
    with open(run / "metrics.jsonl", "a") as file:
        for step in (1000, 2000):
            row = {"step": step, "split": "test", "weights": "average", "loss": 0.0123, "mse": 0.0123}
            file.write(json.dumps(row) + "\n")
    summary = json.loads((run / "summary.json").read_text())
    best = {"step": 2000, "split": "test", "value": 0.0119}
    average = {"final": {"test": {"loss": 0.0123, "mse": 0.0123}}, "best": best}
    (run / "summary.json").write_text(json.dumps({**summary, "average": average}))
    page = dom(report([run]))
    assert "averaged weights: best 0.0119" in page.text
    labels = " ".join(str(a.get("aria-label")) for a in page.named("svg"))
    assert "scoRNN n=170, averaged weights ends at 0.0123" in labels
    raw = summary["final"]["test"]["mse"]
    assert f"scoRNN n=170 ends at {raw:.3g}, scoRNN n=170, averaged weights" in labels
    table = page.text.partition("Results")[2]
    assert table.index("best averaged") < table.index("parameters")


def test_rates_that_differ_say_which_they_are(tmp_path, runs):
    for name, rest, recurrent in (("a", 1e-3, 1e-4), ("b", 2e-3, 2e-4)):
        config = runs.config()
        config["optimizer"] = {"rest": {"kind": "adam", "lr": rest}, "recurrent": {"kind": "adam", "lr": recurrent}}
        runs.make(tmp_path / name, config, steps=100)
    page = report([tmp_path])
    assert "scoRNN n=190, rate 0.002, rate of A 0.0002" in page


def test_runs_on_other_data_are_no_seeds_of_one_setting(tmp_path, runs):
    for seed, folder in ((1, "/winter"), (2, "/winter"), (1, "/summer")):
        runs.make(tmp_path / f"{folder[1:]}-{seed}", runs.config(seed=seed, data=folder), steps=100)
    settings = problems([read(path) for path in find([tmp_path])])[0].settings
    assert [(setting.label, len(setting.runs)) for setting in settings] == [
        ("scoRNN n=190, data /summer", 1),
        ("scoRNN n=190, data /winter", 2),
    ]


def test_data_are_known_by_their_fingerprint_where_it_is_there_and_by_their_folder_where_not(tmp_path, runs):
    for seed, folder, data in ((1, "/a", {"x": "1"}), (2, "/b", {"x": "1"}), (3, "/c", {"x": "2"}), (4, "/a", None)):
        path = runs.make(tmp_path / str(seed), runs.config(seed=seed, data=folder), steps=100)
        if data:
            summary = json.loads((path / "summary.json").read_text())
            (path / "summary.json").write_text(json.dumps({**summary, "data": data}))
    settings = problems([read(path) for path in find([tmp_path])])[0].settings
    assert [[run.config["seed"] for run in setting.runs] for setting in settings] == [[1, 2, 4], [3]]


def test_seeds_of_data_that_are_made_from_the_seed_are_one_setting(tmp_path):
    """Trained, not made up: what a run notes of its data is the task's own business."""
    small = ["--length", "5", "--hidden", "4", "--iterations", "1", "--quiet", "--threads", "1"]
    for seed in ("1", "2"):
        assert program(["train", "copying", *small, "--seed", seed, "--out", str(tmp_path / seed)]) == 0
    settings = problems([read(path) for path in find([tmp_path])])[0].settings
    assert [len(setting.runs) for setting in settings] == [2]


def test_a_run_without_a_summary_leaves_what_people_compare_to_the_others(tmp_path, runs):
    done = runs.make(tmp_path / "b-done", runs.config(seed=1), steps=100)
    young = tmp_path / "a-young"
    shutil.copytree(done, young)
    (young / "summary.json").unlink()
    (young / "config.json").write_text(json.dumps(runs.config(seed=2, hidden=8)))
    (young / "metrics.jsonl").write_text("")
    (problem,) = problems([read(path) for path in find([tmp_path])])
    assert [run.name for run in problem.runs] == ["a-young", "b-done"]
    assert problem.reference.headline == "recall"
    assert "best recall" in report([tmp_path])


def test_runs_of_two_versions_are_seeds_of_one_setting(tmp_path, runs):
    before, now = runs.config(seed=1), runs.config(seed=2, plugins=[], start=None, stop_when={})
    before["optimizer"] |= {"halve_every": 400}
    now["optimizer"] |= {"schedule": {"kind": "halving", "warmup": 0, "every": 400}}
    for name, config in (("before", before), ("now", now)):
        runs.make(tmp_path / name, config, steps=100)
    settings = problems([read(path) for path in find([tmp_path])])[0].settings
    assert [(setting.label, len(setting.runs)) for setting in settings] == [("scoRNN n=190", 2)]


def test_a_seed_that_ran_twice_is_two_runs_and_not_two_seeds(tmp_path, runs):
    for name, steps in (("first", 100), ("second", 200)):
        runs.make(tmp_path / name, runs.config(seed=1), steps=steps)
    page = report([tmp_path])
    assert "mean of 2 runs of one seed" in page
    assert "standard deviation" not in page
    runs.make(tmp_path / "third", runs.config(seed=2), steps=200)
    assert "mean of 3 runs, 2 seeds, standard deviation" in report([tmp_path])


def test_figures_of_a_run_that_goes_on_are_those_of_its_newest_evaluation(tmp_path, runs, dom):
    """Its summary is as old as its last checkpoint."""
    path = runs.make(tmp_path / "run", runs.config("adding", hidden=170), steps=1000, finished=False)
    old = json.loads((path / "summary.json").read_text())["final"]["test"]["mse"]
    rows = [{"step": s, "epoch": 2, "split": "test", "loss": l, "mse": l} for s, l in ((1500, 0.001), (2000, 0.25))]
    rows = [{**row, "orthogonality": 3e-6, "seconds": 7200.0} for row in rows]
    with open(path / "metrics.jsonl", "a") as file:
        file.write("".join(json.dumps(row) + "\n" for row in rows))
    run = read(path)
    assert (run.final("test", "mse"), run.best(), run.steps) == (0.25, 0.001, 2000)
    assert (run.last("orthogonality"), run.last("seconds")) == (3e-6, 7200.0)
    text = dom(report([path])).text
    assert f"{old:.4g}" not in text.partition("Configuration and summary")[0]
    assert "2,000 steps, 2 h 0 min, not finished" in text
    summary = json.loads((path / "summary.json").read_text())
    (path / "summary.json").write_text(json.dumps({**summary, "finished": True}))
    assert read(path).final("test", "mse") == old


def test_the_epoch_chosen_on_validation_is_the_newest_too(tmp_path, runs):
    path = runs.make(tmp_path / "run", runs.config("adding", hidden=170), steps=1000, finished=False)
    found = {500: (0.2, 0.3), 1500: (0.1, 0.4), 2000: (0.15, 0.35)}
    rows = [
        {"step": step, "split": split, "loss": error, "mse": error}
        for step, errors in found.items()
        for split, error in zip(("valid", "test"), errors, strict=True)
    ]
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    summary = json.loads((path / "summary.json").read_text())
    chosen = {"best_by_valid": {"step": 500, "value": 0.3}}
    (path / "summary.json").write_text(json.dumps({**summary, **chosen}))
    assert read(path).chosen() == 0.4


def test_a_run_that_diverged_says_so(tmp_path, runs):
    run = tmp_path / "run"
    small = ["--length", "5", "--hidden", "4", "--iterations", "40", "--threads", "1", "--quiet", "--model", "rnn"]
    wild = ["--set", "optimizer.rest.kind=sgd", "--set", "optimizer.rest.lr=10", "--set", "optimizer.recurrent.lr=10"]
    assert program(["train", "adding", *small, *wild, "--out", str(run)]) == 5
    assert "it diverged: not finite at step" in report([run])
    with open(run / "log.txt", "a") as log:
        log.write("2026-01-01T00:00:00+00:00 training from step 0, code 1\n")
    assert "it diverged" not in report([run])


def test_every_baseline_of_a_panel_is_marked(tmp_path, runs, monkeypatch):
    for k, baseline in enumerate((0.5, 0.25, 0.5)):
        path = runs.make(tmp_path / str(k), runs.config(hidden=8 + k), steps=100)
        summary = json.loads((path / "summary.json").read_text())
        (path / "summary.json").write_text(json.dumps({**summary, "baseline": baseline}))
    young = runs.make(tmp_path / "young", runs.config(hidden=20), steps=100)
    (young / "summary.json").unlink()
    seen = []
    drawn = run_report.page.panels
    monkeypatch.setattr(run_report.page, "panels", lambda panels: seen.extend(panels) or drawn(panels))
    report([tmp_path])
    marks = next(panel.marks for panel in seen if panel.title == "Training loss")
    assert marks == [("baseline\n0.5", 0.5), ("baseline\n0.25", 0.25)]
    (problem,) = problems([read(path) for path in find([tmp_path])])
    assert {run.name: run.baseline for run in problem.runs} == {"0": 0.5, "1": 0.25, "2": 0.5, "young": None}


def test_links_to_runs_are_followed_and_not_in_circles(tmp_path, runs):
    runs.make(tmp_path / "far" / "deep" / "run", runs.config(), steps=100)
    (tmp_path / "here" / "below").mkdir(parents=True)
    (tmp_path / "here" / "run").symlink_to(tmp_path / "far" / "deep" / "run")
    (tmp_path / "here" / "again").symlink_to(tmp_path / "far")
    (tmp_path / "here" / "below" / "up").symlink_to(tmp_path / "here")
    (tmp_path / "here" / "broken").symlink_to(tmp_path / "nowhere")
    (found,) = find([tmp_path / "here"])
    assert found.resolve() == tmp_path / "far" / "deep" / "run"


def test_two_models_of_a_user_differ_in_their_dashes(tmp_path, runs):
    for name in ("mine", "yours"):
        runs.make(tmp_path / name, runs.config(model=name), steps=100)
    lines = [setting.line for setting in problems([read(path) for path in find([tmp_path])])[0].settings]
    assert lines[0].dash != lines[1].dash


def test_what_is_missing_or_damaged_is_said(tmp_path, runs):
    cut = runs.make(tmp_path / "cut", runs.config(), finished=False)
    lines = (cut / "metrics.jsonl").read_text().splitlines()
    lines[2] = "\x00\xff"
    lines += ["[1, 2]", '{"step": 2010, "split": "train", "loss": NaN}', '{"step": 20']
    (cut / "metrics.jsonl").write_text("\n".join(lines))
    (cut / "spectrum.json").write_text('{"eigenvalues": [[1]]}')
    young = tmp_path / "young"
    young.mkdir()
    (young / "config.json").write_text(json.dumps(runs.config(seed=7)))
    torn = tmp_path / "torn"
    torn.mkdir()
    (torn / "summary.json").write_text('{"task": ')
    (torn / "metrics.jsonl").write_text("")
    page = report([tmp_path])
    assert "metrics.jsonl: 3 damaged lines left out (line 3, 241, 243)" in page
    assert "1 measured losses are not finite" in page
    assert "the run is not finished" in page
    assert "spectrum.json is damaged" in page
    assert "young: no metrics.jsonl: there are no curves; no summary.json." in page
    assert "torn: no config.json; metrics.jsonl holds no measurement yet; summary.json is damaged" in page


def test_what_is_no_run_is_named(tmp_path, runs):
    with pytest.raises(DataError, match=r"nowhere: expected a run directory.*found nothing"):
        report([tmp_path / "nowhere"])
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="found a file"):
        report([tmp_path / "file"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"empty: no run here: expected config.json, metrics.jsonl, summary.json"):
        report([tmp_path / "empty"])


def test_a_run_given_twice_counts_once(tmp_path, runs):
    run = runs.make(tmp_path / "run", runs.config())
    assert report([run, tmp_path, tmp_path / "." / "run"]) == report([run])


def test_command_writes_the_page_in_one_piece(tmp_path, runs, capsys):
    run = runs.make(tmp_path / "run", runs.config())
    out = tmp_path / "page.html"
    out.write_text("old")
    assert program(["report", str(run), "--out", str(out), "--title", "Ours & theirs"]) == 0
    assert "<title>Ours &amp; theirs</title>" in out.read_text()
    assert str(out) in capsys.readouterr().out
    for arguments, code, said in (
        ([], 2, "no RUN given"),
        ([str(run), "--utterances", "-1"], 2, "--utterances -1: expected"),
        ([str(run), "--out", str(tmp_path / "nowhere" / "page.html")], 6, "nowhere"),
    ):
        assert program(["report", *arguments]) == code
        assert said in capsys.readouterr().err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["page.html", "run"]


@pytest.mark.skipif(shutil.which("chromium") is None, reason="Chromium is not installed")
@pytest.mark.parametrize("name", ["page", "broken"])
def test_browser_draws_the_figures_without_a_complaint(tmp_path, several_page, name):
    """The page, and as a control one with a script that its policy forbids."""
    page = several_page
    if name == "broken":
        page = page.replace("<main>", "<main><script>document.title = 'ran'</script>")
    path = tmp_path / f"{name}.html"
    path.write_text(page)
    result = subprocess.run(
        ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync",
         "--enable-logging=stderr", f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", path.as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    complaints = [line for line in result.stderr.splitlines() if "CONSOLE" in line]
    assert bool(complaints) == (name == "broken"), complaints
    assert "<title>ran" not in result.stdout
    figures = re.findall(r'<svg viewBox="[^"]*" role="img".*?</svg>', result.stdout, re.DOTALL)
    assert len(figures) == 17
    assert all(figure.count("<path") > 3 and "<text" in figure for figure in figures)
