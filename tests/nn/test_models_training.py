"""Every model learns on the paper's problems, and keeps its constraint while it does."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch
from torch import Tensor

from scornn import optim
from scornn.nn import MODELS, SequenceModel, build
from scornn.optim import StiefelStep
from scornn.program import tasks
from scornn.program.tasks import AddingConfig, CopyingConfig

CONSTRAINED = [
    ("scornn", {}),
    ("urnn", {}),
    ("eurnn", {}),
    ("eurnn", {"complex": False, "capacity": 6}),
    ("eurnn", {"style": "fft"}),
    ("ornn", {"reflections": 5}),
    ("ornn", {"reflections": 32}),
    ("goru", {}),
    ("exprnn", {}),
    ("dtriv", {"rebase_every": 3}),
    ("scurnn", {}),
    ("spectral", {"margin": 0.1}),
]


class Trainer:
    """A model with its optimizers: RMSprop, and the Stiefel step where W is itself the parameter."""

    def __init__(self, name: str, task: tasks.Task, n: int, lr: float, dtype: Any = None, **options: Any) -> None:
        torch.manual_seed(3)
        self.task, self.dtype = task, dtype
        self.layer: Any = build(name, task.input_size, n, dtype=dtype, **options)
        self.model = SequenceModel(self.layer, task.output_size, read=task.read)
        groups = optim.parameter_groups(self.model, lr=lr, recurrent_lr=lr)
        self.optimizers: list[torch.optim.Optimizer] = []
        for group in groups:
            stiefel = name == "full-urnn" and group["name"] == "recurrent"
            rule = StiefelStep(group["params"], lr=lr / 10) if stiefel else optim.RMSprop(group["params"], lr=lr)
            self.optimizers.append(rule)

    def step(self, number: int) -> float:
        batch = self.task.batch("train", 0, number)
        inputs = batch.inputs if self.dtype is None else batch.inputs.to(self.dtype)
        total, count = self.task.loss(self.model(inputs), batch)
        loss = total / count
        self.model.zero_grad()
        loss.backward()
        for optimizer in self.optimizers:
            optimizer.step()
        self.layer.after_step()
        return float(loss.detach())


def copying(length: int = 100) -> tasks.Task:
    return tasks.make(CopyingConfig(length=length, train_size=400, test_size=20, batch=10), seed=1)


def adding() -> tasks.Task:
    return tasks.make(AddingConfig(length=50, train_size=2000, test_size=20, batch=20), seed=1)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("task", [copying, adding])
def test_loss_falls(name: str, task: Any) -> None:
    trainer = Trainer(name, task(), 16, lr=3e-2 if name == "lstm" else 1e-2)
    losses = [trainer.step(number) for number in range(25)]
    first = sum(losses[:3]) / 3
    lowest = min(sum(losses[k : k + 5]) / 5 for k in range(21))  # at this rate a step may leap, by rounding alone
    assert lowest < 0.7 * first, losses


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(("name", "options"), CONSTRAINED, ids=str)
def test_constraint_holds_after_training_steps(name: str, options: dict[str, Any], dtype: torch.dtype) -> None:
    n = 32
    trainer = Trainer(name, copying(10), n, lr=0.05, dtype=dtype, **options)
    before = trainer.layer.weight_hh_l0.detach().clone()
    for number in range(10):
        trainer.step(number)
    assert not torch.allclose(trainer.layer.weight_hh_l0, before, atol=1e-3)
    assert trainer.layer.orthogonality_error() < 10 * n * torch.finfo(dtype).eps


def test_full_urnn_drifts_slowly_by_the_stiefel_step_and_at_once_without_it() -> None:
    n, eps = 16, torch.finfo(torch.float32).eps
    trainer = Trainer("full-urnn", copying(10), n, lr=0.5)
    start, drift = trainer.layer.weight_hh_l0.detach().clone(), []
    for number in range(40):
        trainer.step(number)
        drift.append(trainer.layer.orthogonality_error())
    assert (trainer.layer.weight_hh_l0 - start).abs().max() > 0.01
    assert drift[-1] < 40 * 10 * n * eps
    assert drift[-1] > drift[0]

    trainer.optimizers = [optim.RMSprop(trainer.model.parameters(), lr=1e-2)]
    trainer.step(0)
    assert trainer.layer.orthogonality_error() > 100 * drift[-1]


def test_rebasing_leaves_W_and_outputs_unchanged() -> None:
    layer: Any = build("dtriv", 3, 9, num_layers=2, rebase_every=None, dtype=torch.float64)
    with torch.no_grad():
        for p in optim.recurrent_parameters(layer).values():
            p.copy_(torch.randn_like(p))
    x = torch.randn(20, 2, 3, dtype=torch.float64)
    W, output, base = layer.weight_hh_l0.clone(), layer(x)[0], layer.base_hh_l0.clone()
    layer.rebase()
    torch.testing.assert_close(layer.weight_hh_l0, W, rtol=0, atol=1e-13)
    torch.testing.assert_close(layer(x)[0], output)
    assert not layer.skew_hh_l0.any()
    assert not torch.allclose(layer.base_hh_l0, base)


def test_the_base_moves_every_k_steps_of_the_optimizer() -> None:
    layer: Any = build("dtriv", 3, 5, rebase_every=2)
    moves = []
    for _ in range(6):
        with torch.no_grad():
            layer.skew_hh_l0.fill_(0.1)
        layer(torch.randn(4, 2, 3))
        layer.after_step()
        moves.append(not layer.skew_hh_l0.any())
    assert moves == [False, True] * 3
    for bad in (0, 2.5, True):
        with pytest.raises(ValueError, match="rebase_every"):
            build("dtriv", 3, 5, rebase_every=bad)
    layer.load_state_dict(
        {**{k: v for k, v in layer.state_dict().items() if "steps" not in k}, "forwards": torch.tensor(1)}
    )
    assert int(layer.steps_hh_l0) == 1  # as version 0.2 wrote it


def test_rebasing_resumes_bit_by_bit() -> None:
    def run(stop: int | None) -> list[Tensor]:
        trainer = Trainer("dtriv", adding(), 8, lr=0.01, rebase_every=3)
        for number in range(8):
            if number == stop:
                buffer = io.BytesIO()
                torch.save([trainer.model.state_dict(), *(o.state_dict() for o in trainer.optimizers)], buffer)
                buffer.seek(0)
                trainer = Trainer("dtriv", adding(), 8, lr=0.01, rebase_every=3)
                model, *states = torch.load(buffer)
                trainer.model.load_state_dict(model)
                for optimizer, state in zip(trainer.optimizers, states, strict=True):
                    optimizer.load_state_dict(state)
            trainer.step(number)
        return list(trainer.model.state_dict().values())

    straight = run(None)
    for stop in (2, 3, 5):
        assert all(torch.equal(a, b) for a, b in zip(straight, run(stop), strict=True)), stop


@pytest.mark.parametrize("name", [name for name in MODELS if name not in ("lstm", "gru")])
def test_every_parameter_is_in_one_group(name: str) -> None:
    model = SequenceModel(build(name, 2, 4), 3)
    groups = {g["name"]: g["params"] for g in optim.parameter_groups(model, lr=1.0, recurrent_lr=0.1)}
    ids = [id(p) for params in groups.values() for p in params]
    assert sorted(ids) == sorted(id(p) for p in model.parameters())
    names = {id(p): n for n, p in optim.named_parameters(model).items()}
    assert groups["recurrent"]
    assert all(names[id(p)].removeprefix("layer.").split("_")[0] not in ("bias", "h0") for p in groups["recurrent"])
