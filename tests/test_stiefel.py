"""The Stiefel step: it goes downhill, stays on the manifold, and is what its formula says."""

from __future__ import annotations

import pytest
import torch

from scornn.errors import UsageError
from scornn.nn import SequenceModel, build
from scornn.optim import StiefelStep, parameter_groups
from scornn.program.train.config import StepRule
from scornn.program.train.engine import make_optimizer


def unitary(n: int) -> torch.nn.Parameter:
    Q, _ = torch.linalg.qr(torch.randn(n, n, dtype=torch.complex128))
    return torch.nn.Parameter(torch.view_as_real(Q).clone())


@pytest.mark.parametrize("rms", [False, True])
def test_goes_downhill_and_stays_unitary(rms: bool) -> None:
    W, goal = unitary(6), torch.view_as_complex(unitary(6).detach())
    optimizer = StiefelStep([W], lr=0.01 if rms else 0.2, rms=rms)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = (torch.view_as_complex(W) - goal).abs().square().sum()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
    U = torch.view_as_complex(W.detach())
    assert (U.mH @ U - torch.eye(6)).abs().max() < 1e-13


def test_one_step_by_the_formula() -> None:
    W = unitary(4)
    before = torch.view_as_complex(W.detach().clone())
    W.grad = torch.randn(4, 4, 2, dtype=torch.float64)
    G, I, lr = torch.view_as_complex(W.grad.clone()), torch.eye(4, dtype=torch.complex128), 0.3
    B = G @ before.mH - before @ G.mH
    StiefelStep([W], lr=lr).step()
    expected = torch.linalg.inv(I + lr / 2 * B) @ (I - lr / 2 * B) @ before
    torch.testing.assert_close(torch.view_as_complex(W.detach()), expected)
    torch.testing.assert_close(B, -B.mH)


def test_a_matrix_may_lie_anywhere_in_memory() -> None:
    """As after torch.nn.utils.vector_to_parameters."""
    W, gradient = unitary(4), torch.randn(4, 4, 2, dtype=torch.float64)
    moved = torch.nn.Parameter(torch.cat([torch.zeros(1), W.detach().flatten()])[1:].view(4, 4, 2))
    assert moved.storage_offset() == 1
    for p in (W, moved):
        p.grad = gradient
        StiefelStep([p], lr=0.3).step()
    torch.testing.assert_close(moved, W)


def test_the_normalised_gradient_has_no_scale() -> None:
    first = unitary(4)
    second = torch.nn.Parameter(first.detach().clone())
    gradient = torch.randn(4, 4, 2, dtype=torch.float64)
    for W, scale in ((first, 1.0), (second, 1e3)):
        W.grad = gradient * scale
        StiefelStep([W], lr=0.1, rms=True, eps=0.0).step()
    torch.testing.assert_close(first, second)


def test_full_capacity_network_learns_with_it() -> None:
    model = SequenceModel(build("full-urnn", 2, 8), 1, read="last")
    groups = {group["name"]: group for group in parameter_groups(model, lr=1e-3, recurrent_lr=1e-3)}
    W = make_optimizer(groups["recurrent"], StepRule(kind="stiefel", lr=0.05))
    assert isinstance(W, StiefelStep)
    x, y = torch.rand(20, 16, 2), torch.rand(16, 1)
    losses = []
    for _ in range(30):
        model.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        W.step()  # W alone
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    assert model.layer.orthogonality_error() < 1e-5


def test_refusals() -> None:
    with pytest.raises(ValueError, match=r"shape \(n, n, 2\), got \(3, 4\)"):
        StiefelStep([torch.nn.Parameter(torch.zeros(3, 4))])
    optimizer = StiefelStep([unitary(2)])
    with pytest.raises(ValueError, match=r"shape \(n, n, 2\), got \(3, 4\)"):
        optimizer.add_param_group({"params": [torch.nn.Parameter(torch.zeros(3, 4))]})
    with pytest.raises(ValueError, match=r"float32 or float64, got torch\.bfloat16"):
        StiefelStep([torch.nn.Parameter(unitary(2).detach().bfloat16())])
    with pytest.raises(ValueError, match="lr must be"):
        optimizer.add_param_group({"params": [unitary(3)], "lr": -1.0})
    assert len(optimizer.param_groups) == 1
    with pytest.raises(ValueError, match="lr must be"):
        StiefelStep([unitary(2)], lr=-1)
    with pytest.raises(ValueError, match="decay must lie"):
        StiefelStep([unitary(2)], decay=1.0)
    group = {"name": "recurrent", "params": [torch.nn.Parameter(torch.zeros(3, 3))]}
    with pytest.raises(UsageError, match=r"optimizer\.recurrent\.kind = stiefel"):
        make_optimizer(group, StepRule(kind="stiefel", lr=1e-3))


def test_the_state_of_another_optimizer_is_refused() -> None:
    p = torch.nn.Parameter(torch.stack([torch.eye(3), torch.zeros(3, 3)], -1))
    with pytest.raises(ValueError, match="this is the state of another optimizer: a group has no"):
        StiefelStep([p], 1e-3).load_state_dict(torch.optim.Adam([p]).state_dict())
