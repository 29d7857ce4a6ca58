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
from pathlib import Path
from textwrap import dedent

import numpy as np
import torch
from torch import Tensor

from scornn.errors import ScornnError, UsageError
from scornn.nn import SequenceModel
from scornn.nn.frames import INPUT, OUTPUT, Frames, Operation
from scornn.ops.activations import COMPLEX_EPSILON, LEAKY_SLOPE


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
            function = "multiply"
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
        functions = [text for key, text in _functions(self.int8).items() if key in self.used]
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


def _functions(int8: bool) -> dict[str, str]:
    """The C functions, each before those that call it."""
    if int8:
        multiply = """
        /* y = W x + b, W (rows, columns) in 8 bits with a scale for each row; b may be 0. */
        static void multiply(int rows, int columns, const signed char *W, const float *scale, const float *b,
                             const float *x, float *y) {
            int i, j;
            for (i = 0; i < rows; ++i) {
                const signed char *row = W + i * columns;
                float sum = 0.0f;
                for (j = 0; j < columns; ++j) sum += (float)row[j] * x[j];
                y[i] = scale[i] * sum + (b ? b[i] : 0.0f);
            }
        }
        """
    else:
        multiply = """
        /* y = W x + b, W (rows, columns); b may be 0. Four sums at once: one alone waits for each addition. */
        static void multiply(int rows, int columns, const float *W, const float *b, const float *x, float *y) {
            int i, j;
            for (i = 0; i < rows; ++i) {
                const float *row = W + i * columns;
                float s0 = b ? b[i] : 0.0f, s1 = 0.0f, s2 = 0.0f, s3 = 0.0f;
                for (j = 0; j + 4 <= columns; j += 4) {
                    s0 += row[j] * x[j];
                    s1 += row[j + 1] * x[j + 1];
                    s2 += row[j + 2] * x[j + 2];
                    s3 += row[j + 3] * x[j + 3];
                }
                for (; j < columns; ++j) s0 += row[j] * x[j];
                y[i] = (s0 + s1) + (s2 + s3);
            }
        }
        """
    additive = """
        static void {name}(int n, const float *u, const float *v, float *h) {{
            int i;
            for (i = 0; i < n; ++i) {{
                const float z = u[i] + v[i];
                h[i] = {value};
            }}
        }}
        """
    texts = {
        "multiply": multiply,
        "sigmoid": """
        static float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
        """,
        "gelu_of": """
        static float gelu_of(float x) { return 0.5f * x * (1.0f + erff(0.70710678f * x)); }
        """,
        "modrelu": """
        /* sign(z) relu(|z| + b), z = u + v */
        static void modrelu(int n, const float *b, const float *u, const float *v, float *h) {
            int i;
            for (i = 0; i < n; ++i) {
                const float z = u[i] + v[i], size = (z < 0.0f ? -z : z) + (b ? b[i] : 0.0f);
                h[i] = size > 0.0f && z != 0.0f ? (z < 0.0f ? -size : size) : 0.0f;
            }
        }
        """,
        "complex_modrelu": """
        /* z relu(|z| + b) / (|z| + epsilon) of pairs z = u + v */
        static void complex_modrelu(int n, const float *b, const float *u, const float *v, float *h) {
            int i;
            for (i = 0; i < n; i += 2) {
                const float re = u[i] + v[i], im = u[i + 1] + v[i + 1], r = sqrtf(re * re + im * im);
                const float size = r + (b ? b[i] : 0.0f), gain = size > 0.0f ? size / (r + EPSILON) : 0.0f;
                h[i] = gain * re;
                h[i + 1] = gain * im;
            }
        }
        """.replace("EPSILON", _literal(COMPLEX_EPSILON)),
        "identity": additive.format(name="identity", value="z"),
        "relu": additive.format(name="relu", value="z > 0.0f ? z : 0.0f"),
        "leaky_relu": additive.format(name="leaky_relu", value=f"z > 0.0f ? z : {_literal(LEAKY_SLOPE)} * z"),
        "tanh_of": additive.format(name="tanh_of", value="tanhf(z)"),
        "lstm": """
        static void lstm(int n, const float *u, const float *v, float *c, float *h) {
            int k;
            for (k = 0; k < n; ++k) {
                const float i = sigmoid(u[k] + v[k]), f = sigmoid(u[n + k] + v[n + k]);
                const float g = tanhf(u[2 * n + k] + v[2 * n + k]), o = sigmoid(u[3 * n + k] + v[3 * n + k]);
                c[k] = f * c[k] + i * g;
                h[k] = o * tanhf(c[k]);
            }
        }
        """,
        "gru": """
        static void gru(int n, const float *b, const float *u, const float *v, float *h) {
            int k;
            for (k = 0; k < n; ++k) {
                const float r = sigmoid(u[k] + v[k] + b[k]), g = sigmoid(u[n + k] + v[n + k] + b[n + k]);
                const float c = tanhf(r * (v[2 * n + k] + b[3 * n + k]) + u[2 * n + k] + b[2 * n + k]);
                h[k] = g * h[k] + (1.0f - g) * c;
            }
        }
        """,
        "goru": """
        static void goru(int n, const float *b, const float *u, const float *v, float *h) {
            int k;
            for (k = 0; k < n; ++k) {
                const float r = sigmoid(u[k] + v[k] + b[k]), g = sigmoid(u[n + k] + v[n + k] + b[n + k]);
                const float a = r * v[2 * n + k] + u[2 * n + k], size = (a < 0.0f ? -a : a) + b[2 * n + k];
                const float c = size > 0.0f && a != 0.0f ? (a < 0.0f ? -size : size) : 0.0f;
                h[k] = g * h[k] + (1.0f - g) * c;
            }
        }
        """,
        "turn": """
        /* h = R h + z: R turns pairs of units. Its numbers come in two parts, whose sum has twice the digits: a rounded
         * angle would drift away over many steps. */
        static void turn(int n, const float *R, const float *z, float *h) {
            int i;
            for (i = 0; i < n; i += 2) {
                const float a = h[i], b = i + 1 < n ? h[i + 1] : 0.0f;
                const float *r = R + i;
                h[i] = (r[2 * n] * a + r[3 * n] * b + z[i]) + (r[0] * a + r[n] * b);
                ++r;
                if (i + 1 < n) h[i + 1] = (r[2 * n] * b + r[3 * n] * a + z[i + 1]) + (r[0] * b + r[n] * a);
            }
        }
        """,
        "norm": """
        static void norm(int n, const float *weight, const float *bias, float epsilon, const float *x, float *y) {
            int i;
            float mean = 0.0f, square = 0.0f, scale;
            for (i = 0; i < n; ++i) mean += x[i];
            mean /= (float)n;
            for (i = 0; i < n; ++i) square += (x[i] - mean) * (x[i] - mean);
            scale = 1.0f / sqrtf(square / (float)n + epsilon);
            for (i = 0; i < n; ++i) y[i] = (x[i] - mean) * scale * weight[i] + bias[i];
        }
        """,
        "gate": """
        /* gelu(a) sigmoid(g), (a, g) = u + v */
        static void gate(int n, const float *u, const float *v, float *y) {
            int i;
            for (i = 0; i < n; ++i) y[i] = gelu_of(u[i] + v[i]) * sigmoid(u[n + i] + v[n + i]);
        }
        """,
        "add": """
        static void add(int n, const float *x, float *y) {
            int i;
            for (i = 0; i < n; ++i) y[i] += x[i];
        }
        """,
        "pick": """
        static void pick(int n, int stride, const float *x, float *y) {
            int i;
            for (i = 0; i < n; ++i) y[i] = x[i * stride];
        }
        """,
        "mean": """
        static void mean(int n, const float *x, float *sum, float *count, float *y) {
            int i;
            *count += 1.0f;
            for (i = 0; i < n; ++i) {
                sum[i] += x[i];
                y[i] = sum[i] / *count;
            }
        }
        """,
        "gelu": """
        static void gelu(int n, float *x) {
            int i;
            for (i = 0; i < n; ++i) x[i] = gelu_of(x[i]);
        }
        """,
    }
    return {name: dedent(text).lstrip("\n") for name, text in texts.items()}
