"""The hot loop: the sequence operators in three rungs, each tested against the one below in float64.

``naive`` (PyTorch and autograd; defines the operator) → ``manual`` (PyTorch, hand-written backward) → ``native``
(the C++ kernel of ``csrc/``). What a cell is, and which rungs it has, stands in :data:`scornn.ops.rung.CELLS`.
"""

from scornn.ops import bank_scan, exponential, gated, product  # noqa: F401, enters their operators
from scornn.ops.rung import Operands, run
from scornn.ops.sequence import BACKENDS, backends, chosen, readout, recurrence

__all__ = ["BACKENDS", "Operands", "backends", "chosen", "readout", "recurrence", "run"]
