"""Answer for new sequences with a run's network: their classes, or values.

RUN is a run directory, a recorded result with weights, a checkpoint, or a safetensors file of `scornn export`. X.npy
holds N sequences (N, T, m), or (N, T) where m is one. The answers are printed, a line for each sequence, or written to
--out as an array. Classes are numbered from 0 on, as in training.

Examples:
    scornn predict runs/mine new_x.npy
    scornn predict runs/mine new_x.npy --lengths new_lengths.npy --out answers.npy
"""

from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Annotated

import tyro

from scornn.program.cli._options import flag, option


@dataclass(frozen=True)
class Flags:
    run: Annotated[str, tyro.conf.Positional, option("RUN", "A run, a result, a checkpoint or a safetensors file.")]
    x: Annotated[str, tyro.conf.Positional, option("X.npy", "The sequences.")]
    lengths: Annotated[str | None, option("FILE.npy", "How many steps of each count, (N,).")] = None
    out: Annotated[str | None, option("FILE.npy", "Write the answers here.")] = None
    best: Annotated[bool, flag("Take the best weights.")] = False
    average: Annotated[bool, flag("Take the averaged weights.")] = False
    plugin: Annotated[tuple[str, ...], option("FILE", "The run's Python files.")] = ()


def main(flags: Flags) -> int:
    import numpy as np

    from scornn.errors import DataError
    from scornn.program import durable
    from scornn.program.data.arrays import sequences
    from scornn.program.deploy.network import load

    network = load(flags.run, best=flags.best, weights="average" if flags.average else "raw", plugins=flags.plugin)
    given = sequences(Path(flags.x), Path(flags.lengths) if flags.lengths else None)
    if (found := given.x.shape[2]) != network.task.input_size:
        raise DataError(f"{flags.x}: found {found} numbers a step; {flags.run} expects {network.task.input_size}")
    answers = network.predict(given.x, given.lengths)
    if flags.out is None:
        for answer in answers:
            print(*answer.flat)
        return 0
    content = BytesIO()
    np.save(content, answers)
    durable.write_bytes(Path(flags.out), content.getvalue())
    print(f"wrote {flags.out}: {answers.dtype} of shape {answers.shape}")
    return 0
