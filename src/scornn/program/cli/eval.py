"""Evaluate a run's weights on its validation and test data.

RUN is a directory that `scornn train` made. The newest checkpoint is used, or with --best the one that was best
on the validation data (on the test data where the task has no validation data). Nothing is written, but for
--audio: it rebuilds each test utterance of a speech run from the predicted frames, writes true and rebuilt sound as
wav files, and scores them (SegSNR, STOI, PESQ).

Examples:
    scornn eval runs/mnist-scornn-170-s5544 --best --average
    scornn eval runs/copying-1000-scornn-190-s5544 --json
    scornn eval runs/speech-scornn-224-s5544 --audio runs/speech-scornn-224-s5544/audio
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from scornn.program.cli._options import absolute, flag, option


@dataclass(frozen=True)
class Flags:
    run: Annotated[str, tyro.conf.Positional, option("RUN", "The run directory.")]
    json: Annotated[bool, flag("Print JSON.")] = False
    best: Annotated[bool, flag("Take the best weights.")] = False
    average: Annotated[bool, flag("Take the averaged weights.")] = False
    audio: Annotated[str | None, option("DIR", "Write and score rebuilt speech here; RUN/audio shows in reports.")] = (
        None
    )
    data: Annotated[str | None, option("DIR", "Folder with the data files, if they were moved.")] = None
    plugin: Annotated[tuple[str, ...], option("FILE", "The run's Python files.")] = ()


def main(flags: Flags) -> int:
    import msgspec

    from scornn.program.train.program import evaluate

    audio = Path(flags.audio) if flags.audio else None
    result = evaluate(
        Path(flags.run),
        best=flags.best,
        weights="average" if flags.average else "raw",
        data=absolute(flags.data),
        plugins=flags.plugin,
        audio=audio,
        quiet=flags.json,
    )
    print(msgspec.json.format(msgspec.json.encode(result)).decode() if flags.json else _table(result))  # NaN is null
    return 0


def _table(result: dict[str, Any]) -> str:
    averaged = ", averaged weights" if result["weights"] == "average" else ""
    lines = [f"{result['run']}, step {result['step']}{averaged}, {result['parameters']:,} parameters"]
    for split, metrics in result["splits"].items():
        lines.append(f"  {split:<6} " + "  ".join(f"{name} {value:.6g}" for name, value in metrics.items()))
    if result["orthogonality"] is not None:
        lines.append(f"  ‖WᵀW − I‖_F {result['orthogonality']:.3g}")
    if "audio" in result:
        audio = result["audio"]
        for name, mean in audio["mean"].items():
            lines.append(f"  {name:<6} {mean:.4g}, mean of {audio['counts'][name]} files")
        lines += [f"  {name:<6} {why}" for name, why in audio["unavailable"].items()]
        lines += [
            f"  {name:<6} refused {file}: {why}" for name, of in audio["refused"].items() for file, why in of.items()
        ]
    return "\n".join(lines)
