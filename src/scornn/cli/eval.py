"""Evaluate a run's weights on its validation and test data.

RUN is a directory that `scornn train` made. The newest checkpoint is used, or with --best the one that was best
on the validation data (on the test data where the task has no validation data). Nothing is written.

Examples:
    scornn eval runs/mnist-scornn-170-s5544 --best
    scornn eval runs/copying-scornn-190-s5544 --json
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from scornn.cli._options import absolute, flag, option, parse


@dataclass(frozen=True)
class Flags:
    run: Annotated[str, tyro.conf.Positional, option("RUN", "The run directory.")]
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff, flag("Print JSON.")] = False
    best: Annotated[bool, tyro.conf.FlagCreatePairsOff, flag("Take the best weights.")] = False
    data: Annotated[str | None, option("DIR", "Folder with the data files, if they were moved.")] = None


def main(argv: list[str]) -> int:
    flags = parse(Flags, argv, "eval", __doc__)

    from scornn.train.program import evaluate

    result = evaluate(Path(flags.run), best=flags.best, data=absolute(flags.data))
    print(json.dumps(result, indent=2, allow_nan=False) if flags.json else _table(result))
    return 0


def _table(result: dict[str, Any]) -> str:
    lines = [f"{result['run']}, step {result['step']}, {result['parameters']:,} parameters"]
    for split, metrics in result["splits"].items():
        lines.append(f"  {split:<6} " + "  ".join(f"{name} {value:.6g}" for name, value in metrics.items()))
    if result["orthogonality"] is not None:
        lines.append(f"  ‖WᵀW − I‖_F {result['orthogonality']:.3g}")
    return "\n".join(lines)
