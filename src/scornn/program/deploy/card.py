"""The model card: what a network is, what it was trained on, what it reached, and what it takes to run it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from scornn.nn.catalogue import MODELS, parameter_count
from scornn.program.deploy.network import Network
from scornn.program.plugins import without_places
from scornn.program.train.provenance import versions
from scornn.program.train.weights import Stored

DATA = {
    "copying": "drawn by the program; no licence needed",
    "adding": "drawn by the program; no licence needed",
    "mnist": "MNIST (LeCun, Cortes and Burges), CC BY-SA 3.0",
    "fashion": "Fashion-MNIST (Zalando Research), MIT",
    "timit": "TIMIT (LDC93S1), licensed by the Linguistic Data Consortium; not redistributed",
    "iban": "Iban speech corpus (openslr.org, resource 24), CC BY-SA 2.0 FR",
    "folder": "sound files of the user; their licence is not known to the program",
}

BEGIN = "---\nlibrary_name: scornn"
"""How every card begins."""


def text(network: Network, file: str, needs: str, error: float | None = None) -> str:
    """The card of an exported file, in Markdown with the header that model hubs read."""
    stored, task = network.stored, network.task
    config = without_places(stored.config)
    model = MODELS[stored.model.name]
    orthogonality = getattr(network.layer, "orthogonality_error", lambda: None)()
    states = "(T, B, p)" if task.read == "all" else "(B, p)"
    which = "averaged" if stored.weights == "average" else "raw"
    facts = {
        "file": f"`{file}`, which needs {needs}",
        "model": f"{model.label} ({model.source}), n = {stored.model.hidden}",
        "task": task.name,
        "input": f"`x` (T, B, m) with m = {task.input_size}",
        "output": f"`y` {states} with p = {task.output_size}",
        "first state": "learned; in the metadata of an ONNX file" if network.layer.learn_h0 else "zero",
        "weights": f"{which}, {_when(stored)}step {stored.step:,}",
        "parameters": f"{parameter_count(network):,}",
        "‖WᵀW − I‖_F": "not constrained" if orthogonality is None else f"{orthogonality:.3g}",
        "seed": str(stored.config.get("seed")),
        "data": licence(config["task"]),
        "checked": "no" if error is None else f"in a fresh process at other T and B; largest difference {error:.2g}",
        "versions": ", ".join(f"{name} {version}" for name, version in versions().items()),
    }
    tags = ", ".join(dict.fromkeys(("scornn", model.name, task.name)))
    lines = [BEGIN, f"tags: [{tags}]", "---", ""]
    lines += [f"# {model.label} on {task.name}", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {value} |" for name, value in facts.items()]
    lines += ["", *_figures(stored, which), "## Config", "", "```json"]
    return "\n".join([*lines, json.dumps(config, indent=2, ensure_ascii=False), "```", ""])


def _when(stored: Stored) -> str:
    if stored.changed:
        return "changed after "
    return "of the best evaluation, " if stored.best else "of "


def licence(task: Mapping[str, Any]) -> str:
    """Whose the data of a task table is."""
    kind = str(task.get("corpus") or task.get("dataset") or task.get("name"))
    return DATA.get(kind, "not known to the program")


def _figures(stored: Stored, which: str) -> list[str]:
    """The figures of the run with these weights, raw or averaged: its best evaluation, and its last if it is theirs."""
    summary, seed, rows = stored.summary, stored.config.get("seed"), []
    found_with = summary if which == "raw" else dict(summary.get("average") or {})
    last = found_with.get("final") if summary.get("steps") == stored.step else None
    for split, metrics in dict(last or {}).items():
        rows += [f"| {name} | {split}, last | {value:.6g} | {seed} |" for name, value in dict(metrics).items()]
    for key, label in (("best", "best"), ("best_by_valid", "best by validation")):
        found = found_with.get(key)
        if isinstance(found, Mapping) and isinstance(found.get("value"), int | float):
            where = f"{found.get('split')}, {label}, step {found.get('step')}"
            rows.append(f"| {summary.get('headline')} | {where} | {found['value']:.6g} | {seed} |")
    if not rows:
        return ["No figures were stored with the weights.", ""]
    return [f"## Figures of the {which} weights", "", "| figure | of | value | seed |", "|---|---|---|---|", *rows, ""]
