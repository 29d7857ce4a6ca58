"""The hot loop: one sequence operator in three rungs, each tested against the one below in float64.

``naive`` (PyTorch and autograd; defines the operator) → ``manual`` (PyTorch, hand-written backward) → ``native``
(the C++ kernel of ``csrc/``).
"""

from scornn.ops.readout import readout
from scornn.ops.recurrence import BACKENDS, backends, recurrence

__all__ = ["BACKENDS", "backends", "readout", "recurrence"]
