"""Write a network in RTNeural's JSON: an LSTM, a GRU or a scoRNN, with its dense head.

python examples/rtneural/to_json.py RUN network.json

RTNeural loads the LSTM, the GRU and the head itself. A layer of type "modrelu" is for modrelu.h beside this file.
"""

import json
import sys
from typing import Any

import torch

import scornn
from scornn.nn import SequenceModel
from scornn.nn.frames import Frames


def rtneural(network: SequenceModel) -> dict[str, Any]:
    """The network as RTNeural's parser reads it: matrices (inputs, outputs), the update gate of a GRU first."""
    frames = Frames(network)
    if any(array.start is not None and bool(array.start.any()) for array in frames.arrays):
        raise ValueError("RTNeural begins with a state of zeros")
    layers, products = [], []
    for o in frames.operations:
        if o.kind == "multiply":
            (_, A), b = o.weights
            products.append((A, A.new_zeros(o.n) if b is None else b[1]))
        elif (o.kind, o.cell) in (("gates", "lstm"), ("gates", "gru"), ("activate", "modrelu")):
            (U, b), (W, _) = products
            products = []
            if o.cell == "gru":
                every = o.weights[0][1].view(4, o.n)  # of the gates r, z and n, and within the gate r
                order = torch.tensor([1, 0, 2])
                U, W = (A.view(3, o.n, -1)[order].flatten(0, 1) for A in (U, W))
                b = torch.stack([every[order].flatten(), torch.cat([every.new_zeros(2 * o.n), every[3]])])
            elif o.cell == "modrelu" and o.weights[0] is not None:
                b = o.weights[0][1]
            layers.append(_layer(o.cell, o.n, [U.T, W.T, b]))
        else:
            raise ValueError(f"RTNeural has no layer for {o.cell or o.kind}")
    layers += [_layer("dense", len(b), [A.T, b]) for A, b in products]
    return {"in_shape": [None, None, frames.inputs], "layers": layers}


def _layer(kind: str, n: int, weights: list[torch.Tensor]) -> dict[str, Any]:
    return {"type": kind, "activation": "", "shape": [None, None, n], "weights": [w.tolist() for w in weights]}


if __name__ == "__main__":
    run, to = sys.argv[1:]
    with open(to, "w", encoding="utf-8") as file:
        json.dump(rtneural(scornn.load(run)), file)
