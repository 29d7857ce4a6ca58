"""A network as one C99 file and its header: weights as constants, a state, and a function for one frame.

The file needs no heap and no library but ``math.h``, and not even that for a scoRNN. It prints the operations of
:class:`scornn.nn.frames.Frames`, in float32.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from scornn.errors import ScornnError, UsageError
from scornn.nn import SequenceModel
from scornn.nn.frames import INPUT, OUTPUT, Frames, Operation


@dataclass(frozen=True)
class Source:
    """The two files, and what they take of a device in bytes."""

    header: str
    code: str
    flash: int
    ram: int


def build(network: SequenceModel, name: str, *, int8: bool = False) -> Source:
    """Write a network in C.

    Args:
        network: one that reads in one direction, on the CPU.
        name: prefix of everything that the header declares.
        int8: store matrices as 8-bit integers with a scale for each row.
    """
    if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
        raise UsageError(f"{name!r} cannot be a name in C; call the file otherwise, such as gate.c")
    try:
        return _Writer(Frames(network), name, int8).source()
    except TypeError as error:
        raise UsageError(str(error)) from error


@torch.no_grad()
def largest_error(source: Source, name: str, network: SequenceModel, sample: Path | None) -> float:
    """Compile the file and run it in a process of its own; its largest difference from the network.

    Relative to the largest output, on the sequences of a sample (N, T, m), else on random ones.
    """
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        raise UsageError("a C file is compiled and compared before it is written: install a C compiler, or set CC")
    layer = network.layer
    if sample is None:
        random = torch.Generator().manual_seed(5544)
        sequences = [torch.randn(T * layer.stride, layer.input_size, generator=random) for T in (1, 8, 33)]
    else:
        try:
            sequences = list(torch.from_numpy(np.load(sample, allow_pickle=False).astype(np.float32)))
        except (OSError, ValueError, TypeError) as error:
            raise UsageError(f"{sample}: expected a NumPy file of sequences (N, T, m): {error}") from error
        if not sequences or sequences[0].shape[1:] != (layer.input_size,):
            raise UsageError(f"{sample}: expected sequences (N, T, {layer.input_size}) with at least one sequence")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        main = HARNESS.replace("NAME", name.upper()).replace("name", name)
        for file, text in ((f"{name}.c", source.code), (f"{name}.h", source.header), ("main_.c", main)):
            (path / file).write_text(text)
        command = [compiler, "-std=c99", "-O2", f"{name}.c", "main_.c", "-o", "run_", "-lm"]
        done = subprocess.run(command, cwd=path, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ScornnError(f"the C file does not compile: {done.stderr.strip()[-1000:]}")
        differences, largest = [], []
        for x in sequences:
            said = subprocess.run([path / "run_"], input=x.numpy().tobytes(), capture_output=True, check=True).stdout
            expected = network(x.unsqueeze(1))
            expected = expected[:, 0] if network.read == "all" else expected
            found = torch.from_numpy(np.frombuffer(said, np.float32).copy()).view(-1, expected.shape[-1])
            differences.append((found[-len(expected) :] - expected).abs().max())
            largest.append(expected.abs().max())
    return float(torch.stack(differences).max() / torch.stack(largest).max().clamp(min=1))


HARNESS = """#include <stdio.h>
#include "name.h"

