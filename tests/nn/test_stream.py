"""Streams: a network frame by frame gives what it gives for the whole sequence, in the kernel and in NumPy."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from scornn.nn import GORU, GRU, MODELS, LinearMemory, MemoryBlocks, ScoRNN, SequenceModel, Stream, build
from scornn.nn.frames import Frames
from scornn.nn.stream import Plain
from scornn.ops import library

ROOT = Path(__file__).resolve().parents[2]
NETWORKS = {
    **{name: lambda name=name: SequenceModel(build(name, 3, 16), 4) for name in MODELS},
    "two layers, readout of two": lambda: SequenceModel(ScoRNN(3, 17, num_layers=2), 4, "last", width=12),
    "tanh, mean": lambda: SequenceModel(ScoRNN(1, 33, nonlinearity="tanh"), 2, "mean"),
    "odd bank": lambda: SequenceModel(LinearMemory(2, 9), 2),
    "blocks with a stride": lambda: SequenceModel(MemoryBlocks(2, 10, num_layers=2, width=6, stride=4), 2),
    "GRU without bias": lambda: SequenceModel(GRU(2, 10, bias=False), 2),
    "GORU of 32": lambda: SequenceModel(GORU(2, 32), 2),
    "one unit": lambda: SequenceModel(ScoRNN(1, 1), 1),
}


@pytest.mark.parametrize("plain", [False, True], ids=["kernel", "numpy"])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("name", NETWORKS)
def test_frames_and_blocks_give_what_the_sequence_gives(name: str, batch: int, plain: bool) -> None:
    torch.manual_seed(0)
    network = NETWORKS[name]().double().eval()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.02)
        x = torch.randn(36, batch, network.layer.input_size, dtype=torch.float64)
        expected = network(x) if network.read == "all" else network(x).unsqueeze(0)
    if batch == 1:
        x, expected = x[:, 0], expected[:, 0]
    stream = Stream(network, batch)
    if plain:
        stream._run = Plain(Frames(network), batch)
    stream(x[:5])
    stream.reset()
    parts = [stream(x[:8]), *(stream(frame).reshape(-1, *expected.shape[1:]) for frame in x[8:12])]
    second = stream.copy()
    parts.append(stream(x[12:]))
    y = np.concatenate(parts)[-len(expected) :]
    assert np.abs(y - expected.numpy()).max() <= 1e-12 * (1 + expected.abs().max())
    assert np.array_equal(second(x[12:]), parts[-1])


def test_a_layer_streams_its_states() -> None:
    layer = ScoRNN(2, 8)
    x = torch.randn(5, 2)
    assert np.allclose(Stream(layer)(x), layer(x)[0].detach(), atol=1e-6)


def test_what_does_not_stream_says_so() -> None:
    with pytest.raises(TypeError, match="bidirectional"):
        Stream(ScoRNN(2, 4, bidirectional=True))
    with pytest.raises(ValueError, match=r"expected a frame of shape \(2,\) or a block of shape \(k, 2,\); got \(3,\)"):
        Stream(ScoRNN(2, 4))(np.zeros(3))


KERNEL = library.load()


@pytest.mark.skipif(isinstance(KERNEL, str) or shutil.which("cc") is None, reason="no kernel or no compiler")
def test_a_step_allocates_nothing_and_depends_on_no_number(tmp_path: Path) -> None:
    """A program whose malloc ends it during a step; under callgrind, other inputs take as many instructions."""
    assert not isinstance(KERNEL, str)
    program = tmp_path / "stream_test"
    source = ROOT / "tests" / "csrc" / "stream_test.c"
    folder = str(KERNEL.path.parent)
    command = ["cc", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'csrc'}", str(source), str(KERNEL.path)]
    subprocess.run([*command, f"-Wl,-rpath,{folder}", "-o", str(program)], check=True)
    subprocess.run([program, "0.5"], check=True)
    if shutil.which("valgrind") is None:
        return
    counts = []
    for value in ("0.5", "-2.25"):
        checked = [
            "valgrind",
            "--tool=callgrind",
            "--toggle-collect=scornn_step",
            f"--callgrind-out-file={tmp_path}/out",
        ]
        said = subprocess.run([*checked, program, value], check=True, capture_output=True, text=True).stderr
        counts.append(next(line.split(":")[1] for line in said.splitlines() if "Collected" in line))
    assert counts[0] == counts[1]
