"""Continue a run where it stopped, bit for bit.

RUN is a directory that `scornn train` made. Training goes on from its newest good checkpoint as if it had never
stopped: after Ctrl-C, SIGTERM, a kill, a power cut or a full disk. A finished run can be given a later end.

Examples:
    scornn resume runs/copying-1000-scornn-190-s5544
    scornn resume runs/mnist-scornn-170-s5544 --epochs 100
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from scornn.errors import UsageError
from scornn.program.cli._options import TensorBoard, absolute, at_least_one, flag, option, wanted


@dataclass(frozen=True)
class Flags:
    run: Annotated[str, tyro.conf.Positional, option("RUN", "The run directory.")]
    iterations: Annotated[int | None, option("N", "A new end, in steps from the beginning.")] = None
    epochs: Annotated[int | None, option("N", "A new end, in epochs from the beginning.")] = None
    data: Annotated[str | None, option("DIR", "Folder with the data files, if they were moved.")] = None
    device: Annotated[Literal["cpu", "cuda"] | None, option("D", "cpu or cuda, if it is to be another one.")] = None
    plugin: Annotated[tuple[str, ...], option("FILE", "The run's Python files.")] = ()
    tensorboard: TensorBoard = "auto"
    quiet: Annotated[bool, flag("Show no progress.")] = False


def main(flags: Flags) -> int:
    if flags.iterations is not None and flags.epochs is not None:
        raise UsageError("both --iterations and --epochs are given: expected one of them")
    at_least_one(iterations=flags.iterations, epochs=flags.epochs)

    from scornn.program.cli.train import finish
    from scornn.program.train.program import resume

    result = resume(
        Path(flags.run),
        steps=flags.iterations,
        epochs=flags.epochs,
        data=absolute(flags.data),
        device=flags.device,
        plugins=flags.plugin,
        quiet=flags.quiet,
        tensorboard=wanted(flags.tensorboard),
    )
    return finish(result, flags.quiet)
