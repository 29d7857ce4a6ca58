"""The program's own ONNX graph beside the one of torch's exporter: times in ONNX Runtime, size, time to export.

``python benchmarks/onnx_exporters.py`` with onnx, onnxruntime and onnxscript installed; one thread.
"""

from __future__ import annotations

import logging
import time
import warnings
from typing import Any

import onnxruntime
import torch

from scornn.nn import SequenceModel, build
from scornn.program.deploy import Frozen, onnx


def exported_by_torch(frozen: Frozen) -> bytes:
    """The file that ``torch.onnx.export`` makes of a frozen network, T and B free."""
    names = ["x", *(f"{name}0" for name in frozen.state_names)]
    T, B = torch.export.Dim("T", min=1), torch.export.Dim("B", min=1)
    program = torch.onnx.export(
        frozen,
        (torch.zeros(5, 3, frozen.input_size), *frozen.initial_state(3)),
        input_names=names,
        dynamo=True,
        dynamic_shapes={name: {0: T, 1: B} if name == "x" else {1: B} for name in names},
        opset_version=onnx.OPSET,
        verbose=False,
    )
    assert program is not None
    content: bytes = program.model_proto.SerializeToString()
    return content


def microseconds(content: bytes, frozen: Frozen, T: int) -> float:
    """The shortest call of ONNX Runtime on one sequence of T steps."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    tensors = (torch.rand(T, 1, frozen.input_size), *frozen.initial_state(1))
    given: dict[str, Any] = {i.name: tensor.numpy() for i, tensor in zip(session.get_inputs(), tensors, strict=True)}
    shortest, end = float("inf"), time.perf_counter() + 4
    while time.perf_counter() < end:  # other programs on the core only make a call longer
        begin = time.perf_counter()
        session.run(None, given)
        shortest = min(shortest, time.perf_counter() - begin)
    return 1e6 * shortest


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    print("| model | n | graph of | bytes | export s | one frame µs | 784 steps µs |\n|---|---|---|---|---|---|---|")
    for name in ("scornn", "lstm"):
        for n in (40, 170):
            network = SequenceModel(build(name, 1, n), 10, "last").eval()
            for maker in ("scornn", "torch"):
                frozen = Frozen(network, plain=maker == "torch")
                begin = time.perf_counter()
                with torch.no_grad():
                    content = onnx.build(frozen, {}) if maker == "scornn" else exported_by_torch(frozen)
                seconds = time.perf_counter() - begin
                frame, sequence = (microseconds(content, frozen, T) for T in (1, 784))
                print(f"| {name} | {n} | {maker} | {len(content):,} | {seconds:.2f} | {frame:.1f} | {sequence:,.0f} |")


if __name__ == "__main__":
    main()
