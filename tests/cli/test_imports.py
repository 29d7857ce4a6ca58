"""What a command must not import: each of these takes as long as a good part of ``import torch``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from scornn.program.cli import main

COMPILER = {"torch._dynamo", "torch._inductor", "sympy", "torch.distributed.fsdp", "torch.onnx"}
HEAVY = COMPILER | {"scipy", "rich", "optuna", "tensorboard", "onnx", "onnxruntime", "matplotlib.pyplot", "torchaudio"}
CODE = """
import json, sys
from scornn.program.cli import main
run, page, heavy = sys.argv[1:]
found = []
for command in (["eval", run, "--json"], ["report", run, "--out", page]):
    assert main(command) == 0
    found.append(sorted({*json.loads(heavy), "matplotlib"} & set(sys.modules)))
print(json.dumps(found))
"""


def test_eval_and_report_import_nothing_heavy_that_they_do_not_use(tmp_path: Path) -> None:
    run = tmp_path / "run"
    small = ["--length", "5", "--hidden", "4", "--iterations", "1", "--set", "task.test_size=4"]
    assert main(["train", "adding", *small, "--out", str(run)]) == 0
    command = [sys.executable, "-c", CODE, str(run), str(tmp_path / "page.html"), json.dumps(sorted(HEAVY))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    by_eval, by_both = json.loads(done.stdout.splitlines()[-1])
    assert (by_eval, by_both) == ([], ["matplotlib"])
