"""Run directories made up for the tests of the report: plausible in shape, and the result of no training."""

import json
import math
import wave
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest


def config(
    task: str = "copying", model: str = "scornn", hidden: int = 190, seed: int = 1, **more: Any
) -> dict[str, Any]:
    tasks = {
        "copying": {"name": "copying", "length": 1000, "batch": 20},
        "adding": {"name": "adding", "length": 200, "batch": 50},
        "mnist": {"name": "mnist", "permuted": False, "dataset": "mnist"},
        "speech": {"name": "speech", "corpus": "iban", "batch": 28},
    }
    options = {"rho": hidden // 2} if model == "scornn" else {}
    rule = {"kind": "rmsprop", "lr": 1e-3, "flavour": "tf1"}
    return {
        "task": tasks[task],
        "model": {"name": model, "hidden": hidden, "options": options},
        "optimizer": {"rest": rule, "recurrent": {**rule, "lr": 1e-4}},
        "seed": seed,
        "steps": 2000,
        "threads": 2,
        **more,
    }


_TASKS: dict[str, tuple[str, str, float | None]] = {
    "copying": ("recall", "max", 10 * math.log(8) / 1020),
    "adding": ("mse", "min", 1 / 6),
    "mnist": ("accuracy", "max", None),
    "speech": ("mse", "min", None),
}


def make(path: Path, config: dict[str, Any], *, steps: int = 2000, learns: bool = True, finished: bool = True) -> Path:
    """Write config, metrics and summary, and a spectrum for scornn."""
    path.mkdir(parents=True)
    task, model, n = config["task"]["name"], config["model"]["name"], config["model"]["hidden"]
    headline, goal, baseline = _TASKS.get(task, ("loss", "min", None))
    rng = np.random.default_rng([config["seed"], n])
    start = (baseline or 1.0) * 1.05
    rows: list[dict[str, Any]] = []
    for step in range(10, steps + 1, 10):
        fall = 1 / (1 + math.exp((step - 700) / 110)) if learns else 0.985
        loss = start * (fall + 0.002) * math.exp(rng.normal(0, 0.12 if learns else 0.02))
        common = {"step": step, "epoch": step // 1000, "seconds": step * 0.031}
        rows.append({**common, "split": "train", "loss": loss})
        if step % 50 == 0:
            score = loss if goal == "min" else 1 - 0.85 * fall
            row = {**common, "split": "test", "loss": loss, headline: score}
            if model != "lstm":
                row["orthogonality"] = 4e-6 * math.exp(rng.normal(0, 0.1))
            rows.append(row)
    (path / "config.json").write_text(json.dumps(config))
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    tests = [row for row in rows if row["split"] == "test"]
    values = [row[headline] for row in tests]
    summary = {
        "task": task, "model": model, "parameters": 21764, "steps": steps, "epochs": 2, "finished": finished,
        "baseline": baseline, "headline": headline, "goal": goal,
        "final": {"test": {"loss": tests[-1]["loss"], headline: values[-1]}},
        "best": {"step": steps, "epoch": 2, "split": "test", "value": max(values) if goal == "max" else min(values)},
        "orthogonality": tests[-1].get("orthogonality"), "seconds": steps * 0.031, "seconds_per_step": 0.031,
    }  # fmt: skip
    (path / "summary.json").write_text(json.dumps(summary))
    if model == "scornn":
        angles = rng.uniform(0, np.pi, n // 2)
        pairs = [[math.cos(a), s * math.sin(a)] for a in angles for s in (1, -1)]
        (path / "spectrum.json").write_text(json.dumps({"step": steps, "eigenvalues": pairs}))
    return path


def add_audio(run: Path, names: tuple[str, ...] = ("spk1_001", "spk1_002"), frames: int = 180) -> None:
    """Chirps for speech."""
    audio = run / "audio"
    audio.mkdir()
    for k, name in enumerate(names):
        seconds = np.arange(frames * 128) / 8000
        sound = np.sin(2 * np.pi * (300 + 350 * (k + 1) * seconds) * seconds) * np.hanning(seconds.size)
        windows = np.lib.stride_tricks.sliding_window_view(np.pad(sound, 128), 256)[::128][:frames]
        true = 10 * np.log10(1e-5 + np.abs(np.fft.rfft(windows * np.hanning(256))) ** 2)
        predicted = true + np.random.default_rng(k).normal(0, 4, true.shape)
        np.savez(audio / f"{name}.npz", true=true.astype(np.float32), predicted=predicted.astype(np.float32))
        for kind in ("true", "predicted"):
            with wave.open(str(audio / f"{name}.{kind}.wav"), "wb") as file:
                file.setnchannels(1)
                file.setsampwidth(2)
                file.setframerate(8000)
                file.writeframes((sound * 12000).astype("<i2").tobytes())
    files = {name: {"segsnr": 4.8, "stoi": 0.83, "pesq": 2.74} for name in names}
    scores = {"mean": {"segsnr": 4.8, "stoi": 0.83, "pesq": 2.74}, "files": files}
    (audio / "scores.json").write_text(json.dumps(scores))


class Dom(HTMLParser):
    """Tags with their attributes, text, and what was left open, of a page."""

    _VOID = ("meta", "link", "br", "img", "hr", "input")

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self._VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.tags if name == tag]


@pytest.fixture(scope="session")
def runs() -> SimpleNamespace:
    """``make``, ``config`` and ``add_audio``."""
    return SimpleNamespace(make=make, config=config, add_audio=add_audio)


@pytest.fixture(scope="session")
def dom() -> Callable[[str], Dom]:
    return Dom
