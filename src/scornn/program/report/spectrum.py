"""Eigenvalues of a run's W, from its newest checkpoint or, where weights are not kept, ``spectrum.json``."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from scornn import nn
from scornn.errors import first_line
from scornn.program.report.runs import finite, mapping
from scornn.program.train import checkpoint

FILE = "spectrum.json"


@dataclass(frozen=True)
class Spectrum:
    eigenvalues: NDArray[np.complex128]
    step: int | None


def read(run: str | os.PathLike[str]) -> tuple[list[Spectrum], str]:
    """The spectra at the start, where it is known, and now, in time; or none, with the reason in words.

    The reason is "" where the model has no orthogonal or unitary W.
    """
    run = Path(run)
    kept, problem = _read_file(run / FILE)
    newest = _newest_checkpoint(run)
    if newest is None or (kept and (kept[-1].step or 0) >= newest[0]):
        if not kept and not problem:
            problem = f"no spectrum of W: neither a checkpoint nor {FILE} is here"
        return kept, problem
    try:
        return _of_checkpoint(run, newest), ""
    except Exception as error:  # whatever a damaged or foreign checkpoint leads to: the page is made without it
        return kept, problem or f"no spectrum of W: {newest[1].name} cannot be used ({first_line(error)})"


def to_table(found: Sequence[Spectrum]) -> dict[str, Any]:
    """What ``spectrum.json`` holds, to be kept when weights are not: as many digits as float32 has."""
    pairs = [[[float(f"{x:.7g}") for x in (z.real, z.imag)] for z in moment.eigenvalues] for moment in found]
    start, now = pairs if len(pairs) == 2 else ([], pairs[0])
    return {"step": found[-1].step, "eigenvalues": now, "start": start}


def _newest_checkpoint(run: Path) -> tuple[int, Path] | None:
    """Step and directory of the newest complete checkpoint."""
    found = [(step, run / "checkpoints" / f"step-{step}") for step in checkpoint.steps(run / "checkpoints")]
    return max((pair for pair in found if (pair[1] / "manifest.json").is_file()), default=None)


def _of_checkpoint(run: Path, newest: tuple[int, Path]) -> list[Spectrum]:
    """W of the first layer at the start and with the weights; nothing where it is not constrained.

    The start is drawn again from the seed. A run from other weights has its start in its first checkpoint, or nowhere.
    """
    config = json.loads((run / "config.json").read_text(encoding="utf-8"))
    model = mapping(config.get("model"))
    moments = [newest]
    from_weights, first = config.get("start") is not None, run / "checkpoints" / "step-0"
    if from_weights and newest[0] and (first / "manifest.json").is_file():
        moments.insert(0, (0, first))

    def of_layer(directory: Path) -> dict[str, torch.Tensor]:
        saved = checkpoint.load(directory).model
        return {key.removeprefix("layer."): value for key, value in saved.items() if key.startswith("layer.")}

    weights = of_layer(newest[1])
    size = weights[min(key for key in weights if key.endswith("weight_ih_l0"))].shape[-1]  # the first block's
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(config.get("seed", 0)))
        layer: Any = nn.build(str(model["name"]), size, model["hidden"], **mapping(model.get("options")))
    if layer.orthogonality_error() is None:
        return []

    def spectrum(step: int) -> Spectrum:
        with torch.no_grad():
            W = layer.weight_hh_l0
        matrix = np.asarray(W.to("cpu", torch.complex128 if W.is_complex() else torch.float64).numpy())
        return Spectrum(np.linalg.eigvals(matrix), step)

    found = [] if from_weights else [spectrum(0)]
    for step, directory in moments:
        layer.load_state_dict(weights if directory == newest[1] else of_layer(directory))
        found.append(spectrum(step))
    return found


def _read_file(path: Path) -> tuple[list[Spectrum], str]:
    if not path.exists():
        return [], ""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        pairs = [np.array(content.get(key, []), dtype=float).reshape(-1, 2) for key in ("start", "eigenvalues")]
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return [], f"{FILE} is damaged"
    if not all(np.isfinite(some).all() for some in pairs) or not pairs[1].size:
        return [], f"{FILE} is damaged: it holds NaN, infinity or nothing"
    step = finite(content.get("step"))
    start, now = (some[:, 0] + 1j * some[:, 1] for some in pairs)
    first = [Spectrum(start, 0)] if start.size else []
    return [*first, Spectrum(now, None if step is None else int(step))], ""
