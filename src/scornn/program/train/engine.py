"""One training step and one evaluation: model, optimizers and task, and nothing of files or progress."""

import ctypes
import inspect
import math
import random
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from copy import deepcopy
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.optim.swa_utils import AveragedModel

from scornn import ops
from scornn.errors import DivergedError, UsageError
from scornn.matrices import cached
from scornn.nn import SequenceModel
from scornn.nn.catalogue import MODELS, build, options_of, parameter_count
from scornn.optim import RMSprop, StiefelStep, parameter_groups
from scornn.program import tasks
from scornn.program.tasks import Batch, Task, TaskForm
from scornn.program.tasks.catalogue import faults_told, foreign_file
from scornn.program.tasks.contract import take
from scornn.program.train.config import Average, Config, ModelConfig, StepRule
from scornn.program.train.distributed import World
from scornn.program.train.figures import Weights


class Outcome(NamedTuple):
    """A step that was made: the loss of its batch, and whether a process wants to stop."""

    loss: float
    stop: bool


def make_task(config: Config) -> Task:
    """The task of a config, with its data."""
    return tasks.make(config.task, config.seed, Path(config.data) if config.data else None)


def build_model(
    model: ModelConfig, task: Task | TaskForm, backend: str = "auto", network: type[SequenceModel] = SequenceModel
) -> SequenceModel:
    """The network of a config, freshly drawn from the global random generator."""
    options: dict[str, Any] = dict(model.options)
    if backend not in ops.BACKENDS:
        raise UsageError(f"backend = {backend!r}: expected one of {', '.join(ops.BACKENDS)}")
    if backend == "native" and (state := ops.backends()["native"]) != "available":
        raise UsageError(f"backend = native: {state}; expected auto, manual or naive")
    kind = MODELS[model.name].layer if model.name in MODELS else None
    if kind is not None and "backend" in inspect.signature(kind).parameters:
        options["backend"] = backend
    if kind is not None:
        _check_options(model.name, kind, model.options)
    try:
        with faults_told(kind or SequenceModel, model.name, "cannot be made", "model"):
            layer = build(model.name, task.input_size, model.hidden, **options)
    except (ValueError, TypeError) as error:
        raise UsageError(f"model.name = {model.name}, model.options = {model.options}: {error}") from None
    readout: dict[str, Any] = {} if model.readout is None else msgspec.structs.asdict(model.readout)
    strided = f"model.options.stride = {layer.stride}" if layer.stride > 1 else ""
    if task.read == "all" and (model.read or readout.get("norm") or strided):
        key = f"model.read = {model.read}" if model.read else strided or "model.readout.norm = true"
        raise UsageError(f"{key}: {task.name} has a target at every step, so every output is read by itself")
    readout["input_dropout"] = model.input_dropout
    given = {key: value for key, value in readout.items() if value is not None}
    return network(layer, task.output_size, read=model.read or task.read, **given)


def _check_options(name: str, kind: type, given: Mapping[str, Any]) -> None:
    """Refuse what a layer does not take, in the user's words."""
    known = options_of(kind)
    for key, value in given.items():
        if key not in known:
            raise UsageError(f"model.options.{key}: {name} takes no {key}; its options are {', '.join(known)}")
        if isinstance(known[key], bool) and not isinstance(value, bool):
            raise UsageError(f"model.options.{key} = {value!r}: expected true or false")


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def keep_freed_memory() -> None:
    """Tell glibc's malloc to keep what is freed; elsewhere nothing happens.

    A step frees and asks again for the same large tensors. glibc gives such blocks back to the system each time, and
    the next step waits while their pages are mapped and cleared once more.
    """
    if sys.platform.startswith("linux"):
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # other C libraries have none
        if mallopt is not None:
            mallopt(_M_MMAP_THRESHOLD, 1 << 30) or mallopt(_M_MMAP_THRESHOLD, 32 << 20)  # the most of older ones
            mallopt(_M_TRIM_THRESHOLD, (1 << 31) - 1)


