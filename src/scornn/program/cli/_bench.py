"""The measurements of ``scornn bench``. Contenders take turns, and the shortest time of each counts, so that another
program on the machine disturbs all of them or none.
"""

import importlib.util
import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from scornn.nn import MODELS, SequenceModel, build
from scornn.nn.catalogue import parameter_count
from scornn.ops import library, recurrence
from scornn.ops.sequence import RUNGS

Step = Callable[[], object]
Row = dict[str, Any]
TURN = 0.02
"""Seconds that a turn takes at least: the first call finds the caches as another contender left them."""


class Shape(NamedTuple):
    """A step to time, which gives all states, the last one, or all of them without gradients ("inference")."""

    name: str
    n: int
    B: int
    T: int
    m: int
    use: str

    @property
    def flops(self) -> float:
        """2 for each multiply-add of U x and W h; twice as many again for the gradients."""
        return (2.0 if self.use == "inference" else 6.0) * self.T * self.B * self.n * (self.n + self.m)


SHAPES = (
    Shape("mnist-170", 170, 50, 784, 1, "last"),
    Shape("mnist-512", 512, 50, 784, 1, "last"),
    Shape("copying", 190, 20, 1020, 10, "all"),
    Shape("adding", 170, 50, 750, 2, "last"),
    Shape("speech", 224, 28, 400, 129, "all"),
    Shape("small", 32, 8, 200, 4, "all"),
    Shape("one-stream", 170, 1, 1000, 1, "inference"),
)
PIXELS = (784, 50)
"""T and B of pixel MNIST."""
VARIANTS: dict[str, tuple[Row, ...]] = {"eurnn": ({"capacity": 2}, {"style": "fft"})}
IN_PYTORCH = {"lstm": "torch", "gru": "torch", "goru": "naive", "urnn": "manual", "eurnn": "manual"}
"""The backend beside which a model is timed."""
DEPLOYED = tuple(product((("scornn", 170), ("lstm", 128), ("gru", 128)), ((1, 1), (784, 1), PIXELS)))


def shortest(steps: dict[str, Step], rounds: int) -> dict[str, float]:
    """The seconds of the shortest call of every step, after a call to warm up.

    Not torch.utils.benchmark.Timer: its means over blocks of calls are lengthened by every other program.
    """
    best = dict.fromkeys(steps, math.inf)
    for step in steps.values():
        step()
    for _, (name, step) in product(range(rounds), steps.items()):
        now = time.perf_counter()
        end = now + TURN
        while now < end:
            begun = now
            step()
            now = time.perf_counter()
            best[name] = min(best[name], now - begun)
    return best


def contenders(shape: Shape) -> dict[str, Step]:
    """The same step of the best backend, which comes first, of the plain one and of torch's own layers."""
    random = torch.Generator().manual_seed(0)
    _, n, B, T, m, use = shape
    x, h0 = torch.randn(T, B, m, generator=random), torch.zeros(B, n)
    W = torch.linalg.qr(torch.randn(n, n, generator=random))[0].requires_grad_()
    U = torch.randn(n, m, generator=random).mul_(0.01).requires_grad_()
    b = torch.zeros(n, requires_grad=True)
    like = torch.ones(T, B, n) if use == "all" else torch.ones(B, n)

    def step(run: Callable[[], Any], parameters: list[torch.Tensor]) -> Step:
        def inference() -> None:
            with torch.no_grad():
                run()

        def train() -> None:
            output, last = run()
            used = output if use == "all" else last[0] if isinstance(last, tuple) else last
            torch.autograd.grad(used, parameters, like[..., : used.shape[-1]].expand_as(used))

        return inference if use == "inference" else train

    ours = next(rung.name for rung in RUNGS if rung.unavailable() is None)
    rungs = {name: step(partial(recurrence, x, h0, W, U, b, backend=name), [W, U, b]) for name in (ours, "naive")}
    peers = {"RNN": torch.nn.RNN(m, n), "LSTM": torch.nn.LSTM(m, lstm_size(n, m))}
    return rungs | {name: step(partial(peer, x), list(peer.parameters())) for name, peer in peers.items()}


def lstm_size(n: int, m: int) -> int:
    """The LSTM whose parameters, 4 (m k + k² + k) counting one bias, are nearest in number to the scoRNN's."""
    parameters = m * n + n * (n - 1) // 2 + n
    return max(1, round((math.sqrt((m + 1) ** 2 + parameters) - (m + 1)) / 2))


