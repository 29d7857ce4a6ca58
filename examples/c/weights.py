"""Writes weights.bin for stream.c from a scoRNN of one layer: ``python weights.py RUN weights.bin``."""

import sys
from pathlib import Path

import numpy as np

import scornn

network = scornn.load(sys.argv[1])
frozen = network.frozen()
layer, head, h0 = frozen.layer.recurrence("_l0"), frozen.head[0], frozen.initial_state(batch=1)[0]
sizes = np.array([*layer.U.shape, network.task.output_size], dtype=np.int64)
parts = (layer.W, layer.U, layer.b, h0, head.weight, head.bias)
Path(sys.argv[2]).write_bytes(sizes.tobytes() + b"".join(part.numpy().tobytes() for part in parts))
