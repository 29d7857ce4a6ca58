"""A trained network as a file that others run; nothing is called done that was not loaded again and compared."""

from __future__ import annotations

import importlib.util
import io
import json
import logging
import os
import subprocess
import sys
import tempfile
import warnings
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch
from safetensors.torch import load_file, save
from torch import Tensor

from scornn.errors import ScornnError, UsageError, not_installed
from scornn.nn import SequenceModel
from scornn.program import durable, plugins
from scornn.program.deploy import c, card, fresh
from scornn.program.deploy.frozen import Frozen
from scornn.program.deploy.network import Network, load, of
from scornn.program.train import weights as stored_weights

Format = Literal["safetensors", "pt2", "onnx", "c"]
FORMATS: tuple[Format, ...] = ("safetensors", "pt2", "onnx", "c")

TRACED = (5, 3)
"""T and B at which a graph is made. It is checked at others."""
CHECKED = ((1, 1), (1, 4), (8, 2), (33, 1))
TOLERANCE = 1e-5


@dataclass(frozen=True)
class Exported:
    """What was written. ``error`` is the largest difference found, relative to the largest number."""

    path: Path
    card: Path
    size: int
    error: float
    needs: str


def export(
    network: Network | str | os.PathLike[str],
    out: str | os.PathLike[str],
    to: Format,
    *,
    plain: bool = False,
    int8: bool = False,
    sample: str | os.PathLike[str] | None = None,
) -> Exported:
    """Write a network as a file, and a model card beside it.

    The file is loaded in a fresh process and compared with the network at other T and B before it gets its name.

    Args:
        network: what :func:`scornn.load` gives, or a path for it.
        out: the file. The card is beside it, under its name and ``.md``.
        to: ``safetensors``, the weights for :func:`scornn.load`; ``pt2``, for ``torch.export.load``; ``onnx``; or
            ``c``, one C99 file with its header beside it.
        plain: a pt2 file without scornn's operators, slower, which needs nothing but torch.
        int8: store the matrices of a C file in 8 bits.
        sample: for int8, a NumPy file of sequences ``(N, T, m)``; ``error`` is what it does to their outputs.

    Example:
        >>> export("runs/first", "first.onnx", "onnx").needs  # doctest: +SKIP
        'onnxruntime'
    """
    if to not in FORMATS:
        raise UsageError(f"unknown format {to!r}; expected one of {', '.join(FORMATS)}")
    if plain and to != "pt2":
        raise UsageError(f"plain is a form of pt2 files, but the format is {to}")
    if (int8 or sample is not None) and not (to == "c" and int8):
        raise UsageError("int8 is a form of C files, and a sample is for int8")
    if not isinstance(network, Network | str | os.PathLike):
        raise TypeError(
            f"export takes what scornn.load gives or a path for it, not a {type(network).__name__}; for a network of "
            "your own docs/deploy.md has torch's exporter on layer.frozen(plain=True)"
        )
    made = deepcopy(network) if isinstance(network, Network) else load(network)
    made, out = made.cpu().eval(), Path(out)
    _check_place(out, to)
    _check_numbers(made, to)
    made.stored = _as_it_is_now(made)
    if to == "c":
        return _export_c(made, out, int8, sample)
    if to == "onnx":
        missing = [name for name in ("onnx", "onnxruntime") if importlib.util.find_spec(name) is None]
        if missing:
            raise UsageError(not_installed("an ONNX file", *missing))
    content = _content(made, to, plain)
    error = _compare(made, content, f"{to}-plain" if plain else to)
    pt2 = "torch" if plain else "torch and `import scornn.ops`"
    needs = {"safetensors": "scornn", "pt2": pt2, "onnx": "onnxruntime"}[to]
    beside = out.with_name(f"{out.name}.md")
    _write_all({beside: card.text(made, out.name, needs, error).encode(), out: content})
    return Exported(out, beside, len(content), error, needs)


def _export_c(network: Network, out: Path, int8: bool, sample: str | os.PathLike[str] | None) -> Exported:
    source = c.build(network, out.stem, int8=int8)
    error = c.largest_error(source, out.stem, network, None if sample is None else Path(sample))
    if not int8 and not error <= TOLERANCE:
        raise ScornnError(f"the C file differs from the network by {error:.2g}, expected at most {TOLERANCE}")
    header, beside, needs = out.with_suffix(".h"), out.with_name(f"{out.name}.md"), "a C99 compiler"
    text = card.text(network, out.name, needs, error)
    _write_all({beside: text.encode(), header: source.header.encode(), out: source.code.encode()})
    return Exported(out, beside, len(source.code), error, needs)


def _write_all(files: dict[Path, bytes]) -> None:
    """Write files one after the other; where one cannot be written, those before it are again as they were."""
    before = {path: path.read_bytes() if path.is_file() else None for path in files}
    written: list[Path] = []
    try:
        for path, content in files.items():
            durable.write_bytes(path, content)
            written.append(path)
    except BaseException:
        for path in written:
            if (content_before := before[path]) is None:
                path.unlink()
            else:
                durable.write_bytes(path, content_before)
        raise


def _check_place(out: Path, to: Format) -> None:
    """Refuse, before the work, a name that is no file's, and to replace what is no export."""
    beside = out.with_name(f"{out.name}.md")
    if out.suffix in ("", ".md"):
        raise UsageError(f"{out}: expected the name of a file, such as model.onnx; its card gets .md")
    with durable.storage_errors(beside):
        if beside.is_file() and not beside.read_bytes().startswith(card.BEGIN.encode()):
            raise UsageError(f"{beside} is no model card and would be replaced by one; choose another name than {out}")
    if out.is_file() and out.suffix != f".{to}":
        raise UsageError(f"{out} is there already and is not called .{to}: it would be replaced; choose another name")
    if to == "c" and out.suffix != ".c":
        raise UsageError(f"{out}: a C file is called .c, such as gate.c; its header is then gate.h")
    with durable.storage_errors(out):
        if not out.parent.is_dir():
            raise FileNotFoundError(2, "No such file or directory")


