"""The native kernel in a process: threads, forks, memory, and a library that is missing or damaged."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import hashlib
import itertools
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from torch import Tensor

import scornn.ops
from scornn.nn import build
from scornn.ops import Operands, library, native
from scornn.ops.rung import _warn_once
from scornn.ops.workers import Workers

KERNEL = library.load()
needs_kernel = pytest.mark.skipif(isinstance(KERNEL, str), reason=f"no native kernel: {KERNEL}")

TRAIN = """
import os, sys, torch
from scornn.ops import Operands, native

# So small that torch itself uses one thread: its OpenMP threads would hang in a forked child.
def train(n=64, B=6, T=20):
    random = torch.Generator().manual_seed(0)
    W, U, b = (torch.randn(s, generator=random).div(9).requires_grad_() for s in ((n, n), (n, 2), (n,)))
    output, h_n = native.recurrence(Operands(torch.ones(T, B, 2), torch.zeros(B, n), W, U, b, "tanh"))
    return [output, h_n, *torch.autograd.grad(output.sum() + h_n.sum(), (W, U, b))]

def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))

native._SERIAL = 0
torch.set_num_threads(2)
"""


def run(script: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", TRAIN + script],
        capture_output=True,
        text=True,
        timeout=120,
        env=dict(os.environ) | environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@needs_kernel
def test_same_bits_from_call_to_call_and_from_many_python_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "_SERIAL", 0)
    before = torch.get_num_threads()
    torch.set_num_threads(3)

    def train(seed: int) -> list[Tensor]:
        random = torch.Generator().manual_seed(seed)
        W, U, x = (torch.randn(s, generator=random) for s in ((33, 33), (33, 2), (9, 7, 2)))
        W = W.div(6).requires_grad_()
        output, h_n = native.recurrence(Operands(x, torch.zeros(7, 33), W, U, None, "modrelu"))
        return [output, h_n, *torch.autograd.grad(h_n.sum() + output.square().sum(), W)]

    try:
        serial = [train(seed) for seed in range(10)]
        with ThreadPoolExecutor(4) as pool:
            many = list(pool.map(lambda k: train(k % 10), range(400)))
    finally:
        torch.set_num_threads(before)
    for k, ours in enumerate(many):
        assert all(torch.equal(a, b) for a, b in zip(ours, serial[k % 10], strict=True))


@needs_kernel
def test_forked_child_and_loader_worker_do_not_hang() -> None:
    script = """
