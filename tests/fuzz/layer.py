"""Layers in random contexts, one after the other: nothing crashes, no rung disagrees, and nothing is left behind.

    python tests/fuzz/layer.py SECONDS [SEED]

Each case builds a random layer, uses it in a few contexts in a row (no_grad, inference mode, vmap, jvp, fake and meta
tensors, autocast, threads, ``scornn.cached()``), and after each compares its output and gradients with the naive rung
of a layer with the same numbers. Ends with a line that says how many cases there were; a disagreement ends it at once.
"""

import random
import sys
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import scornn
from scornn.nn import MODELS, build

ALLOWED = (RuntimeError, ValueError, NotImplementedError, TypeError)  # a refusal in words, in odd contexts alone


def contexts(layer: Any, x: torch.Tensor, draw: random.Random) -> dict[str, Callable[[], object]]:
    """What may be done with a layer before it is asked for numbers again."""

    def fake() -> object:
        with FakeTensorMode(allow_non_fake_inputs=True):
            return build(draw.choice(list(MODELS)), x.shape[-1], 8)

    def meta() -> object:
        with torch.device("meta"):
            build(draw.choice(list(MODELS)), x.shape[-1], 8)
        return layer

    def vmapped() -> object:
        with torch.no_grad():
            return torch.func.vmap(lambda one: layer(one)[1])(torch.stack([x, x]))

    def tangent() -> object:
        with torch.no_grad() if draw.random() < 0.5 else nullcontext():
            return torch.func.jvp(lambda one: layer(one)[0], (x,), (torch.ones_like(x),))

    def threads() -> object:
        running = [threading.Thread(target=lambda: layer(x)) for _ in range(3)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        return None

    def cached() -> object:
        with scornn.cached(), torch.no_grad() if draw.random() < 0.5 else nullcontext():
            return layer(x[:1]), layer(x)

    def inference() -> object:
        with torch.inference_mode(), scornn.cached() if draw.random() < 0.5 else nullcontext():
            return layer(x), getattr(layer, "weight_hh_l0", None)

    def low_precision() -> object:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return layer(x)

    def quiet() -> object:
        with torch.no_grad():
            return layer(x, need_output=False), layer.orthogonality_error()

    def written() -> object:
        with torch.no_grad():
            return getattr(layer, "weight_hh_l0", x).clone().mul_(2)

    return {
        f.__name__: f for f in (fake, meta, vmapped, tangent, threads, cached, inference, low_precision, quiet, written)
    }


def numbers(layer: Any, x: torch.Tensor) -> list[torch.Tensor]:
    """Output, last state, and the gradient of every parameter."""
    for p in layer.parameters():
        p.grad = None
    output, last = layer(x)
    parts = [output, *(last if isinstance(last, tuple) else (last,))]
    sum((part * torch.linspace(-1, 1, part.numel(), dtype=part.dtype).view_as(part)).sum() for part in parts).backward()
    return [part.detach() for part in parts] + [p.grad.clone() for p in layer.parameters() if p.grad is not None]


def case(seed: int) -> str:
    """One layer through its contexts; AssertionError where it disagrees with the naive rung."""
    draw = random.Random(seed)
    torch.manual_seed(seed)
    name = draw.choice(list(MODELS))
    n = draw.choice([2, 4, 8, 16, 32]) if name in ("eurnn", "goru") else draw.choice([1, 2, 3, 7, 8, 17, 33])
    shape = (draw.choice([1, 2, 5, 13]), draw.choice([1, 2, 5]), draw.choice([1, 3]))
    settings = {"num_layers": draw.choice([1, 1, 2]), "bidirectional": draw.random() < 0.3}
    try:
        layer: Any = build(name, shape[-1], n, **settings).double()
    except ValueError:  # a size that the model does not take
        return ""
    other: Any = build(name, shape[-1], n, backend="naive", **settings).double()
    other.load_state_dict(layer.state_dict())
    layer.eval(), other.eval()
    x = torch.randn(shape, dtype=torch.float64)
    expected = numbers(other, x)
    known = contexts(layer, x, draw)
    for context in draw.choices(list(known), k=3):
        with suppress(*ALLOWED):
            known[context]()
        for here, there in zip(numbers(layer, x), expected, strict=True):
            say = lambda message, context=context: f"{name} after {context}: {message}"  # noqa: E731
            torch.testing.assert_close(here, there, rtol=1e-8, atol=1e-9, msg=say)
    return name


def main() -> None:
    warnings.simplefilter("ignore")
    seconds, seed = float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    end, count, refused = time.monotonic() + seconds, 0, 0
    while time.monotonic() < end:
        try:
            refused += not case(seed + count)
        except BaseException:
            print(f"case {seed + count}", flush=True)
            raise
        count += 1
    print(f"{count - refused} cases, no disagreement; {refused} more of sizes that a model does not take")


if __name__ == "__main__":
    main()
