"""Layers in random contexts, one after the other: nothing crashes, no rung disagrees, and nothing is left behind.

    python tests/fuzz/layer.py SECONDS [SEED]

Each case draws a model with options, sizes and an input, sometimes packed, with a given state or with a NaN in one
sample, and builds it on every rung that runs here. What the naive rung computes, outputs and every gradient, is what
the others have to compute: plainly, inside a few drawn contexts (no_grad, inference mode, ``scornn.cached()``,
torch.func's transforms, batched and second gradients, torch.compile, autocast, threads, copies), and after each of them
again, also after fake and meta tensors. A rung may refuse a context, by one of the sentences below and no other. Ends
with how many cases there were; the first disagreement ends it at once, with the number of the case.
"""

import collections
import copy
import os
import pickle
import random
import re
import sys
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # threads that wait do not take the core of those that work

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call, grad, jvp, vmap
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

import scornn
from scornn.nn import MODELS, build
from scornn.ops import native

REFUSALS = re.compile(
    r"has no rule for torch\.func's transforms and forward-mode differentiation; take backend=\"naive\""
    r"|backend of scornn has no second derivative\. Build the layer with backend=\"naive\""
    r"|skew_exponential has no second derivative"
    r"|Batching rule not implemented for aten::(lstm|gru)\."  # torch's own, of the loop of torch.nn.LSTM and GRU
)
NONLINEARITIES = ("modrelu", "relu", "leaky_relu", "tanh", "identity")
OPTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    "scornn": {"nonlinearity": NONLINEARITIES, "bandwidth": (None, 1), "learn_h0": (False, True)},
    "spectral": {"margin": (0, 0.1), "learn_h0": (False, True)},
    "rnn": {"learn_h0": (False, True), "nonlinearity": ("tanh", "relu")},
    "urnn": {"form": ("dense", "fft", "auto")},
    "eurnn": {
        "complex": (True, False),
        "form": ("dense", "product", "auto"),
        "style": ("tunable", "fft"),
        "capacity": (1, 2, 3),
    },
    "goru": {"style": ("tunable", "fft")},
    "exprnn": {"nonlinearity": NONLINEARITIES},
    "linear-memory": {"start": ("uniform", "cayley"), "rho": (None, 1), "learn_h0": (False, True)},
}
Numbers = list[Tensor]