int main(void) {
    static name_state state;
    float in[NAME_INPUTS], out[NAME_OUTPUTS];
    name_init(&state);
    while (fread(in, sizeof in, 1, stdin) == 1)
        if (name_step(&state, in, out)) fwrite(out, sizeof out, 1, stdout);
    return 0;
}
"""


@dataclass
class _Writer:
    frames: Frames
    name: str
    int8: bool
    constants: list[str] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    """The functions of ``_functions`` that the network calls."""
    flash: int = 0

    def source(self) -> Source:
        places, work = self.places()
        steps = [self.step(operation, places) for operation in self.frames.operations]
        return self.files(steps, work)

    def places(self) -> tuple[list[str], int]:
        """The expression of each array, and the numbers that the work array holds."""
        places, work = [], 0
        for number, array in enumerate(self.frames.arrays):
            if number in (INPUT, OUTPUT):
                places.append("in" if number == INPUT else "out")
            elif array.start is not None:
                places.append(f"s->{array.name}")
            else:
                places.append(f"s->work + {work}" if work else "s->work")
                work += array.size
        return places, work

    def array(self, name: str, values: Tensor) -> str:
        """Declare float constants; return their name."""
        numbers = values.detach().flatten().to(torch.float32).numpy()
        self.flash += 4 * numbers.size
        self.constants.append(_constant("float", name, [_literal(number) for number in numbers]))
        return name

    def matrix(self, name: str, values: Tensor) -> str:
        """Declare a matrix, and with ``int8`` the scales of its rows; return the arguments that pass it."""
        if not self.int8:
            return self.array(name, values)
        rows = values.detach().to(torch.float32)
        scale = rows.abs().amax(1).clamp_min(torch.finfo(torch.float32).tiny) / 127
        whole = (rows / scale.unsqueeze(1)).round().to(torch.int8).flatten().numpy()
        self.flash += whole.size
        self.constants.append(_constant("signed char", name, [str(number) for number in whole]))
        return f"{name}, {self.array(f'{name}_scale', scale)}"

    def step(self, o: Operation, places: list[str]) -> str:
        """The statement of one operation."""
        x, y = [places[k] for k in o.x], places[o.y]
        if o.kind == "every":
            return f"if (++{y}[0] < {o.m}) return 0;\n    {y}[0] = 0;"
        if o.kind == "multiply":
            (A, W), b = o.weights  # type: ignore[misc]
            arguments = [o.m, self.matrix(A, W), self.array(*b) if b else 0, *x]
            function = "multiply8" if self.int8 else "multiply"
        else:
            function = {"activate": o.cell, "gates": o.cell}.get(o.kind, o.kind)
            function = "tanh_of" if function == "tanh" else function
            weights = [self.array(*w) if w else "0" for w in o.weights if w or o.cell in _OWN_BIAS]
            numbers = [_literal(o.number)] if o.kind == "norm" else [o.m] if o.kind == "pick" else []
            arguments = [*weights, *numbers, *x]
        self.used |= {function, *_CALLS.get(function, ())}
        return f"{function}({', '.join(map(str, [o.n, *arguments, y]))});"

    def files(self, steps: list[str], work: int) -> Source:
        name, upper = self.name, self.name.upper()
        states = [array for array in self.frames.arrays if array.start is not None]
        fields = [f"    float {array.name}[{array.size}];" for array in states]
        fields += [f"    float work[{work}];"] if work else []
        starts = []
        for array in states:
            assert array.start is not None
            first = "0.0f"
            if bool(array.start.any()):
                first = f"{self.array(f'{array.name}_start', array.start)}[i]"
            starts.append(f"    for (i = 0; i < {array.size}; ++i) s->{array.name}[i] = {first};")
        ram = 4 * (work + sum(array.size for array in states))
        inputs, outputs = self.frames.inputs, self.frames.outputs
        about = (
            f"/* {name}: a recurrent network of {inputs} inputs and {outputs} outputs, written by scornn.\n"
            f" * Weights: {self.flash:,} bytes of flash. State: {ram:,} bytes of RAM. */"
        )
        strided = any(operation.kind == "every" for operation in self.frames.operations)
        when = "where the frame has an output, else 0" if strided else "always"
        parameters = f"{name}_state *s, const float in[{upper}_INPUTS], float out[{upper}_OUTPUTS]"
        new_line = "\n"
        header = f"""{about}
#ifndef {upper}_H
#define {upper}_H

#define {upper}_INPUTS {inputs}
#define {upper}_OUTPUTS {outputs}

#ifdef __cplusplus
extern "C" {{
#endif

typedef struct {{
{new_line.join(fields)}
}} {name}_state;

/* Begin a sequence. */
void {name}_init({name}_state *s);

/* Take one frame and write the outputs. Returns 1 {when}. */
int {name}_step({parameters});

#ifdef __cplusplus
}}
#endif
#endif
"""
        functions = [text for key, text in _functions().items() if key in self.used]
        body = "\n    ".join(steps)
        parts = [
            f'#include "{name}.h"\n' + ("#include <math.h>\n" if self.used & _MATH else ""),
            *self.constants,
            *functions,
            f"void {name}_init({name}_state *s) {{\n    int i;\n" + "\n".join(starts) + "\n}\n",
            f"int {name}_step({parameters}) {{\n    {body}\n    return 1;\n}}\n",
        ]
        return Source(header, f"{about}\n" + "\n".join(parts), self.flash, ram)


def _literal(number: float) -> str:
    text = np.format_float_scientific(np.float32(number), unique=True, trim="0")
    return f"{text}f"


def _constant(kind: str, name: str, literals: list[str]) -> str:
    lines, line = [], "   "
    for literal in literals:
        if len(line) + len(literal) > 116:
            lines.append(line)
            line = "   "
        line += f" {literal},"
    lines.append(line)
    return f"static const {kind} {name}[{len(literals)}] = {{\n" + "\n".join(lines) + "\n};\n"


_OWN_BIAS = ("modrelu", "complex_modrelu")
_CALLS = {
    "lstm": ("sigmoid",),
    "gru": ("sigmoid",),
    "goru": ("sigmoid",),
    "gate": ("sigmoid", "gelu_of"),
    "gelu": ("gelu_of",),
}
_MATH = {"sigmoid", "tanh_of", "lstm", "gru", "gelu_of", "complex_modrelu", "norm"}


_NAME = re.compile(r"^static \w+ (\w+)\(", re.MULTILINE)


@cache
def _functions() -> dict[str, str]:
    """The C functions by name, each before those that call it."""
    text = resources.files("scornn.program.deploy").joinpath("frames.c").read_text(encoding="utf-8")
    blocks = text.split("\n\n")  # a function has no empty line
    found = {match[1]: f"{block.strip()}\n" for block in blocks if (match := _NAME.search(block))}
    return found
