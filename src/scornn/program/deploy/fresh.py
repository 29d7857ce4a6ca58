"""Runs an exported file in a process of its own, with nothing imported but what the file needs.

``python fresh.py KIND FILE CASES RESULTS [PLUGIN ...]``: CASES is a safetensors file with the inputs ``{case}.{name}``;
RESULTS gets the outputs ``{case}.{number}``. This file is run by its path, so that scornn itself is imported only for
the kinds that need it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file


def main(kind: str, file: str, cases: str, results: str, *plugins: str) -> None:
    inputs: dict[str, dict[str, Any]] = {}
    for key, value in sorted(load_file(cases).items()):
        case, name = key.split(".")
        inputs.setdefault(case, {})[name] = value
    open_it = {"onnx": _onnx, "pt2": _pt2, "safetensors": _safetensors}[kind.removesuffix("-plain")]
    run = open_it(file, kind, plugins)
    made = {}
    for case, given in inputs.items():
        for number, output in enumerate(run(given)):
            made[f"{case}.{number}"] = np.ascontiguousarray(output)
    save_file(made, results)


Runner = Callable[[dict[str, Any]], Sequence[Any]]


def _onnx(file: str, kind: str, plugins: Sequence[str]) -> Runner:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    return lambda given: session.run(None, given)


def _pt2(file: str, kind: str, plugins: Sequence[str]) -> Runner:
    if kind == "pt2":
        import scornn.ops  # noqa: F401, enters the operators
    elif "scornn" in sys.modules:
        raise RuntimeError("scornn was imported")
    import torch

    program = torch.export.load(file).module()

    def run(given: dict[str, Any]) -> list[Any]:
        with torch.no_grad():
            return [output.numpy() for output in program(*_tensors(given))]

    return run


def _safetensors(file: str, kind: str, plugins: Sequence[str]) -> Runner:
    import torch

    import scornn

    network = scornn.load(file, plugins=plugins)

    def run(given: dict[str, Any]) -> list[Any]:
        with torch.no_grad():
            return [network(*_tensors(given)).numpy()]

    return run


def _tensors(given: dict[str, Any]) -> list[Any]:
    import torch

    return [torch.from_numpy(given[name]) for name in ("x", "h0", "c0") if name in given]


if __name__ == "__main__":
    main(*sys.argv[1:])