class Case:
    """A model with its numbers, its input, and what the naive rung makes of them."""

    def __init__(self, seed: int) -> None:
        self.draw = draw = random.Random(seed)
        torch.manual_seed(seed)
        native._SERIAL = draw.choice([0, 8e6])  # 0: every kernel call on two threads
        self.model = draw.choice(list(MODELS))
        self.options = {key: draw.choice(values) for key, values in OPTIONS.get(self.model, {}).items()}
        self.options |= {"num_layers": draw.choice([1, 1, 2]), "bidirectional": draw.random() < 0.3}
        self.options["bias"] = draw.random() < 0.8
        powers = self.options.get("style") == "fft"
        self.n = draw.choice([2, 4, 8, 16, 32]) if powers else draw.choice([1, 2, 3, 7, 8, 17, 33])
        T, B, m = draw.choice([1, 2, 5, 13]), draw.choice([1, 2, 3, 5]), draw.choice([1, 3, 9])
        self.naive = self.layer("naive", None, m)
        for parameter in self.naive.parameters():  # away from zeros
            parameter.data += 0.3 * torch.randn_like(parameter) * (parameter.dim() > 0)
        self.x = torch.randn(T, B, m, dtype=torch.float64)
        self.dirty = draw.random() < 0.15
        if self.dirty:
            self.x[T // 2, B // 2, 0] = torch.nan
        self.lengths = None
        if draw.random() < 0.3:
            self.lengths = torch.tensor([T, *(draw.randint(1, T) for _ in range(B - 1))])
        state = self.naive(self.x)[1]
        shape = [torch.randn(s.shape, dtype=s.dtype) for s in (state if isinstance(state, tuple) else (state,))]
        self.hx = None if draw.random() < 0.5 else tuple(shape) if isinstance(state, tuple) else shape[0]
        self.training = draw.random() < 0.5
        self.naive.train(self.training)
        here = {name for name, state in scornn.backends().items() if state == "available"}
        self.rungs = [name for name in type(self.naive).BACKENDS if name in here - {"naive"} | {"auto"}]

    def layer(self, backend: str, like: Any, m: int | None = None) -> Any:
        layer = build(self.model, m or self.x.shape[-1], self.n, backend=backend, **self.options).double()
        if like is not None:
            layer.load_state_dict(like.state_dict())
            layer.train(like.training)
        return layer

    def input(self, x: Tensor) -> Tensor | PackedSequence:
        return x if self.lengths is None else pack_padded_sequence(x, self.lengths, enforce_sorted=False)

    def results(self, layer: Any, x: Tensor | None = None) -> Numbers:
        """Output and last state of a forward."""
        output, last = layer(self.input(self.x if x is None else x), self.hx)
        output = output.data if isinstance(output, PackedSequence) else output
        return [output, *(last if isinstance(last, tuple) else (last,))]

    def gradients(self, layer: Any, run: Callable[..., Numbers] | None = None) -> Numbers:
        """Results, and the gradient of the input and of every parameter."""
        x = self.x.clone().requires_grad_()
        parts = self.results(layer, x) if run is None else run(layer, x)
        leaves = [x, *(p for p in layer.parameters() if p.requires_grad)]
        found = torch.autograd.grad(weighted(parts), leaves, allow_unused=True)
        zeros = (torch.zeros_like(leaf) if g is None else g for g, leaf in zip(found, leaves, strict=True))
        return [part.detach() for part in parts] + list(zeros)


def weighted(parts: Numbers) -> Tensor:
    terms = [(part * torch.linspace(-1, 1, part.numel(), dtype=part.dtype).view_as(part)).sum() for part in parts]
    return torch.stack(terms).sum()


def plain(case: Case, layer: Any) -> Numbers:
    return case.gradients(layer)


def no_grad(case: Case, layer: Any) -> Numbers:
    with torch.no_grad():
        return case.results(layer)


def inference(case: Case, layer: Any) -> Numbers:
    with torch.inference_mode(), scornn.cached():
        return [t.clone() for t in case.results(layer)]


def cached(case: Case, layer: Any) -> Numbers:
    with scornn.cached():
        with torch.no_grad():
            case.results(layer)
        return case.gradients(layer)


def vmapped(case: Case, layer: Any) -> Numbers:
    with torch.no_grad():
        return [vmap(lambda x: layer(x)[0], randomness="same")(torch.stack([case.x, 2 * case.x]))]


def vmapped_parameters(case: Case, layer: Any) -> Numbers:
    stacked = {name: torch.stack([p, 0.5 * p]).detach() for name, p in layer.named_parameters()}
    return [vmap(lambda values: functional_call(layer, values, (case.x,))[0], randomness="same")(stacked)]


def tangent(case: Case, layer: Any) -> Numbers:
    values = {name: p.detach() for name, p in layer.named_parameters()}
    directions = {name: torch.ones_like(p) for name, p in values.items()}
    with torch.set_grad_enabled(case.draw.random() < 0.5):
        run = lambda values, x: functional_call(layer, values, (x,))[0]  # noqa: E731
        return list(jvp(run, (values, case.x), (directions, torch.ones_like(case.x))))


def functional_gradient(case: Case, layer: Any) -> Numbers:
    values = {name: p.detach() for name, p in layer.named_parameters()}
    return list(grad(lambda values: weighted([functional_call(layer, values, (case.x,))[0]]))(values).values())


def batched_gradients(case: Case, layer: Any) -> Numbers:
    parts, leaves = case.results(layer), [p for p in layer.parameters() if p.requires_grad]
    rows = torch.stack([torch.ones_like(parts[0]), torch.full_like(parts[0], 0.5)])
    found = torch.autograd.grad(parts[0], leaves, rows, is_grads_batched=True, allow_unused=True)
    return [g for g in found if g is not None]


def second_gradients(case: Case, layer: Any) -> Numbers:
    x = case.x.clone().requires_grad_()
    (first,) = torch.autograd.grad(weighted([part.square() for part in case.results(layer, x)]), x, create_graph=True)
    return list(torch.autograd.grad(first.square().sum(), x))


def compiled(case: Case, layer: Any) -> Numbers:
    torch._dynamo.reset()
    torch.compiler.set_stance("default")
    backend = "inductor" if case.draw.random() < 0.05 else "aot_eager"
    run = torch.compile(lambda x: layer(x, case.hx), backend=backend)
    if case.lengths is not None:
        return case.gradients(layer)

    def results(layer: Any, x: Tensor) -> Numbers:
        output, last = run(x)
        return [output, *(last if isinstance(last, tuple) else (last,))]

    return case.gradients(layer, results)


def low_precision(case: Case, layer: Any) -> Numbers:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return case.gradients(layer)


def threads(case: Case, layer: Any) -> Numbers:
    found: list[Numbers] = []
    running = [threading.Thread(target=lambda: found.append(case.gradients(layer))) for _ in range(3)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    assert len(found) == 3
    return [t for numbers in found for t in numbers]


def last_state(case: Case, layer: Any) -> Numbers:
    with torch.set_grad_enabled(case.draw.random() < 0.5):
        last = layer(case.input(case.x), case.hx, need_output=False)[1]
    return list(last) if isinstance(last, tuple) else [last]


def read_by_a_head(case: Case, layer: Any) -> Numbers:
    V = torch.linspace(-1, 1, 2 * layer.readout_size, dtype=torch.float64).view(2, -1).requires_grad_()
    c = torch.ones(2, dtype=torch.float64, requires_grad=True)
    y = layer(case.x, case.hx, head=(V, c))[0]
    return [y, *torch.autograd.grad(weighted([y]), (V, c))]


def copies(case: Case, layer: Any) -> Numbers:
    return case.gradients(pickle.loads(pickle.dumps(copy.deepcopy(layer))))


def without_numbers(case: Case, layer: Any) -> Numbers:
    shape = (*case.x.shape[:2], 3)
    with FakeTensorMode(allow_non_fake_inputs=True):
        build(case.draw.choice(list(MODELS)), 3, 8)(torch.randn(shape))[0].sum().backward()
    with torch.device("meta"):
        assert build(case.draw.choice(list(MODELS)), 3, 8)(torch.empty(shape))[0].is_meta
    return []


def written(case: Case, layer: Any) -> Numbers:
    with torch.no_grad():
        W = getattr(layer, "weight_hh_l0", None)
        if W is not None and "weight_hh_l0" not in dict(layer.named_parameters()):
            W.mul_(2)
        layer.orthogonality_error()
    return []


CONTEXTS: dict[Callable[[Case, Any], Numbers], int] = {
    **dict.fromkeys([plain, no_grad, inference, cached, last_state, read_by_a_head, copies], 3),
    **dict.fromkeys([vmapped, vmapped_parameters, tangent, functional_gradient], 3),
    **dict.fromkeys([batched_gradients, second_gradients, low_precision, threads, without_numbers, written], 3),
    compiled: 1,
}
refusals: collections.Counter[str] = collections.Counter()


def attempt(case: Case, context: Callable[[Case, Any], Numbers], layer: Any) -> Numbers | str:
    """What a context gives, or the sentence by which it is refused."""
    state = case.draw.getstate()
    try:
        return context(case, layer)
    except RuntimeError as error:
        if not REFUSALS.search(str(error)):
            raise
        return str(error)
    finally:
        case.draw.setstate(state)  # the same draws on every rung


def compare(case: Case, ours: Numbers, expected: Numbers, what: str) -> None:
    for here, there in zip(ours, expected, strict=True):
        torch.testing.assert_close(
            here,
            there,
            rtol=1e-7,
            atol=1e-8 * (1 + float(there.detach().nan_to_num().abs().max()) if there.numel() else 1),
            equal_nan=True,
            msg=lambda m: f"{case.model} {case.options} n={case.n} x={tuple(case.x.shape)} {what}: {m}",
        )


def run(seed: int) -> bool:
    """One case; False where the model does not take the sizes that were drawn."""
    try:
        case = Case(seed)
    except ValueError:
        return False
    expected = case.gradients(case.naive)
    layers = {rung: case.layer(rung, case.naive) for rung in case.rungs}
    for context in [plain, *case.draw.choices(list(CONTEXTS), list(CONTEXTS.values()), k=3)]:
        if case.dirty and context in (vmapped, vmapped_parameters, second_gradients, tangent):
            continue
        there = attempt(case, context, case.naive)
        for rung, layer in layers.items():
            here = attempt(case, context, layer)
            what = f"{rung}, {context.__name__}"
            if isinstance(here, str):
                refusals[f"{rung} {context.__name__}: {REFUSALS.search(here)[0][:60]}"] += 1  # type: ignore[index]
            elif isinstance(there, str):
                raise AssertionError(f"{case.model} {what}: naive is refused ({there}) and {rung} is not")
            else:
                compare(case, here, there, what)
            compare(case, case.gradients(layer), expected, f"after {what}")
    return True


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(2)
    seconds, seed = float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    end, count, done = time.monotonic() + seconds, 0, 0
    while time.monotonic() < end:
        try:
            done += run(seed + count)
        except BaseException:
            print(f"case {seed + count}", flush=True)
            raise
        count += 1
    print(f"{done} cases, no disagreement; {count - done} more of sizes that a model does not take")
    for refusal, times in sorted(refusals.items()):
        print(f"  {times:5} × {refusal}")


if __name__ == "__main__":
    main()
