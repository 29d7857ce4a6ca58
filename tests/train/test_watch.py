"""The hook for other services: every record arrives, a watcher that fails costs no run, the pages' examples work."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from scornn.program.cli import main
from scornn.program.train.watch import WATCHERS, watcher

PAGE = Path(__file__).resolve().parents[2] / "docs" / "use.md"
EXAMPLES = dict(re.findall(r"^```py\n# (\S+)\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL))
RUN = ["train", "copying", "--length", "3", "--hidden", "4", "--threads", "1", "--tensorboard", "off", "--quiet"]
RUN += ["--set", "task.train_size=40", "--set", "task.test_size=20", "--set", "log_every=1"]


@pytest.fixture(autouse=True)
def nobody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCORNN_CACHE", str(tmp_path / "cache"))
    before = dict(WATCHERS)
    WATCHERS.clear()
    yield
    WATCHERS.clear()
    WATCHERS.update(before)


def lines(run: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(run, "metrics.jsonl").read_text().splitlines()]


def test_every_record_arrives_also_after_a_resume() -> None:
    seen: list[dict[str, Any]] = []
    events: list[str] = []

    @watcher
    @contextmanager
    def list_(run: Path, config: dict[str, Any]) -> Iterator[Any]:
        events.append(f"{run.name} {config['model']['hidden']}")
        yield seen.append
        events.append("closed")

    assert main([*RUN, "--iterations", "2", "--out", "run"]) == 0
    assert seen == lines("run")
    assert main(["resume", "run", "--iterations", "3", "--tensorboard", "off", "--quiet"]) == 0
    assert seen == lines("run")
    assert events == ["run 4", "closed"] * 2


def test_a_watcher_that_fails_costs_no_run(capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[int] = []

    @watcher
    @contextmanager
    def refuses(run: Path, config: dict[str, Any]) -> Iterator[Any]:
        raise OSError("no network")
        yield

    @watcher
    @contextmanager
    def breaks(run: Path, config: dict[str, Any]) -> Iterator[Any]:
        def write(record: dict[str, Any]) -> None:
            seen.append(record["step"])
            raise OSError("gone")

        yield write
        raise OSError("cannot close")

    assert main([*RUN, "--iterations", "2", "--out", "run"]) == 0
    said = capsys.readouterr().err
    assert re.search(r"watcher \S+refuses does not begin: OSError: no network", said)
    assert re.search(r"watcher \S+breaks gets no more records: OSError: gone", said)
    assert re.search(r"watcher \S+breaks did not close: OSError: cannot close", said)
    assert len(seen) == 1
    assert json.loads(Path("run/summary.json").read_text())["finished"] is True


@pytest.mark.parametrize("service", ["wandb", "mlflow"])
def test_the_pages_examples(service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the service's own package where it is installed, and what it keeps on this disk."""
    source = EXAMPLES[f"to_{service}.py"]
    compile(source, service, "exec")
    pytest.importorskip(service)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", Path("mlruns").absolute().as_uri())
    Path("plugin.py").write_text(source)
    assert main([*RUN, "--iterations", "2", "--out", "run", "--plugin", "plugin.py"]) == 0
    if service == "mlflow":
        runs = importlib.import_module("mlflow").search_runs(experiment_names=["scornn"], output_format="list")
        raw, average = lines("run")[-2:]
        expected = {"loss/test": raw["loss"], "loss/test-average": average["loss"]}
        assert [{name: run.data.metrics[name] for name in expected} for run in runs] == [expected]
    else:
        assert list(Path("run/wandb").glob("offline-run-*/*.wandb"))