expected = train()
child = os.fork()
if child == 0:
    os._exit(0 if same(train(), expected) else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

class Data(torch.utils.data.Dataset):
    def __len__(self): return 2
    def __getitem__(self, k):
        torch.set_num_threads(2)
        return [t.detach() for t in train()]

loader = torch.utils.data.DataLoader(Data(), batch_size=None, num_workers=1, multiprocessing_context="fork")
assert all(same(item, expected) for item in loader)
assert same(train(), expected)
print("ok")
"""
    assert run(script).strip() == "ok"


@needs_kernel
def test_training_step_keeps_little_more_than_the_states() -> None:
    """At most 1.3 times the bytes of the states (T + 1) B n, beyond input and parameters."""
    script = """
import resource
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
n, B, T = 64, 32, 8000
W, U, b = torch.eye(n).requires_grad_(), torch.zeros(n, 1).requires_grad_(), torch.zeros(n).requires_grad_()
x, h0 = torch.ones(T, B, 1), torch.zeros(B, n)
native.recurrence(Operands(x[:3], h0, W, U, b, "modrelu"))[1].sum().backward()
before = peak()
native.recurrence(Operands(x, h0, W, U, b, "modrelu"))[1].sum().backward()
print((peak() - before) / (4 * (T + 1) * B * n))
"""
    assert float(run(script)) <= 1.3


@needs_kernel
def test_instruction_set_by_environment() -> None:
    script = "from scornn.ops import library; k = library.load(); print(k if isinstance(k, str) else k.isa_name)"
    assert run(script, SCORNN_ISA="portable").strip() == "portable"
    assert "SCORNN_ISA is 'mmx'; expected one of best, portable, avx2, avx512" in run(script, SCORNN_ISA="mmx")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed package whose only place for the library is a folder of the test's own."""
    monkeypatch.setattr(scornn.ops, "__path__", [str(tmp_path)])
    monkeypatch.setattr(library, "load", library.load.__wrapped__)
    return tmp_path


def test_missing_library_falls_back(folder: Path) -> None:
    reason = native.unavailable()
    assert reason is not None
    assert reason.startswith("the kernel library is not installed")
    arguments: Any = (torch.ones(3, 2, 1), torch.zeros(2, 4), torch.eye(4), torch.ones(4, 1))
    with pytest.raises(RuntimeError, match='backend="native" cannot run: the kernel library is not installed'):
        scornn.ops.recurrence(*arguments, backend="native")
    _warn_once.cache_clear()
    with pytest.warns(UserWarning, match="the native kernel cannot run"):
        output, _ = scornn.ops.recurrence(*arguments)
    assert torch.equal(output, scornn.ops.recurrence(*arguments, backend="naive")[0])  # and no second warning


def ship(folder: Path, content: bytes, digest_of: bytes) -> None:
    """The library and, beside it, the digest of what it should be."""
    (folder / library.NAMES[0]).write_bytes(content)
    (folder / f"{library.NAMES[0]}.sha256").write_text(hashlib.sha256(digest_of).hexdigest() + "\n")


def flipped(content: bytes, count: int) -> bytes:
    damaged, random = bytearray(content), torch.Generator().manual_seed(0)
    for place in torch.randperm(len(content), generator=random)[:count].tolist():
        damaged[place] ^= 0xFF
    return bytes(damaged)


@needs_kernel
@pytest.mark.parametrize(
    "damage",
    [
        *(lambda content, share=share: content[: int(share * len(content))] for share in (0.0, 0.0001, 0.3, 0.999)),
        *(lambda content, count=count: flipped(content, count) for count in (1, 2000)),
    ],
)
def test_a_damaged_library_falls_back(damage: Callable[[bytes], bytes], folder: Path) -> None:
    assert isinstance(KERNEL, library.Library)
    content = KERNEL.path.read_bytes()
    ship(folder, damage(content), content)
    assert re.search("is damaged: its sha256 is .*; reinstall scornn", str(native.unavailable()))


@needs_kernel
def test_library_without_its_digest_or_something_else_in_its_place_falls_back(folder: Path) -> None:
    assert isinstance(KERNEL, library.Library)
    shutil.copy(KERNEL.path, folder / library.NAMES[0])
    assert "libscornn.so.sha256 is missing" in str(native.unavailable())
    page = b"<!DOCTYPE html>" + 100 * b"<p>404</p>"
    ship(folder, page, page)
    assert "cannot be loaded" in str(native.unavailable())


@needs_kernel
def test_library_of_another_version_falls_back(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(KERNEL, library.Library)
    content = KERNEL.path.read_bytes()
    ship(folder, content, content)
    assert native.unavailable() is None
    assert (library.digest(), library.instruction_set()) == (KERNEL.digest, KERNEL.isa_name)
    before = library.ABI_VERSION
    monkeypatch.setattr(library, "ABI_VERSION", before + 1)
    assert f"has interface version {before}, expected {before + 1}; reinstall scornn" in str(native.unavailable())


@needs_kernel
@pytest.mark.parametrize("number", range(4))
def test_structs_of_another_size_fall_back(number: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(KERNEL, library.Library)
    content = KERNEL.path.read_bytes()
    ship(folder, content, content)

    class Longer(library.STRUCTS[number]):  # type: ignore[misc, name-defined]
        _fields_ = (("more", ctypes.c_int64),)

    monkeypatch.setattr(library, "STRUCTS", (*library.STRUCTS[:number], Longer, *library.STRUCTS[number + 1 :]))
    size = ctypes.sizeof(Longer)
    assert f"its Longer has {size - 8} bytes, expected {size}; reinstall scornn" in str(native.unavailable())


def test_a_signal_frees_nothing_under_a_running_task() -> None:
    """The main thread leaves by an exception while another is in the kernel: the memory of its task lives on."""
    gate, alive = threading.Event(), []

    class Memory:
        pass

    def work(address: int) -> None:
        if threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt
        gate.wait(60)
        gc.collect()
        alive.append(memory() is not None)

    def interrupted(keep: Memory) -> None:
        with contextlib.suppress(KeyboardInterrupt):
            workers.run(work, [library.Task(), library.Task()], keep)

    workers = Workers()
    workers._openmp = None
    kept = Memory()
    memory = weakref.ref(kept)
    interrupted(kept)
    del kept
    gate.set()
    deadline = time.monotonic() + 60
    while memory() is not None and time.monotonic() < deadline:
        time.sleep(0.001)
        gc.collect()
    assert alive == [True]
    assert memory() is None
    workers.run(lambda address: None, [library.Task(), library.Task()], None)  # the thread serves on


def test_a_signal_may_raise_at_every_instruction_of_a_call() -> None:
    """The caller sees what the handler raised and nothing else, and the next call runs."""

    class Stop(Exception):
        pass

    def work(address: int) -> None:
        if threading.current_thread() is not threading.main_thread():
            time.sleep(0.001)  # so that the caller waits

    def raising_at(number: int) -> Callable[..., Any]:
        left = iter(range(number))

        def trace(frame: FrameType, event: str, argument: object) -> Any:
            frame.f_trace_opcodes = True
            if event == "opcode" and frame.f_code is not work.__code__ and next(left, None) is None:
                raise Stop
            return trace

        return trace

    workers, tasks, before = Workers(), [library.Task(), library.Task()], sys.gettrace()
    workers._openmp = None
    for number in itertools.count():
        try:
            sys.settrace(raising_at(number))
            workers.run(work, tasks, None)
            break
        except Stop:
            continue
        finally:
            sys.settrace(before)
    assert number > 50
    workers.run(work, tasks, None)


KINDS = ("scornn", "lstm", "gru", "goru", "urnn", "linear-memory")


def pointers(value: Any) -> Iterator[int]:
    """Every address in a struct of the kernel, and in those that it points to."""
    if isinstance(value, ctypes.Structure):
        for name, *_ in value._fields_:
            field = getattr(value, name)
            whole = isinstance(field, int) and dict(value._fields_)[name] is not ctypes.c_void_p
            yield from () if whole else pointers(field)
    elif isinstance(value, ctypes.Array):
        yield from () if value._type_ is ctypes.c_int64 else (p for p in value if p)
    elif isinstance(value, int):
        yield value
    elif value:  # a pointer to a struct
        yield from pointers(value.contents)


def tensors(value: object) -> Iterator[Tensor]:
    """Every tensor that an object holds."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from tensors(part)
    elif isinstance(value, native.Call):
        yield from tensors(vars(value))


@needs_kernel
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("inputs", [2, 40])
def test_what_the_tasks_point_into_is_kept(kind: str, inputs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, work = [], native._workers.run

    def run(kernel: Any, tasks: list[library.Task], keep: object) -> None:
        held = [(t.data_ptr(), t.data_ptr() + t.untyped_storage().nbytes()) for t in tensors(keep)]
        used = [p for task in tasks for p in pointers(task)]
        assert all(any(begin <= p < end for begin, end in held) for p in used)
        calls.append(len(used))
        work(kernel, tasks, keep)

    monkeypatch.setattr(native._workers, "run", run)
    layer = build(kind, inputs, 64, learn_h0=True) if kind in ("scornn", "urnn") else build(kind, inputs, 64)
    layer.backend = "native"
    x = torch.randn(5, 3, inputs, requires_grad=True)
    output, last = layer(x)
    (output.sum() + (last[0] if isinstance(last, tuple) else last).square().sum()).backward()
    assert len(calls) == 2
    assert min(calls) >= 5


@needs_kernel
def test_signals_that_raise_during_real_calls() -> None:
    """On the threads of the pool: whatever is made after the exception is not written to by what still runs."""
    script = f"""
import signal, time
from scornn.nn import build

native._workers._openmp = None

class Stop(Exception):
    pass

def stop(*_):
    raise Stop

def interrupted(layer, x, k):
    with torch.no_grad() if k % 2 else torch.enable_grad():
        output = layer(x)[0]
    signal.setitimer(signal.ITIMER_REAL, 2e-4 * (1 + k % 7))
    try:
        layer(x) if k % 2 else output.sum().backward()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)

signal.signal(signal.SIGALRM, stop)
stopped = 0
for kind in {KINDS}:
    layer, x = build(kind, 2, 64, backend="native"), torch.randn(400, 2, 2).requires_grad_()
    for k in range(20):
        try:
            interrupted(layer, x, k)
            continue
        except Stop:
            stopped += 1  # the frames that it came through hold their tensors up to here
        fresh = [torch.full((n,), 7.0) for n in (400 * 2 * 64, x.numel(), 128) for _ in range(3)]
        time.sleep(0.01)  # what still runs has ended by then
        assert all((t == 7).all() for t in fresh), kind
print(stopped)
"""
    assert int(run(script, OMP_WAIT_POLICY="passive")) >= 20


def test_the_first_step_imports_no_compiler() -> None:
    script = """
from scornn.nn import LSTM, ScoRNN
for layer in (ScoRNN(2, 8), ScoRNN(2, 8, backend="manual"), LSTM(2, 8)):
    layer(torch.ones(3, 2, 2))[0].sum().backward()
print([name for name in ("torch._dynamo", "torch._inductor", "sympy") if name in sys.modules])
"""
    assert run(script).strip() == "[]"
