"""The hot loop: the sequence operators in three rungs, each tested against the one below in float64.

``naive`` (PyTorch and autograd; defines the operator) → ``manual`` (PyTorch, hand-written backward) → ``native``
(the C++ kernel of ``csrc/``). They stand in one table, :data:`scornn.ops.sequence.RUNGS`.
"""

from scornn.ops import bank_scan, exponential, gated, product  # noqa: F401, enters their operators
from scornn.ops.sequence import BACKENDS, backends, chosen, readout, recurrence

__all__ = ["BACKENDS", "backends", "chosen", "readout", "recurrence"]