def recurrences(shapes: list[Shape], rounds: int) -> Iterator[Row]:
    """The recurrence beside its peers."""
    for shape in shapes:
        seconds = shortest(contenders(shape), rounds)
        ours = next(iter(seconds))
        row: Row = {"shape": shape.name, "n, B, T, m": ", ".join(map(str, shape[1:5])), "ms": 1e3 * seconds[ours]}
        row["of peak"] = shape.flops / seconds[ours]
        yield row | {f"× {name}": seconds[name] / seconds[ours] for name in ("naive", "RNN", "LSTM") if name != ours}


def models(names: list[str], rounds: int) -> Iterator[Row]:
    """A training step of every model at the shape of pixel MNIST, without the update, on made-up images."""
    T, B = PIXELS
    x, labels = torch.rand(T, B, 1), torch.randint(10, (B,))

    def step(network: SequenceModel) -> None:
        torch.autograd.grad(F.cross_entropy(network(x), labels), [p for p in network.parameters() if p.requires_grad])

    for name in names:
        for n, options in product(MODELS[name].bench, VARIANTS.get(name, ({},))):
            network = SequenceModel(build(name, 1, n, **options), 10, "last")
            with FlopCounterMode(display=False) as counter:
                step(network)
            seconds = shortest({"ours": partial(step, network)}, rounds)["ours"]
            called = " ".join([name, *(f"{key}={value}" for key, value in options.items())])
            row: Row = {"model": called, "n": n, "parameters": parameter_count(network), "ms": 1e3 * seconds}
            row |= {"of peak": counter.get_total_flops() / seconds, "PyTorch ms": None, "×": None}
            if name in IN_PYTORCH:
                plain = SequenceModel(build(name, 1, n, backend=IN_PYTORCH[name], **options), 10, "last")
                row["PyTorch ms"] = 1e3 * shortest({"plain": partial(step, plain)}, 1)["plain"]
                row["×"] = row["PyTorch ms"] / row["ms"]
            yield row


def deployed(rounds: int) -> Iterator[Row]:
    """A network without gradients: as it was trained, frozen, and in ONNX Runtime where that is installed."""
    from scornn.program.deploy.frozen import Frozen

    for (name, n), (T, B) in DEPLOYED:
        network = SequenceModel(build(name, 1, n), 10, "last").eval()
        frozen, x = Frozen(network), torch.randn(T, B, 1)
        steps: dict[str, Step] = {
            "network": partial(network, x),
            "frozen": partial(frozen, x, *frozen.initial_state(B)),
        }
        if importlib.util.find_spec("onnx") and importlib.util.find_spec("onnxruntime"):
            steps["ONNX Runtime"] = in_onnxruntime(network, x)
        with torch.no_grad():
            ms = {way: 1e3 * seconds for way, seconds in shortest(steps, rounds).items()}
        yield {"model": f"{name}, n = {n}", "T, B": f"{T}, {B}"} | {
            f"{way} ms": ms.get(way) for way in (*steps, "ONNX Runtime")
        }


def in_onnxruntime(network: SequenceModel, x: torch.Tensor) -> Step:
    """A call of the exported file, which keeps the state for the next one."""
    import onnxruntime

    from scornn.program.deploy import onnx
    from scornn.program.deploy.frozen import Frozen

    frozen, options = Frozen(network), onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(onnx.build(frozen, {}), options, providers=["CPUExecutionProvider"])
    names = [f"{name}0" for name in frozen.state_names]
    given = {"x": x.numpy()} | {
        name: state.numpy() for name, state in zip(names, frozen.initial_state(x.shape[1]), strict=True)
    }

    def step() -> None:
        _, *states = session.run(None, given)
        given.update(zip(names, states, strict=True))

    return step


def peak() -> tuple[float, float]:
    """The most float32 operations in a second that the threads reached with fused multiply-adds alone, and the share
    of the wall time that the processors gave them: below 1 the cores are shared. (0, 1) without the kernel.
    """
    kernel, threads = library.load(), torch.get_num_threads()
    if isinstance(kernel, str):
        return 0.0, 1.0
    iterations, best = 10_000_000, 0.0
    clock, processor = time.perf_counter(), time.process_time()
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(8):
            begun = time.perf_counter()
            done = sum(pool.map(lambda _: kernel.peak(0, kernel.isa, iterations), range(threads)))
            best = max(best, done / (time.perf_counter() - begun))
    return best, (time.process_time() - processor) / (threads * (time.perf_counter() - clock))
