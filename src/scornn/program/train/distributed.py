"""Several processes, one run: `torchrun --nproc-per-node 2 -m scornn train …`.

Every process makes the same global batch and takes its own samples of it; DDP averages the gradients; rank 0
alone writes. Collectives of the training loop time out after a minute, so a machine that vanishes ends the
job; a process that dies is noticed at once.
"""

import ctypes
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from threading import Timer
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

from scornn.errors import ScornnError, UsageError
from scornn.program.progress import log

T = TypeVar("T")
_LOCAL = ("localhost", "127.0.0.1", "::1")
_PR_SET_PDEATHSIG = 1
_SETTING_UP = timedelta(minutes=30)
_JOINING = timedelta(minutes=5)
"""How long the first process waits for the others."""
_PATIENCE = 5.0
"""Seconds after which it says what it waits for."""


@dataclass(frozen=True)
class World:
    """This process among its peers. The default is a process on its own."""

    rank: int = 0
    size: int = 1
    device: str = "cpu"
    launched: bool = False
    """Started by torchrun, which restarts the job after a failure: an interrupted run then continues by itself."""
    group: dist.ProcessGroup | None = None

    @property
    def first(self) -> bool:
        """Whether this process is the one that writes and speaks."""
        return self.rank == 0

    def add(self, values: Sequence[float]) -> list[float]:
        """The sums of these numbers over all processes."""
        if self.size == 1:
            return list(values)
        total = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(total, group=self.group)
        return [float(value) for value in total.tolist()]

    def average_(self, tensors: Sequence[torch.Tensor]) -> None:
        """Replace each tensor by its mean over all processes."""
        if self.size > 1:
            for tensor in tensors:
                dist.all_reduce(tensor, group=self.group)
                tensor /= self.size

    def gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """This tensor of every process, in the order of their ranks."""
        if self.size == 1:
            return [tensor]
        own = tensor.to(self.device)
        every = [torch.empty_like(own) for _ in range(self.size)]
        dist.all_gather(every, own, group=self.group)
        return [one.to(tensor.device) for one in every]

    def from_first(self, work: Callable[[], T]) -> T:
        """Do ``work`` on rank 0 and give every process its result (JSON, paths as text), or its refusal."""
        if self.size == 1:
            return work()
        answer: dict[str, Any] = {}
        error: ScornnError | None = None
        if self.first:
            try:
                answer = {"result": work()}
            except ScornnError as refusal:
                error, answer = refusal, {"error": str(refusal), "code": refusal.exit_code}
        answer = self._broadcast(answer)
        if error is not None:
            raise error
        if "error" in answer:
            refused = ScornnError(answer["error"])
            refused.exit_code = answer["code"]
            raise refused
        return answer["result"]

    def on_first(self, work: Callable[[], T]) -> T | None:
        """Do ``work`` on rank 0, whose result it is alone; every process gets its refusal."""
        result: list[T] = []
        self.from_first(lambda: result.append(work()))
        return result[0] if result else None

    def _broadcast(self, value: Any) -> Any:
        """As JSON: torch's own broadcast of objects would unpickle what comes over the network."""
        data = json.dumps(value, default=str).encode() if self.first else b""
        size = torch.tensor([len(data)], device=self.device)
        dist.broadcast(size, src=0)
        content = torch.zeros(int(size), dtype=torch.uint8, device=self.device)
        if self.first:
            content.copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8))
        dist.broadcast(content, src=0)
        return json.loads(content.cpu().numpy().tobytes())

    def close(self) -> None:
        """Leave the group."""
        if self.size > 1:
            dist.destroy_process_group()


def start(device: str) -> World:
    """Join the job that torchrun describes in the environment, if there is one."""
    launched = "TORCHELASTIC_RUN_ID" in os.environ
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if launched:
        die_with_parent()
    if size == 1:
        return World(device=device, launched=launched)
    rank, local = int(os.environ["RANK"]), int(os.environ.get("LOCAL_RANK", "0"))
    if device == "cuda":
        torch.cuda.set_device(local)
        device = f"cuda:{local}"
    elif os.environ.get("MASTER_ADDR") in _LOCAL:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group(
        "nccl" if device.startswith("cuda") else "gloo",
        store=_store(size),
        rank=rank,
        world_size=size,
        timeout=_SETTING_UP,
    )
    group = dist.new_group(timeout=timedelta(seconds=60))
    return World(rank, size, device, launched, group)


def _store(size: int) -> Any:
    """The launcher's store. It outlives a restart, and with it the addresses of dead processes, so on one machine
    each attempt gets keys of its own (pytorch issue 135712; over several machines the counts need not agree).
    """
    others = f"{size - 1} other process{'es' * (size > 2)}"
    where = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
    again = "start them all with `torchrun --nproc-per-node N -m scornn train …`, or unset WORLD_SIZE"
    notice = Timer(_PATIENCE, log.warning, [f"waiting for {others} at {where} (WORLD_SIZE = {size})"])
    notice.daemon = True
    notice.start()
    try:
        store: Any = next(rendezvous("env://", timeout=_JOINING))[0]
    except ValueError as error:  # no MASTER_ADDR, say
        raise UsageError(f"WORLD_SIZE = {size}: {error}; {again}") from None
    except (RuntimeError, dist.DistError) as error:
        raise UsageError(f"{others} did not come within {_JOINING} at {where}: {again}; {error}") from None
    finally:
        notice.cancel()
    if os.environ.get("LOCAL_WORLD_SIZE") == str(size):
        store = dist.PrefixStore(f"attempt {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)  # type: ignore[attr-defined]
    return store


def default_threads() -> int:
    """The cores that this process may use, or OMP_NUM_THREADS; torchrun's processes share the cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    if wanted.isdigit() and processes == 1:  # torchrun sets it to 1 by itself
        return max(1, int(wanted))
    return max(1, cores // processes)


def lost_peer(error: RuntimeError) -> bool:
    """Whether an error of a collective says that another process has gone."""
    text = str(error).lower()
    return isinstance(error, dist.DistError) or "gloo" in text or "connection" in text or "nccl" in text


def die_with_parent() -> None:
    """Ask Linux for SIGTERM when the process that started this one dies, so that no worker is left behind."""
    if sys.platform == "linux":
        parent = os.getppid()
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGTERM)
