"""How fast a trained network runs: as it was trained, frozen, and exported to ONNX Runtime where that is installed."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import torch

from scornn.nn import SequenceModel, build
from scornn.program.analysis.bench import Step, shortest
from scornn.program.deploy.frozen import Frozen

MODELS = {"scornn": 170, "lstm": 128, "gru": 128}
"""At the sizes of the paper's pixel MNIST, and a GRU as the LSTM."""

SHAPES = {"one frame": (1, 1), "one sequence": (784, 1), "a batch": (784, 50)}
"""T and B; x has one number a step, and a head of 10 reads the last state."""


def measure(rounds: int) -> list[dict[str, Any]]:
    """Milliseconds of each way, the shortest of so many turns, for every model and shape."""
    rows = []
    for model, n in MODELS.items():
        for shape, (T, B) in SHAPES.items():
            with torch.no_grad():
                best = shortest(_ways(model, n, T, B), rounds)
            milliseconds = {way: 1e3 * seconds for way, seconds in best.items()}
            rows.append({"model": model, "n": n, "shape": shape, "T": T, "B": B, "milliseconds": milliseconds})
    return rows


def _ways(model: str, n: int, T: int, B: int) -> dict[str, Step]:
    network = SequenceModel(build(model, 1, n), 10, "last").eval()
    frozen, x = Frozen(network), torch.randn(T, B, 1)
    state = frozen.initial_state(B)
    ways: dict[str, Step] = {"network": lambda: network(x), "frozen": lambda: frozen(x, *state)}
    if importlib.util.find_spec("onnx") and importlib.util.find_spec("onnxruntime"):
        session = _session(frozen)
        names = [f"{name}0" for name in frozen.state_names]
        given: dict[str, np.ndarray[Any, Any]] = {"x": x.numpy()}
        given |= {name: s.numpy() for name, s in zip(names, state, strict=True)}
        ways["onnx"] = lambda: session.run(None, given)
    return ways


def _session(frozen: Frozen) -> Any:
    import onnxruntime

    from scornn.program.deploy import onnx

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    return onnxruntime.InferenceSession(onnx.build(frozen, {}), options, providers=["CPUExecutionProvider"])


def rows(report: list[dict[str, Any]]) -> list[list[str]]:
    """The table of the report."""
    table = [["model", "T, B", "network ms", "frozen ms", "ONNX Runtime ms", "frozen is faster by"]]
    for row in report:
        times = row["milliseconds"]
        onnx = times.get("onnx")
        table.append(
            [f"{row['model']}, n = {row['n']}", f"{row['T']}, {row['B']}"]
            + [f"{times[way]:.3f}" for way in ("network", "frozen")]
            + (["not installed", "-"] if onnx is None else [f"{onnx:.3f}", f"{onnx / times['frozen']:.1f}"])
        )
    return table
