"""Write a run's network as a file for other programs: safetensors, pt2, ONNX or C.

RUN is a run directory, a recorded result with weights, a checkpoint, or a file of an earlier export. The file is loaded
again in a fresh process and compared with the network, at lengths and batch sizes that the export never saw, before it
gets its name. A model card is written beside it.

Formats: safetensors, the weights and their config, for `scornn.load`; pt2, for `torch.export.load` after
`import scornn.ops`, or with --plain for torch alone; onnx, for ONNX Runtime and others, standard operators only; c, one
C99 file and its header, without heap or library, for a microcontroller or a plugin.

Examples:
    scornn export runs/mnist-scornn-170-s5544 --to onnx --out mnist.onnx
    scornn export runs/mnist-scornn-170-s5544 --to pt2 --plain --out mnist.pt2
    scornn export runs/first --to c --out gate.c
    scornn export runs/mnist-scornn-170-s5544 --to safetensors --best --out weights.safetensors
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import tyro

from scornn.program.cli._options import flag, option, waiting


@dataclass(frozen=True)
class Flags:
    run: Annotated[str, tyro.conf.Positional, option("RUN", "A run, a result, a checkpoint or a safetensors file.")]
    to: Annotated[Literal["safetensors", "pt2", "onnx", "c"], tyro.conf.arg(help="The format.", help_behavior_hint="")]
    out: Annotated[str, option("FILE", "The file; its card is beside it, FILE.md.")]
    plain: Annotated[bool, flag("A pt2 file without scornn's operators.")] = False
    int8: Annotated[bool, flag("A C file whose matrices have 8 bits.")] = False
    sample: Annotated[str | None, option("FILE.npy", "Sequences on which 8 bits are compared.")] = None
    best: Annotated[bool, flag("Take the best weights.")] = False
    average: Annotated[bool, flag("Take the averaged weights.")] = False
    plugin: Annotated[tuple[str, ...], option("FILE", "The run's Python files.")] = ()


def main(flags: Flags) -> int:
    from scornn.program.deploy.network import load
    from scornn.program.deploy.write import export

    network = load(flags.run, best=flags.best, weights="average" if flags.average else "raw", plugins=flags.plugin)
    with waiting(f"writing {flags.out}, and loading it again in a fresh process"):
        done = export(network, flags.out, flags.to, plain=flags.plain, int8=flags.int8, sample=flags.sample)
    print(f"wrote {done.path} ({done.size / 1000:,.0f} kB, needs {done.needs}) and its model card {done.card}")
    how = "compiled and run" if flags.to == "c" else "loaded again in a fresh process and run at other T and B"
    print(f"it was {how}: largest difference {done.error:.2g}, relative to the largest output")
    return 0
