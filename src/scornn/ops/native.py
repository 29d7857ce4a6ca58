"""The rung on the C++ kernel of ``csrc/``.

(Placeholder until the kernel lands. KERNEL AUTHOR: replace this file; build on ``ops.custom.register("native",
_forward, _backward)``, which makes the custom ops, fakes, autograd (with grads not materialised), and the error on a
second derivative; see manual.py for its use. The dispatcher in recurrence.py calls only unavailable() and recurrence.)
"""

from scornn.ops import manual

recurrence = manual.recurrence


def unavailable() -> str | None:
    return "it has not been built"