class Engine:
    """The network of a config on its task, ready to step from its seed.

    ``model`` is the network itself; with several processes it runs inside DDP.
    """

    def __init__(self, config: Config, task: Task, world: World | None = None) -> None:
        world = world or World(device=config.device)
        self.task, self.world = task, world
        self.optimizer_config = config.optimizer
        keep_freed_memory()
        random.seed(config.seed)
        np.random.seed(config.seed)  # noqa: NPY002, a layer or a library might draw from it
        torch.manual_seed(config.seed)
        self.model = build_model(config.model, task, config.backend).to(world.device)
        self._forward: nn.Module = self.model
        if world.size > 1:
            # step() keeps buffers alike in every process. torch has renamed the option, and warns of the old name.
            known = inspect.signature(DistributedDataParallel).parameters
            unsynced: dict[str, Any] = {
                "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers": False
            }
            self._forward = DistributedDataParallel(
                self.model, process_group=world.group, gradient_as_bucket_view=True, **unsynced
            )
        norms = [module for module in self.model.modules() if isinstance(module, _NormBase)]
        self._statistics = [b for module in norms for b in module.buffers() if b.is_floating_point()]
        """The running means and variances of batch normalisation: each process has those of its own samples."""
        rest, recurrent, bias = config.optimizer.rest, config.optimizer.recurrent, config.optimizer.bias
        rules = {"rest": rest, "recurrent": recurrent}
        if isinstance(bias, float):
            rules["bias"] = msgspec.structs.replace(rest, lr=bias)
        self._rules = rules
        self._groups = parameter_groups(self.model, lr=rest.lr, recurrent_lr=recurrent.lr, bias=bias)
        self.parameters = [p for group in self._groups for p in group["params"]]
        steps_apart = recurrent != rest and "recurrent" not in [group["name"] for group in self._groups]
        self.unused_rule = "optimizer.recurrent" if steps_apart else None
        """A setting that changes nothing here: the network has no parameters that it is for."""
        self._steps_per_epoch = task.num_batches("train")
        self._total = config.length(self._steps_per_epoch)
        rule = config.optimizer.average
        self.average = averaged(self.model, rule) if rule and self.model.layer.averages else None
        if world.rank:  # weights are drawn alike, dropout is not
            torch.manual_seed(config.seed + (world.rank << 32))

    @cached_property
    def optimizers(self) -> dict[str, Optimizer]:
        """Of the groups of parameters. Made when they are first asked for: torch imports its compiler for them."""
        return {group["name"]: make_optimizer(group, self._rules[group["name"]]) for group in self._groups}

    def check_batches(self) -> None:
        """Refuse, before training, batches on which it would fail."""
        task, stride, processes = self.task, self.model.layer.stride, self.world.size
        for split in task.splits if stride > 1 else ():
            first = take(task, split, 0, 0)
            if first.lengths is not None or len(first.inputs) % stride:
                expected = (
                    f"a divisor of the {len(first.inputs)} steps" if first.lengths is None else "1 for the lengths"
                )
                raise UsageError(f"model.options.stride = {stride}: expected {expected} of {split} of {task.name}")
        if foreign_file(type(self.model.layer)) is not None:
            self._try_out(take(task, "train", 0, 0))
        if any(isinstance(module, nn.BatchNorm1d) for module in self.model.head.modules()):
            sizes = {"a batch": task.batch_size("train")}
            if self._total >= self._steps_per_epoch:
                sizes["the last batch"] = (task.size("train") - 1) % task.batch_size("train") + 1
            for which, size in sizes.items():
                if size // processes < 2:
                    raise UsageError(
                        f"model.readout.norm = true: {which} of training has {size} sample{'s' * (size > 1)} for "
                        f"{processes} process{'es' * (processes > 1)}, and one alone cannot be normalised; choose "
                        "another task.batch"
                    )

    def _try_out(self, batch: Batch) -> None:
        """One sample through a layer of someone else's, before anything is written: its faults are told as a task's."""
        batch = batch.shard(0, batch.size, self.task.read).to(self.world.device)
        layer = self.model.layer
        with faults_told(type(layer), type(layer).__name__, "fails on a sample of training", "layer"), torch.no_grad():
            self.model.eval()(batch.inputs, batch.lengths)
        self.model.train()

    def step(self, epoch: int, number: int, stop: bool = False) -> Outcome:
        """Batch ``number`` of ``epoch``, forward, backward, update.

        Raises :class:`DivergedError`, with the parameters untouched, if the loss or the gradient is not finite.
        """
        whole = take(self.task, "train", epoch, number)
        batch = whole.shard(self.world.rank, self.world.size, self.task.read)
        if empty := batch.size == 0:  # DDP wants a backward pass of every process: one sample, which does not count
            batch = whole.shard(0, whole.size, self.task.read)
        batch = batch.to(self.world.device)
        outputs = self._forward(batch.inputs, batch.lengths)
        with self._faults("loss", "train", number):
            total, count = self.task.loss(outputs, batch)
        if empty:
            total, count = total * 0, 0
        stopping = float(stop)
        if self.world.size == 1:
            loss = total / count
        else:
            # DDP averages over processes; the loss is a sum over all of them divided by one common count.
            sums = self.world.add([float(total.detach()), count, stopping])
            loss, stopping = total * (self.world.size / sums[1]), sums[2]
        for parameter in self.parameters:
            parameter.grad = None
        penalty = self.model.layer.penalty()
        (loss if penalty is None else loss + penalty).backward()
        self._set_rates(epoch * self._steps_per_epoch + number)
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        value, gradient_norm = torch.stack([loss.detach(), _norm(gradients)]).tolist()
        if self.world.size > 1:
            value = sums[0] / sums[1]
        finite = math.isfinite(gradient_norm)
        if not finite and self.optimizer_config.clip_norm is not None:  # its squares may overflow
            finite = all(bool(g.isfinite().all()) for g in gradients)
        if not math.isfinite(value) or not finite:
            said = self._divergence(value, gradient_norm)
            raise DivergedError(said + self.nonfinite_data("train", [number], epoch))
        self._clip(gradients, gradient_norm)
        for optimizer in self.optimizers.values():
            optimizer.step()
        self.model.layer.after_step()
        self.world.average_(self._statistics)
        if self.average is not None:
            self.average.update_parameters(self.model)
        return Outcome(value, stopping > 0)

    def network(self, weights: Weights = "raw") -> SequenceModel:
        """The network with the weights that are stepped, or with their average, put back on its manifold if need be."""
        if weights == "raw":
            return self.model
        assert self.average is not None
        network = deepcopy(self.average.module)
        assert isinstance(network, SequenceModel)
        network.layer.retract_()
        return network

    def evaluate(
        self, split: str, interrupted: Callable[[], bool] = lambda: False, weights: Weights = "raw"
    ) -> dict[str, float] | None:
        """Every metric of a split, each sample counted once; None if interrupted before the end."""
        sums: dict[str, list[float]] = {}
        network = self.network(weights).eval()
        try:
            with torch.no_grad(), cached():
                for number in range(self.world.rank, self.task.num_batches(split), self.world.size):
                    if self.world.size == 1 and interrupted():
                        return None
                    batch = take(self.task, split, 0, number).to(self.world.device)
                    outputs = network(batch.inputs, batch.lengths)
                    with self._faults("measure", split, number):
                        for name, (total, count) in self.task.measure(outputs, batch).items():
                            sums[name] = [a + b for a, b in zip(sums.get(name, [0, 0]), (total, count), strict=True)]
        finally:
            network.train()
        if self.world.size > 1:
            # A process without batches of this split does not know the metrics' names: rank 0 always has one.
            names = self.world.from_first(lambda: sorted(sums))
            flat = self.world.add([number for name in names for number in sums.get(name, [0, 0])])
            sums = {name: flat[2 * i : 2 * i + 2] for i, name in enumerate(names)}
        for name, (_, count) in sums.items():
            if not count:
                raise UsageError(
                    f"the task {self.task.name}: measure()[{name!r}] counts nothing in the whole of {split}; "
                    "expected a count over 0, or no such metric"
                )
        return {name: total / count for name, (total, count) in sums.items()}

    def nonfinite_data(self, split: str, numbers: Iterable[int], epoch: int = 0) -> str:
        """Name the first of some batches whose data hold NaN or infinity; empty where none does."""
        for number in numbers:
            batch = self.task.batch(split, epoch, number)
            parts = {"inputs": batch.inputs, "targets": batch.targets}
            if found := [name for name, tensor in parts.items() if not bool(tensor.isfinite().all())]:
                return f"; the {' and '.join(found)} of batch {number + 1} of {split} are not finite themselves"
        return ""

    def _faults(self, method: str, split: str, number: int) -> AbstractContextManager[None]:
        return faults_told(type(self.task), self.task.name, f"fails in {method}() of batch {number + 1} of {split}")

    def orthogonality(self, weights: Weights = "raw") -> float | None:
        """‖WᵀW − I‖_F where the layer constrains W."""
        return self.network(weights).layer.orthogonality_error()

    def parameter_count(self) -> int:
        """The numbers that are trained, less those that a constraint takes away."""
        return parameter_count(self.model)

    def _set_rates(self, step: int) -> None:
        if self.optimizer_config.schedule is None:
            return
        factor = self.optimizer_config.schedule.factor(step, self._total)
        for name, optimizer in self.optimizers.items():
            for group in optimizer.param_groups:
                group["lr"] = self._rules[name].lr * factor

    def _clip(self, gradients: list[Tensor], norm: float) -> None:
        limit = self.optimizer_config.clip_norm
        if limit is not None and norm > limit:
            if math.isinf(norm):  # the squares overflow
                torch._foreach_div_(gradients, max(float(g.abs().max()) for g in gradients if g.numel()))
                norm = float(_norm(gradients))
            torch._foreach_mul_(gradients, limit / norm)
        bound = self.optimizer_config.clip_value
        if bound is not None:
            torch._foreach_clamp_max_(gradients, bound)
            torch._foreach_clamp_min_(gradients, -bound)

    def _divergence(self, loss: float, norm: float) -> str:
        rates = ", ".join(f"{name} {o.param_groups[0]['lr']:g}" for name, o in self.optimizers.items())
        error = self.orthogonality()
        return f"loss {loss}, gradient norm {norm}, learning rates: {rates}" + (
            "" if error is None else f", orthogonality error {error:.3g}"
        )


