"""Networks as C files: every model, compiled by the machine's compilers, prints the numbers of Python."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

import scornn
from scornn.errors import UsageError
from scornn.nn import GRU, LSTM, MODELS, LinearMemory, MemoryBlocks, ScoRNN, SequenceModel, build
from scornn.program.cli import main
from scornn.program.deploy import c

ROOT = Path(__file__).resolve().parents[2]
COMPILER = shutil.which(os.environ.get("CC", "cc"))
STRICT = ("-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror")

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C compiler")

NETWORKS = {
    **{name: lambda name=name: SequenceModel(build(name, 3, 16), 4) for name in MODELS},
    "two layers, readout of two": lambda: SequenceModel(ScoRNN(3, 17, num_layers=2), 4, "last", width=12),
    "tanh, mean": lambda: SequenceModel(ScoRNN(1, 40, nonlinearity="tanh"), 2, "mean"),
    "odd bank": lambda: SequenceModel(LinearMemory(2, 9), 2),
    "blocks with a stride": lambda: SequenceModel(MemoryBlocks(2, 10, num_layers=2, width=6, stride=4), 2),
    "LSTM without bias": lambda: SequenceModel(LSTM(2, 10, bias=False), 2),
    "GRU without bias": lambda: SequenceModel(GRU(2, 10, bias=False), 2),
}


def network(name: str) -> SequenceModel:
    """One of the networks, with other weights than those of its start."""
    torch.manual_seed(0)
    made = NETWORKS[name]().eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.02)
    return made


@pytest.mark.parametrize("name", NETWORKS)
def test_every_model_prints_the_numbers_of_python(name: str) -> None:
    made = network(name)
    assert c.largest_error(c.build(made, "gate"), "gate", made, None) <= 1e-5


@pytest.mark.parametrize("name", ["scornn", "lstm", "linear-memory", "memory-blocks", "urnn"])
def test_no_compiler_warns_and_no_sanitizer_finds_anything(name: str, tmp_path: Path) -> None:
    source = c.build(network(name), "gate")
    (tmp_path / "gate.c").write_text(source.code)
    (tmp_path / "gate.h").write_text(source.header)
    harness = "#include <string.h>\n#include <stdio.h>\n" + c.HARNESS.replace("NAME", "GATE").replace("name", "gate")
    (tmp_path / "main.c").write_text(harness)
    for compiler in filter(shutil.which, ("gcc", "clang")):
        for options in (["-O2"], ["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]):
            command = [compiler, *STRICT, *options, "gate.c", "main.c", "-o", "gate", "-lm"]
            subprocess.run(command, cwd=tmp_path, check=True)
            subprocess.run(
                [tmp_path / "gate"], input=np.ones(300, np.float32).tobytes(), capture_output=True, check=True
            )
    if shutil.which("arm-none-eabi-gcc"):
        cross = ["arm-none-eabi-gcc", "-mcpu=cortex-m4", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16", *STRICT, "-O2", "-c"]
        subprocess.run([*cross, "gate.c"], cwd=tmp_path, check=True)


ARM = ("arm-linux-gnueabihf-gcc", "qemu-arm")


@pytest.mark.skipif(not all(map(shutil.which, ARM)), reason="no compiler for ARM, or no qemu")
@pytest.mark.parametrize("name", ["scornn", "lstm", "linear-memory"])
def test_an_arm_processor_prints_the_numbers_of_python(name: str, tmp_path: Path) -> None:
    made = network(name)
    source = c.build(made, "gate")
    (tmp_path / "gate.c").write_text(source.code)
    (tmp_path / "gate.h").write_text(source.header)
    (tmp_path / "main.c").write_text(c.HARNESS.replace("NAME", "GATE").replace("name", "gate"))
    cortex_m4f = ["-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"]
    subprocess.run([ARM[0], *cortex_m4f, *STRICT, "-O2", "-c", "gate.c"], cwd=tmp_path, check=True)
    thumb = [ARM[0], "-mthumb", "-static", "-std=c99", "-O2", "gate.c", "main.c", "-o", "gate", "-lm"]
    subprocess.run(thumb, cwd=tmp_path, check=True)
    x = torch.randn(33, 3)
    said = subprocess.run([ARM[1], "gate"], cwd=tmp_path, input=x.numpy().tobytes(), capture_output=True, check=True)
    with torch.no_grad():
        expected = made(x.unsqueeze(1))[:, 0].numpy()
    assert np.abs(np.frombuffer(said.stdout, np.float32).reshape(-1, 4) - expected).max() <= 1e-5


def test_a_small_network_fits_a_small_device() -> None:
    source = c.build(SequenceModel(ScoRNN(1, 40), 1), "gate")
    assert source.flash < 16 * 1024
    assert source.ram < 1024
    assert "math.h" not in source.code
    assert c.build(SequenceModel(ScoRNN(1, 40), 1), "gate", int8=True).flash < source.flash / 2


def test_a_network_that_needs_the_end_of_a_sequence_is_refused() -> None:
    with pytest.raises(UsageError, match="bidirectional"):
        c.build(SequenceModel(ScoRNN(2, 4, bidirectional=True), 1), "gate")
    with pytest.raises(UsageError, match="cannot be a name in C"):
        c.build(SequenceModel(ScoRNN(2, 4), 1), "my-gate")


def test_the_page_from_a_run_to_a_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--set", "task.train_size=8", "--set", "task.test_size=4", "--tensorboard", "off", "--quiet"]
    train = ["train", "adding", "--hidden", "17", "--length", "9", "--iterations", "2", "--threads", "1"]
    assert main([*train, "--out", str(tmp_path / "first"), *small]) == 0
    assert main(["export", str(tmp_path / "first"), "--to", "c", "--out", str(tmp_path / "network.c")]) == 0
    assert (tmp_path / "network.c.md").read_text().startswith("---")
    shutil.copy(ROOT / "examples" / "c" / "main.c", tmp_path)
    subprocess.run([str(COMPILER), *STRICT, "network.c", "main.c", "-o", "network", "-lm"], cwd=tmp_path, check=True)
    x = torch.rand(12, 1, 2)
    frames = "\n".join(" ".join(f"{value:.9g}" for value in frame.flatten().tolist()) for frame in x)
    said = subprocess.run([tmp_path / "network"], input=frames, capture_output=True, text=True, check=True).stdout
    loaded = scornn.load(tmp_path / "first")
    with torch.no_grad():
        expected = loaded.head(loaded.layer(x)[0]).flatten().numpy()
    assert np.abs(np.loadtxt(said.splitlines()) - expected).max() <= 1e-6
    assert np.abs(loaded.stream()(x[:, 0]).flatten() - expected).max() <= 1e-6

    np.save(tmp_path / "sample.npy", x.permute(1, 0, 2).numpy())
    capsys.readouterr()
    eight = ["--to", "c", "--int8", "--sample", str(tmp_path / "sample.npy"), "--out", str(tmp_path / "small.c")]
    assert main(["export", str(tmp_path / "first"), *eight]) == 0
    assert "largest difference" in capsys.readouterr().out
    assert main(["export", str(tmp_path / "first"), "--to", "onnx", "--int8", "--out", str(tmp_path / "a.onnx")]) == 2
