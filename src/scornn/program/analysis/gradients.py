"""How the gradient travels back in time: ‖∂L/∂h_t‖ for every step t."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import torch
import torch.nn.functional as F
from torch import Tensor

from scornn.matrices import cached
from scornn.nn import SequenceModel
from scornn.program import durable
from scornn.program.tasks import Batch, Task
from scornn.program.train import program
from scornn.program.train.config import build
from scornn.program.train.engine import Engine

FILE = "gradients.json"

Loss = Callable[[Tensor, Batch], Tensor]


def gradient_norms(model: SequenceModel, batch: Batch, loss: Loss | None = None) -> Tensor:
    r"""‖∂L/∂h_t‖ for every step t, ``(T,)``: the derivative along every path from h_t to the loss, later states among
    them, and its Frobenius norm over the samples of the batch.

    The layer is run one step at a time with its state carried along, so this works for every layer with
    torch.nn.RNN's contract. Of several layers it is the top one's state; of an LSTM h_t, with its cell c_t held as
    another path of its own.

    Args:
        model: one direction only, for the last state of a sequence has two ends otherwise.
        batch: as a task makes it.
        loss: from the outputs and the batch to L. Default: the mean cross-entropy of whole-numbered targets, the
            mean squared error of others.

    Example:
        >>> from scornn.nn import ScoRNN
        >>> model = SequenceModel(ScoRNN(2, 16), 1, read="last")
        >>> gradient_norms(model, Batch(torch.rand(30, 4, 2), torch.rand(4))).shape
        torch.Size([30])
    """
    layer = model.layer
    if layer.bidirectional or layer.batch_first:
        raise ValueError("gradient_norms needs a layer of one direction and with batch_first=False")
    if not layer.output_is_state:
        raise ValueError(f"gradient_norms needs a head on the states; a {type(layer).__name__} gives other outputs")
    states: list[Tensor] = []
    state: Any = None
    with torch.enable_grad(), cached(), _evaluated(model):
        for x in batch.inputs.unbind(0):
            _, state = layer(x.unsqueeze(0), state)
            h = state[0] if isinstance(state, tuple) else state
            states.append(h if h.requires_grad else h.requires_grad_())  # of a frozen network it does not
        outputs = _read(model, states, batch)
        total = (loss or _default_loss)(outputs, batch)
        gradients = torch.autograd.grad(total, states, materialize_grads=True)  # zero after the last step that counts
    return torch.stack([torch.linalg.vector_norm(g[-1]) for g in gradients])


@contextmanager
def _evaluated(model: SequenceModel) -> Iterator[None]:
    """No dropout, and no statistics of a batch."""
    before = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, training in before.items():
            module.training = training


def of_run(path: Path, *, data: Path | None = None) -> dict[str, Any]:
    """The norms of a run at its start and with its newest weights, written to ``gradients.json`` in it.

    Each is taken on the training batch that comes next. The start is drawn again from the run's seed. A run from other
    weights has its start in its first checkpoint; where that is gone, only the newest weights are taken.
    """
    task, engine, saved = program.load(path, data=data)
    config = msgspec.structs.replace(build(saved.config), device=engine.world.device)
    result: dict[str, Any] = {"moments": []}
    moments = {saved.step: engine.model}
    first = path / "checkpoints" / "step-0"
    if config.start is None:
        moments = {0: Engine(config, task).model, **moments}
    elif saved.step and first.is_dir():
        moments = {0: program.load(first, data=data)[1].model, **moments}
    for step, model in moments.items():
        batch = task.batch("train", *divmod(step, task.num_batches("train")))
        norms = gradient_norms(model, batch.to(config.device), task_loss(task))
        result["moments"].append({"step": step, "norms": [float(f"{value:.6g}") for value in norms.tolist()]})
    durable.write_json(path / FILE, result)
    return result


def task_loss(task: Task) -> Loss:
    """The loss that training minimises, as a number."""

    def loss(outputs: Tensor, batch: Batch) -> Tensor:
        total, count = task.loss(outputs, batch)
        return total / count

    return loss


def _read(model: SequenceModel, states: list[Tensor], batch: Batch) -> Tensor:
    """What the model's head makes of the top layer's states, as :class:`SequenceModel` reads them."""
    h, lengths = torch.stack([state[-1] for state in states]), batch.lengths
    if model.read == "last":
        h = h[-1] if lengths is None else h[lengths - 1, torch.arange(batch.size)]
    elif model.read == "mean":
        h = h.mean(0) if lengths is None else torch.stack([h[:n, k].mean(0) for k, n in enumerate(lengths.tolist())])
    y: Tensor = model.head(model.layer.readout(h))
    if model.read == "all" and lengths is not None:  # zero in the padding
        y = y.masked_fill(~batch.valid.unsqueeze(-1), 0)
    return y


def _default_loss(outputs: Tensor, batch: Batch) -> Tensor:
    if batch.lengths is not None:
        raise ValueError("a batch with lengths needs a loss of its own: give one, such as task_loss(task)")
    if batch.targets.is_floating_point():
        return F.mse_loss(outputs.reshape(batch.targets.shape), batch.targets)
    return F.cross_entropy(outputs.flatten(0, -2), batch.targets.flatten())
