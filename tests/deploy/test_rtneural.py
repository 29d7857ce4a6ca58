"""Networks in RTNeural's JSON, read by the rules of its parser, and the modReLU layer in C++."""

from __future__ import annotations

import json
import runpy
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from scornn.nn import SequenceModel, build

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "rtneural"
rtneural = runpy.run_path(str(EXAMPLE / "to_json.py"))["rtneural"]

MAIN = """#include "modrelu.h"
#include <cstdio>
static double W[2][5], U[5][5], b[5], x[2];
int main() {
    static ModReLULayer<double, 2, 5> layer;
    if (!fread(W, sizeof W, 1, stdin) || !fread(U, sizeof U, 1, stdin) || !fread(b, sizeof b, 1, stdin)) return 1;
    layer.setWVals(W); layer.setUVals(U); layer.setBVals(b);
    x[0] = 1.0; layer.forward(x); layer.reset();
    while (fread(x, sizeof x, 1, stdin)) { layer.forward(x); fwrite(layer.outs, sizeof layer.outs, 1, stdout); }
}
"""


def network(name: str, layers: int = 1) -> SequenceModel:
    torch.manual_seed(0)
    made = SequenceModel(build(name, 2, 5, num_layers=layers), 3).double().eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return made


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def run(layer: dict[str, Any], x: Any) -> Any:
    """What RTNeural makes of a layer: gates i, f, g, o of an LSTM and z, r, n of a GRU, the reset after the product."""
    n, (A, *rest) = layer["shape"][-1], [np.array(w) for w in layer["weights"]]
    if layer["type"] == "dense":
        return x @ A + rest[0]
    (U, b), h, c, every = rest, np.zeros(n), np.zeros(n), []
    for frame in x:
        if layer["type"] == "lstm":
            i, f, g, o = np.split(frame @ A + h @ U + b, 4)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
        else:
            (z, r, s), (z_h, r_h, s_h) = np.split(frame @ A + b[0], 3), np.split(h @ U + b[1], 3)
            z = sigmoid(z + z_h)
            h = (1 - z) * np.tanh(s + sigmoid(r + r_h) * s_h) + z * h
        every.append(h)
    return np.array(every)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_rtneural_gets_the_same_numbers(name: str, layers: int) -> None:
    made, x = network(name, layers), torch.randn(9, 2, dtype=torch.float64)
    parsed = json.loads(json.dumps(rtneural(made)))
    assert parsed["in_shape"][-1] == 2
    assert [(layer["type"], layer["shape"][-1]) for layer in parsed["layers"]] == [*[(name, 5)] * layers, ("dense", 3)]
    y = x.numpy()
    for layer in parsed["layers"]:
        y = run(layer, y)
    with torch.no_grad():
        assert np.abs(y - made(x.unsqueeze(1))[:, 0].numpy()).max() <= 1e-12


@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")
def test_the_modrelu_layer_gets_the_states_of_python(tmp_path: Path) -> None:
    made, x = network("scornn"), torch.randn(9, 2, dtype=torch.float64)
    (tmp_path / "main.cpp").write_text(MAIN)
    command = [
        "c++",
        "-std=c++14",
        "-Wall",
        "-Wextra",
        "-Wpedantic",
        "-Werror",
        f"-I{EXAMPLE}",
        "main.cpp",
        "-o",
        "main",
    ]
    subprocess.run(command, cwd=tmp_path, check=True)
    given = b"".join(np.array(w).tobytes() for w in rtneural(made)["layers"][0]["weights"]) + x.numpy().tobytes()
    said = subprocess.run([tmp_path / "main"], input=given, capture_output=True, check=True).stdout
    with torch.no_grad():
        expected = made.layer(x.unsqueeze(1))[0][:, 0].numpy()
    assert np.abs(np.frombuffer(said).reshape(-1, 5) - expected).max() <= 1e-12


def test_what_rtneural_has_no_layer_for_is_refused() -> None:
    with pytest.raises(ValueError, match="no layer for turn"):
        rtneural(network("linear-memory"))
