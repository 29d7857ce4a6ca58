"""``scornn bench --stream``: networks that take one frame, or a block of them, and keep the state."""

import ctypes
import importlib.util
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from scornn.nn import SequenceModel, Stream, build
from scornn.nn.stream import Kernel
from scornn.program.cli._bench import Row, Step, in_onnxruntime, shortest

MODELS, SIZES, BLOCKS = ("scornn", "lstm", "gru", "linear-memory"), (12, 16, 40, 64, 170), (1, 64)
IN_TORCH = {"scornn": "RNN", "lstm": "LSTM", "gru": "GRU"}
FRAMES = 1024
"""In one timed call of a contender, so that the clock's own time does not count."""
WORST_OF = 100_000
BLOCK = """
void gate_block(gate_state *s, long frames, const float *in, float *out) {
    for (; frames > 0; --frames, in += GATE_INPUTS, out += GATE_OUTPUTS) gate_step(s, in, out);
}
"""


def streams(rounds: int) -> Iterator[Row]:
    """Nanoseconds of a frame, with one input and one output.

    Those of the kernel and of the C file are without the call from Python, which a call of no frames takes as well.
    """
    for name, n, k in product(MODELS, SIZES, BLOCKS):
        network, x = SequenceModel(build(name, 1, n), 1).eval(), torch.randn(k, 1)
        stream, y = Stream(network), np.empty((k, 1), np.float32)
        steps: dict[str, Step] = {"Python": partial(stream, x.numpy())}
        arrays = (x.data_ptr(), y.ctypes.data)
        if isinstance(run := stream._run, Kernel):
            call = partial(run.kernel.step, run.memory)
            steps |= {"kernel": partial(call, k, *arrays), "no kernel": partial(call, 0, *arrays)}
        if c_file := _c_file(network):
            call, state = c_file
            steps |= {"C file": partial(call, state, k, *arrays), "no C file": partial(call, state, 0, *arrays)}
        if importlib.util.find_spec("onnx") and importlib.util.find_spec("onnxruntime"):
            steps["ONNX Runtime"] = in_onnxruntime(network, x.unsqueeze(1))
        if name in IN_TORCH:
            steps["torch"] = _in_torch(IN_TORCH[name], n, x)
        calls = FRAMES // k
        with torch.no_grad():
            seconds = shortest({way: partial(_repeat, step, calls) for way, step in steps.items()}, rounds)
        ns = {way: 1e9 * taken / FRAMES for way, taken in seconds.items()}
        for way in ("kernel", "C file"):
            if way in ns:
                ns[way] -= ns[f"no {way}"]
        row: Row = {"model": name, "n": n, "frames": k}
        row |= {f"{way} ns": ns.get(way) for way in ("kernel", "C file", "Python", "ONNX Runtime", "torch")}
        yield row | dict(
            zip(("median ns", "worst ns"), _spread(steps["Python"]) if k == 1 else (None, None), strict=True)
        )


def _repeat(step: Step, calls: int) -> None:
    for _ in range(calls):
        step()


def _spread(step: Step) -> tuple[float, float]:
    """The median and the longest of many calls, each with the clock's time."""
    clock, taken = time.perf_counter_ns, []
    for _ in range(WORST_OF):
        begun = clock()
        step()
        taken.append(clock() - begun)
    return float(statistics.median(taken)), float(max(taken))


def _c_file(network: SequenceModel) -> tuple[Any, Any] | None:
    """The block function of the exported C file, and a state; None without a compiler."""
    from scornn.program.deploy import c

    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        return None
    source = c.build(network, "gate")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "gate.h").write_text(source.header)
        (Path(folder) / "gate.c").write_text(source.code + BLOCK)
        command = [compiler, "-std=c99", "-O2", "-shared", "-fPIC", "gate.c", "-o", "gate.so", "-lm"]
        subprocess.run(command, cwd=folder, check=True)
        library = ctypes.CDLL(str(Path(folder) / "gate.so"))
    state = ctypes.create_string_buffer(source.ram)
    library.gate_init(state)
    library.gate_block.argtypes = [ctypes.c_void_p, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    library.gate_block.restype = None
    return library.gate_block, state


def _in_torch(kind: str, n: int, x: torch.Tensor) -> Step:
    """A cell for one frame, a layer for a block, and the head."""
    layer, head = getattr(nn, kind if len(x) > 1 else f"{kind}Cell")(1, n), nn.Linear(n, 1)
    state: Any = None

    def cell() -> None:
        nonlocal state
        state = layer(x, state)
        head(state[0] if kind == "LSTM" else state)

    def block() -> None:
        nonlocal state
        h, state = layer(x, state)
        head(h)

    return block if len(x) > 1 else cell
