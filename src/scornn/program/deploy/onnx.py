"""A frozen network as an ONNX graph, of standard operators alone.

A dense recurrence, a linear memory and a GORU are one ``Scan`` over time; LSTM and GRU are ONNX's own. T and B are
free. Inputs are ``x (T, B, m)`` and the state, for each sequence or one for all. Outputs are ``y`` and the state after
the last step, so that a sequence may come in pieces. The state before the first step is zero; where one was learned, it
stands in the file's metadata under the input's name, as JSON.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

from scornn.nn.frozen import Recurrence
from scornn.ops.activations import COMPLEX_EPSILON, LEAKY_SLOPE
from scornn.program.deploy.frozen import Frozen

OPSET = 18
IR_VERSION = 8
"""What ONNX Runtime has read since 1.14, of 2023."""

_TYPES = {torch.float32: TensorProto.FLOAT, torch.float64: TensorProto.DOUBLE}
_LSTM_ORDER, _GRU_ORDER = (0, 3, 1, 2), (1, 0, 2)
"""ONNX's gates i, o, f, g of torch's i, f, g, o; and z, r, n of torch's r, z, n."""


class _Graph:
    """Nodes and constants of a graph; a call of an operator's name adds a node and gives the name of its result."""

    def __init__(self, prefix: str = "") -> None:
        self.prefix, self.nodes, self.constants = prefix, [], []  # type: str, list[Any], list[Any]

    def constant(self, name: str, value: Tensor | np.ndarray[Any, Any]) -> str:
        array = value.detach().cpu().numpy() if isinstance(value, Tensor) else value
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(array), self.prefix + name))
        return self.prefix + name

    def add(self, operator: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        names = [f"{self.prefix}{operator}_{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(operator, list(inputs), names, **attributes))
        return names[0] if outputs == 1 else names

    def named(self, source: str, name: str) -> str:
        self.nodes.append(helper.make_node("Identity", [source], [name]))
        return name


def build(frozen: Frozen, about: dict[str, str]) -> bytes:
    """The file's content. ``about`` goes into its metadata."""
    weight = frozen.layer.like
    kind, graph = _TYPES[weight.dtype], _Graph()
    initial = frozen.initial_state(1)
    inputs = [helper.make_tensor_value_info("x", kind, ["T", "B", frozen.input_size])]
    states, shape = [], graph.add("Shape", "x", start=1, end=2)  # (B,)
    for name, default in zip(frozen.state_names, initial, strict=True):
        count, _, size = default.shape
        if bool(default.any()):
            about = about | {f"{name}0": json.dumps(default.tolist())}
        inputs.append(helper.make_tensor_value_info(f"{name}0", kind, [count, f"B_{name}0", size]))
        ends = (graph.constant(f"{name}_{end}", np.array([n])) for end, n in (("first", count), ("last", size)))
        first, last = ends
        whole = graph.add("Expand", f"{name}0", graph.add("Concat", first, shape, last, axis=0))
        parts = graph.add("Split", whole, outputs=count, axis=0, num_outputs=count)
        states.append([parts] if count == 1 else parts)
    y, last_states = _layers(graph, frozen, states)
    outputs = [_output(graph, y, "y", kind, frozen)]
    for name, parts, default in zip(frozen.state_names, last_states, initial, strict=True):
        graph.named(graph.add("Concat", *parts, axis=0), f"{name}_n")
        outputs.append(helper.make_tensor_value_info(f"{name}_n", kind, [default.shape[0], "B", default.shape[2]]))
    made = helper.make_graph(graph.nodes, "scornn", inputs, outputs, graph.constants)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    model.producer_name = "scornn"
    helper.set_model_props(model, about)
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString()


def _layers(graph: _Graph, frozen: Frozen, states: list[list[str]]) -> tuple[str, list[list[str]]]:
    """What the head reads, and the last states, each ``(1, B, n)``."""
    x, last, outputs = "x", [[] for _ in states], []  # type: str, list[list[str]], list[str]
    layer, run = frozen.layer, _gated if frozen.layer.kind in ("lstm", "gru") else _scan
    for index, suffix in enumerate(layer.suffixes()):
        reverse = index % layer.num_directions == 1
        output, after = run(graph, layer.recurrence(suffix), reverse, index, x, [of[index] for of in states])
        outputs.append(output)
        for of, state in zip(last, after, strict=True):
            of.append(state)
        if len(outputs) == layer.num_directions:
            x, outputs = outputs[0] if len(outputs) == 1 else graph.add("Concat", *outputs, axis=-1), []
    if frozen.read == "last":
        top = last[0][-layer.num_directions :]
        joined = top[0] if len(top) == 1 else graph.add("Concat", *top, axis=-1)
        x = graph.add("Squeeze", joined, graph.constant("state_axis", np.array([0])))
    return x, last


def _output(graph: _Graph, x: str, name: str, kind: int, frozen: Frozen) -> Any:
    """The head on states, under a name."""
    stride = frozen.layer.readout_stride
    if stride > 1:
        numbers = {"starts": 0, "ends": np.iinfo(np.int64).max, "axes": -1, "steps": stride}
        x = graph.add("Slice", x, *(graph.constant(f"read_{k}", np.array([v])) for k, v in numbers.items()))
    size = 0
    for index, module in enumerate(frozen.head):
        if isinstance(module, nn.Linear):
            product = graph.add("MatMul", x, graph.constant(f"head_V{index}", module.weight.mT))
            x, size = graph.add("Add", product, graph.constant(f"head_c{index}", module.bias)), module.out_features
        else:  # GELU: x (1 + erf(x / √2)) / 2
            like = frozen.layer.like
            scale, half, one = (graph.constant(f"head_{n}{index}", like.new_tensor(v)) for n, v in _GELU.items())
            curve = graph.add("Add", graph.add("Erf", graph.add("Mul", x, scale)), one)
            x = graph.add("Mul", graph.add("Mul", x, curve), half)
    graph.named(x, name)
    return helper.make_tensor_value_info(name, kind, (["T"] if frozen.read == "all" else []) + ["B", size])


_GELU = {"scale": math.sqrt(0.5), "half": 0.5, "one": 1.0}


def _scan(graph: _Graph, of: Recurrence, reverse: bool, index: int, x: str, state: list[str]) -> tuple[str, list[str]]:
    """U x for all steps at once, then one loop."""
    projected = graph.add("MatMul", x, graph.constant(f"U{index}", of.U.mT))
    axis = graph.constant(f"axis{index}", np.array([0]))
    body = _Graph(f"step{index}_")
    kind, rows, n = _TYPES[of.U.dtype], of.U.shape[0], of.W.shape[1]
    product = "" if of.kind == "bank" else body.add("MatMul", f"h_{index}", body.constant("W", of.W.mT))
    if of.kind == "bank":
        after = _turned(body, of, f"z_{index}", f"h_{index}", kind)
    elif of.kind == "goru":
        after = _goru(body, of, f"z_{index}", product, f"h_{index}")
    else:
        after = _activation(body, of.kind, of.b, body.add("Add", f"z_{index}", product), of.U)
    names = [body.named(after, f"{name}_{index}") for name in ("h_after", "h_out")]
    value = helper.make_tensor_value_info
    taken = [value(f"h_{index}", kind, ["B", n]), value(f"z_{index}", kind, ["B", rows])]
    given = [value(name, kind, ["B", n]) for name in names]
    inner = helper.make_graph(body.nodes, f"step_{index}", taken, given, body.constants)
    way = [int(reverse)]
    directions = {"scan_input_directions": way, "scan_output_directions": way}
    h0 = graph.add("Squeeze", state[0], axis)
    h_n, output = graph.add("Scan", h0, projected, outputs=2, body=inner, num_scan_inputs=1, **directions)
    return output, [graph.add("Unsqueeze", h_n, axis)]


def _turned(body: _Graph, of: Recurrence, added: str, h: str, kind: int) -> str:
    """One step as :func:`scornn.ops.bank.turned`, in double precision."""
    n = of.W.shape[1]
    other = body.constant("other", np.array([k ^ 1 if k ^ 1 < n else k for k in range(n)]))
    h, after = (body.add("Cast", value, to=TensorProto.DOUBLE) for value in (h, added))
    for number, units in enumerate((h, body.add("Gather", h, other, axis=-1))):
        after = body.add("Add", after, body.add("Mul", units, body.constant(f"turn{number}", of.W[number])))
    if of.b is not None:
        after = body.add("Add", after, body.constant("b", of.b.double()))
    return str(body.add("Cast", after, to=kind))


def _goru(body: _Graph, of: Recurrence, added: str, product: str, h: str) -> str:
    """One step as :func:`scornn.ops.gated.step`: a reset gate r on W h, an update gate g between h and c."""
    b = None if of.b is None else of.b.chunk(4)[:3]  # nothing stands beside W h
    a_r, a_g, a_c = body.add("Split", added, outputs=3, axis=-1, num_outputs=3)
    s_r, s_g, s_c = body.add("Split", product, outputs=3, axis=-1, num_outputs=3)
    gates = []
    for number, z in enumerate((body.add("Add", a_r, s_r), body.add("Add", a_g, s_g))):
        z = z if b is None else body.add("Add", z, body.constant(f"b_gate{number}", b[number]))
        gates.append(body.add("Sigmoid", z))
    r, g = gates
    candidate = body.add("Add", body.add("Mul", r, s_c), a_c)
    c = _activation(body, "modrelu", None if b is None else b[2], candidate, of.U)
    return str(body.add("Add", c, body.add("Mul", g, body.add("Sub", h, c))))  # g h + (1 − g) c


def _activation(body: _Graph, kind: str, b: Tensor | None, z: str, like: Tensor) -> str:
    if kind == "modrelu":
        size = body.add("Abs", z)
        size = size if b is None else body.add("Add", size, body.constant("b", b))
        return str(body.add("Mul", body.add("Sign", z), body.add("Relu", size)))
    if kind == "complex_modrelu":
        pairs = body.add("Reshape", z, body.constant("pairs", np.array([0, -1, 2])))
        last, epsilon = (
            body.constant("last", np.array([-1])),
            body.constant("epsilon", like.new_tensor(COMPLEX_EPSILON)),
        )
        r = body.add("ReduceL2", pairs, last, keepdims=1)
        size = r if b is None else body.add("Add", r, body.constant("b", b.unsqueeze(-1)))
        gain = body.add("Div", body.add("Relu", size), body.add("Add", r, epsilon))
        return str(body.add("Reshape", body.add("Mul", pairs, gain), body.constant("flat", np.array([0, -1]))))
    z = z if b is None else body.add("Add", z, body.constant("b", b))
    if kind == "leaky_relu":
        return str(body.add("LeakyRelu", z, alpha=LEAKY_SLOPE))
    return str(body.add({"relu": "Relu", "tanh": "Tanh", "identity": "Identity"}[kind], z))


def _gated(graph: _Graph, of: Recurrence, reverse: bool, index: int, x: str, state: list[str]) -> tuple[str, list[str]]:
    """ONNX's LSTM or GRU, its gates in ONNX's order."""
    order = _LSTM_ORDER if of.kind == "lstm" else _GRU_ORDER
    n, zero = of.W.shape[1], of.U.new_zeros(of.U.shape[0])
    b, b_hh = zero if of.b is None else of.b, zero
    if of.b is not None and of.kind == "gru":  # the fourth part of b stands beside W h
        b, b_hh = of.b[: 3 * n], torch.cat([zero[: 2 * n], of.b[3 * n :]])
    parts = {"U": of.U, "W": of.W, "b": b, "b_hh": b_hh}
    U, W, b, b_hh = (torch.cat([part.chunk(len(order))[gate] for gate in order]) for part in parts.values())
    weights = (U.unsqueeze(0), W.unsqueeze(0), torch.cat([b, b_hh]).unsqueeze(0))
    constants = [graph.constant(f"{name}{index}", w) for name, w in zip("UWb", weights, strict=True)]
    way: dict[str, Any] = {"direction": "reverse" if reverse else "forward", "hidden_size": n}
    if of.kind == "gru":
        way["linear_before_reset"] = 1
    operator, count = of.kind.upper(), 1 + len(state)
    output, *after = graph.add(operator, x, *constants, "", *state, outputs=count, **way)
    axis = graph.constant(f"axis{index}", np.array([1]))
    return graph.add("Squeeze", output, axis), after