def _check_numbers(network: Network, to: Format) -> None:
    """Refuse weights of a type that the file, or the program that reads it, does not have."""
    single = to in ("safetensors", "c") or (to == "onnx" and network.layer.kind in ("lstm", "gru"))
    taken = (torch.float32,) if single else (torch.float32, torch.float64)
    for name, parameter in network.named_parameters():
        if parameter.dtype not in taken:
            expected = " or ".join(str(dtype).removeprefix("torch.") for dtype in taken)
            of = " of an LSTM or GRU" if single and to == "onnx" else ""
            found = f"{name} is {parameter.dtype}"
            raise UsageError(f"a {to} file takes {expected} weights{of}, but {found}; export network.float()")


def _as_it_is_now(network: Network) -> stored_weights.Stored:
    """What the network was loaded from, with the weights that it has now: the run's figures are no others' figures."""
    now, loaded = network.state_dict(), of(network.stored).state_dict()
    if changed := next((name for name in now if name in loaded and now[name].shape != loaded[name].shape), None):
        raise UsageError(
            f"{changed} has shape {tuple(now[changed].shape)}, and {tuple(loaded[changed].shape)} by the config of its "
            "run; a wider network has a run of its own, scornn train TASK --start-from RUN --hidden N: export that"
        )
    same = now.keys() == loaded.keys() and all(torch.equal(now[name], loaded[name].to(now[name])) for name in now)
    if same:
        return replace(network.stored, tensors=now)
    return replace(network.stored, tensors=now, changed=True, weights="raw", best=False, summary={})


def _content(network: Network, to: Format, plain: bool) -> bytes:
    if to == "safetensors":
        return stored_weights.to_bytes(network.stored)
    frozen = network.frozen(plain=plain)
    if to == "onnx":
        from scornn.program.deploy import onnx

        config = json.dumps(plugins.without_places(network.stored.config))
        return onnx.build(frozen, {"task": network.task.name, "config": config, "step": str(network.stored.step)})
    return _program(frozen)


def _program(frozen: Frozen) -> bytes:
    T, B = torch.export.Dim("T", min=1), torch.export.Dim("B", min=1)
    inputs = (torch.zeros(*TRACED, frozen.input_size, dtype=frozen.layer.like.dtype),)
    arguments = (*inputs, *frozen.initial_state(TRACED[1]))
    names = ("x", *(f"{name}0" for name in frozen.state_names))
    shapes = {name: {0: T, 1: B} if name == "x" else {1: B} for name in names}
    file, logger = io.BytesIO(), logging.getLogger("torch.export")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's own, about its own
            program = torch.export.export(frozen, arguments, dynamic_shapes=shapes)
            torch.export.save(program, file)
    finally:
        logger.setLevel(before)
    return file.getvalue()


@torch.no_grad()
def _compare(network: Network, content: bytes, kind: str) -> float:
    """The largest difference between the network and the file, run by a fresh process on inputs that it never saw."""
    cases, expected = _cases(network, kind)
    with durable.storage_errors(tempfile.gettempdir(), "check a copy in"), tempfile.TemporaryDirectory() as folder:
        file, given, got = (Path(folder) / name for name in (f"model.{kind}", "cases", "results"))
        file.write_bytes(content)
        given.write_bytes(save({name: tensor.contiguous() for name, tensor in cases.items()}))
        command = [sys.executable, "-W", "ignore", fresh.__file__, kind, str(file), str(given), str(got)]
        named = network.stored.config.get("plugins") or ()  # the file itself does not say where they lie
        command += filter(plugins.was_run, named)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ScornnError(f"the {kind} file does not run in a fresh process: {done.stderr.strip()[-1000:]}")
        found = load_file(got)
    if found.keys() != expected.keys() or any(found[name].shape != expected[name].shape for name in expected):
        raise ScornnError(f"the {kind} file gives outputs of other shapes than the network; nothing was written")
    errors = [((found[k] - t).abs().max() / t.abs().max().clamp(min=1)).double() for k, t in expected.items()]
    error = float(torch.stack(errors).max())  # Python's max would lose a NaN
    if not error <= TOLERANCE:
        raise ScornnError(f"the {kind} file differs from the network by {error:.2g}, expected at most {TOLERANCE}")
    return error


def _cases(network: Network, kind: str) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Inputs of every case, and what the network makes of them: of its frozen form, the state too.

    A safetensors file is the network itself, with or without a frozen form.
    """
    random = torch.Generator().manual_seed(5544)
    cases: dict[str, Tensor] = {}
    expected: dict[str, Tensor] = {}
    layer, frozen = network.layer, None if kind == "safetensors" else network.frozen()
    for T, B in CHECKED:
        case = f"T{T}B{B}"
        cases[f"{case}.x"] = x = torch.randn(T * layer.stride, B, layer.input_size, generator=random).to(layer.like)
        if frozen is None:
            expected[f"{case}.0"] = SequenceModel.forward(network, x)
            continue
        start = own = frozen.initial_state(B)
        if CHECKED[-1] != (T, B):  # the last begins with the network's own state, as its own forward does
            start = tuple(s + 0.1 * torch.randn(s.shape, generator=random).to(s) for s in own)
        results = list(frozen(x, *start))
        if start is own:
            results[0] = SequenceModel.forward(network, x)
        cases |= {f"{case}.{n}0": s for n, s in zip(frozen.state_names, start, strict=True)}
        expected |= {f"{case}.{number}": result for number, result in enumerate(results)}
    return cases, expected