def _norm(tensors: list[Tensor]) -> Tensor:
    """Of all their numbers together."""
    return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(tensors)))


def averaged(model: SequenceModel, rule: Average) -> AveragedModel:
    """A copy of the network whose parameters become the exponential average of those of the network."""

    def blend(averages: Any, parameters: Any, count: Any) -> None:
        t = float(count)
        torch._foreach_lerp_(averages, parameters, 1 - min(rule.decay, (1 + t) / (rule.warmup + t)))

    return AveragedModel(model, multi_avg_fn=blend)


def make_optimizer(group: dict[str, Any], rule: StepRule) -> Optimizer:
    """The optimizer of one group of parameters."""
    params = group["params"]
    if rule.kind == "rmsprop":
        return RMSprop(params, lr=rule.lr, flavour=rule.flavour, decay=rule.decay, eps=rule.eps)
    if rule.kind in ("adam", "adamw"):
        decay, eps = 0.999 if rule.decay is None else rule.decay, 1e-8 if rule.eps is None else rule.eps
        kind = torch.optim.Adam if rule.kind == "adam" else torch.optim.AdamW
        shrink = rule.weight_decay or 0.0
        return kind(params, lr=rule.lr, betas=(0.9, decay), eps=eps, weight_decay=shrink, fused=True)
    if rule.kind.startswith("stiefel"):
        decay, eps = 0.9 if rule.decay is None else rule.decay, 1e-8 if rule.eps is None else rule.eps
        try:
            return StiefelStep(params, rule.lr, rms=rule.kind == "stiefel-rms", decay=decay, eps=eps)
        except ValueError as error:
            raise UsageError(f"optimizer.{group['name']}.kind = {rule.kind}: {error}") from None
    return torch.optim.SGD(params, lr=rule.lr, foreach=True)
