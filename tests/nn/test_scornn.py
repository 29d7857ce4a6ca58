"""What is particular to ScoRNN: its initialisation, its matrix, its cell, and its orthogonality in training."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

import scornn
from scornn.functional import modrelu, orthogonality_error, scaled_cayley, skew


def angles(W: Tensor) -> Tensor:
    return torch.linalg.eigvals(W).angle().abs().sort().values


@pytest.mark.parametrize("n", [6, 7, 170])
def test_eigenvalues_start_where_the_paper_says(n: int) -> None:
    """rho = 0: on the right half-circle; n: on the left one; n/2: each half of them (section 4.2)."""
    right = angles(scornn.ScoRNN(1, n, rho=0, dtype=torch.float64).weight_hh_l0)
    assert (right <= math.pi / 2 + 1e-9).all()
    left = angles(scornn.ScoRNN(1, n, rho=n, dtype=torch.float64).weight_hh_l0)
    assert (left >= math.pi / 2 - 1e-9).all()
    rho = 2 * (n // 4)
    both = angles(scornn.ScoRNN(1, n - n % 2, rho=rho, dtype=torch.float64).weight_hh_l0)
    assert (both > math.pi / 2).sum() == rho


def test_angles_are_uniform_on_a_quarter_turn() -> None:
    v = scornn.ScoRNN(1, 400, rho=0).skew_hh_l0.detach()
    t = 2 * torch.atan(v[v != 0])
    assert t.numel() == 200
    assert 0 <= t.min() < t.max() <= math.pi / 2
    assert t.mean().item() == pytest.approx(math.pi / 4, abs=0.1)


def test_a_block_cut_by_D_becomes_a_reflection() -> None:
    """n − rho odd, as for n=170, rho=17: one rotation turns into eigenvalues +1 and −1."""
    eigenvalues = torch.linalg.eigvals(scornn.ScoRNN(1, 6, rho=3, dtype=torch.float64).weight_hh_l0)
    assert (eigenvalues - 1).abs().min() < 1e-12
    assert (eigenvalues + 1).abs().min() < 1e-12


def test_initial_values() -> None:
    layer = scornn.ScoRNN(5, 9)
    assert layer.rho == 4
    assert layer.sign_hh_l0.tolist() == [1] * 5 + [-1] * 4
    assert layer.weight_ih_l0.abs().max() <= 0.01
    assert (layer.bias_l0 == 0).all()
    assert sorted(layer.state_dict()) == ["bias_l0", "sign_hh_l0", "skew_hh_l0", "weight_ih_l0"]


def test_is_the_papers_recurrence() -> None:
    """h_t = σ(U x_t + W h_{t−1}) with column vectors; W transposed would fail."""
    layer = scornn.ScoRNN(2, 5, rho=2, dtype=torch.float64)
    nn.init.normal_(layer.skew_hh_l0)
    nn.init.normal_(layer.weight_ih_l0)
    nn.init.normal_(layer.bias_l0)
    W = scaled_cayley(skew(layer.skew_hh_l0, 5), layer.sign_hh_l0)
    x, h = torch.randn(4, 2, dtype=torch.float64), torch.zeros(5, dtype=torch.float64)
    output, _ = layer(x)
    for t in range(4):
        h = modrelu(layer.weight_ih_l0 @ x[t] + W @ h, layer.bias_l0)
        torch.testing.assert_close(output[t], h)


@pytest.mark.parametrize("backend", ["auto", "manual", "naive"])
def test_cell_steps_equal_the_layer(backend: str) -> None:
    layer = scornn.ScoRNN(3, 5, rho=1, backend=backend, dtype=torch.float64)
    cell = scornn.ScoRNNCell(3, 5, rho=1, backend=backend, dtype=torch.float64)
    names = {"weight_ih": "weight_ih_l0", "skew_hh": "skew_hh_l0", "sign_hh": "sign_hh_l0", "bias_hh": "bias_l0"}
    cell.load_state_dict({ours: layer.state_dict()[theirs] for ours, theirs in names.items()})
    x, h = torch.randn(6, 2, 3, dtype=torch.float64), None
    output, _ = layer(x)
    for t in range(6):
        h = cell(x[t], h)
        torch.testing.assert_close(h, output[t])
    torch.testing.assert_close(cell(x[0, 0]), output[0, 0])
    assert cell.orthogonality_error() < 1e-14


@pytest.mark.parametrize(
    ("shape", "state", "error"),
    [
        ((2, 4), None, RuntimeError),
        ((1, 2, 3), None, ValueError),
        ((2, 3), (3, 5), RuntimeError),
        ((3,), (1, 5), ValueError),
    ],
)
def test_cell_refuses(shape: tuple[int, ...], state: tuple[int, ...] | None, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"xpected|match"):
        scornn.ScoRNNCell(3, 5)(torch.zeros(shape), None if state is None else torch.zeros(state))


class TestAssignment:
    @pytest.mark.parametrize("n", [1, 2, 5, 33])
    def test_any_orthogonal_matrix(self, n: int) -> None:
        layer = scornn.ScoRNN(3, n, 2, bidirectional=True, dtype=torch.float64)
        W = torch.linalg.qr(torch.randn(n, n, dtype=torch.float64)).Q
        layer.weight_hh_l1_reverse = W
        torch.testing.assert_close(layer.weight_hh_l1_reverse.detach(), W, rtol=0, atol=1e-12)
        assert not layer.skew_hh_l1_reverse.numel() or layer.skew_hh_l1_reverse.abs().max() <= 1 + 1e-12

    def test_refuses_what_is_not_orthogonal(self) -> None:
        with pytest.raises(ValueError, match="not orthogonal"):
            scornn.ScoRNN(3, 4).weight_hh_l0 = torch.ones(4, 4)
        with pytest.raises(ValueError, match=r"expected a matrix of shape \(4, 4\), got \(3, 3\)"):
            scornn.ScoRNN(3, 4).weight_hh_l0 = torch.eye(3)

    def test_a_band_takes_only_what_fits(self) -> None:
        layer = scornn.ScoRNN(3, 6, bandwidth=1, dtype=torch.float64)
        assert layer.skew_hh_l0.numel() == 5
        layer.weight_hh_l0 = -torch.eye(6, dtype=torch.float64)
        assert layer.sign_hh_l0.tolist() == [-1.0] * 6
        with pytest.raises(ValueError, match="outside the bandwidth 1"):
            layer.weight_hh_l0 = torch.linalg.qr(torch.randn(6, 6, dtype=torch.float64)).Q

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_a_band_takes_its_own_matrix(self, dtype: torch.dtype) -> None:
        """Also where other signs, with an A outside the band, make the same W."""
        layer = scornn.ScoRNN(3, 20, bandwidth=2, dtype=dtype)
        torch.nn.init.normal_(layer.skew_hh_l0, 0, 0.5)
        W, D = layer.weight_hh_l0.detach(), layer.sign_hh_l0.clone()
        layer.weight_hh_l0 = W
        torch.testing.assert_close(layer.weight_hh_l0.detach(), W, rtol=0, atol=1e3 * torch.finfo(dtype).eps)
        assert torch.equal(layer.sign_hh_l0, D)
        with pytest.raises(ValueError, match="for the signs that were found"):
            layer.weight_hh_l0 = torch.linalg.qr(torch.randn(20, 20, dtype=dtype)).Q

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    def test_half_precision_refuses_the_same(self, dtype: torch.dtype) -> None:
        Q = torch.linalg.qr(torch.randn(8, 8)).Q.to(dtype)
        layer = scornn.ScoRNN(3, 8, dtype=dtype)
        layer.weight_hh_l0 = Q
        torch.testing.assert_close(layer.weight_hh_l0.detach(), Q, rtol=0, atol=10 * torch.finfo(dtype).eps)
        for wrong in (torch.zeros(8, 8), torch.eye(8) / 2):
            with pytest.raises(ValueError, match="not orthogonal"):
                layer.weight_hh_l0 = wrong.to(dtype)
        with pytest.raises(ValueError, match="outside the bandwidth 1"):
            scornn.ScoRNN(3, 8, dtype=dtype, bandwidth=1).weight_hh_l0 = Q

    def test_whatever_the_default_device(self) -> None:
        W, layer = torch.linalg.qr(torch.randn(8, 8)).Q, scornn.ScoRNN(3, 8, nonlinearity="identity")
        linear, x = scornn.parametrizations.scaled_cayley(torch.nn.Linear(8, 8)), torch.randn(5, 2, 3)
        with torch.device("meta"):
            layer.weight_hh_l0 = linear.weight = W
            memory, Q = scornn.LinearMemory.from_scornn(layer)
            back = memory.to_scornn()
        torch.testing.assert_close(layer.weight_hh_l0.detach(), W)
        torch.testing.assert_close(linear.weight.detach(), W)
        torch.testing.assert_close(back(x)[0] @ Q[0].mT, layer(x)[0])

    def test_there_is_no_such_layer(self) -> None:
        with pytest.raises(AttributeError, match="weight_hh_l7"):
            _ = scornn.ScoRNN(3, 4).weight_hh_l7


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rho": 6}, r"0\.\.5, .* got 6"),
        ({"rho": -1}, "got -1"),
        ({"bandwidth": 5}, r"0\.\.4"),
        ({"nonlinearity": "sigmoid"}, "'sigmoid'"),
        ({"backend": "cuda"}, "'cuda'"),
    ],
)
def test_constructor_says_what_is_wrong(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        scornn.ScoRNN(3, 5, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("n", [17, 64])
def test_orthogonal_after_two_hundred_steps(n: int) -> None:
    model = scornn.nn.SequenceModel(scornn.ScoRNN(2, n), 1, read="last")
    groups = scornn.optim.parameter_groups(model, lr=1e-2, recurrent_lr=1e-2)
    optimizer = scornn.optim.RMSprop(groups, flavour="tf1")
    before = model.layer.weight_hh_l0.detach()
    for _ in range(200):
        x = torch.rand(20, 8, 2)
        optimizer.zero_grad()
        (model(x) - x[0, :, :1]).square().mean().backward()
        optimizer.step()
    W = model.layer.weight_hh_l0.detach()
    assert (W - before).abs().max() > 0.1
    assert (W.mT @ W - torch.eye(n)).abs().max() <= 10 * n * torch.finfo(W.dtype).eps
    assert model.layer.orthogonality_error() == orthogonality_error(W).item()


def test_drops_in_for_torch_rnn() -> None:
    """A caller that knows nothing of scornn: the class is all that changes."""

    def caller(layer_class: type[nn.Module]) -> list[tuple[int, ...]]:
        layer = layer_class(3, 5, 2, bidirectional=True, batch_first=True)
        optimizer = torch.optim.Adam(layer.parameters())
        output, h_n = layer(torch.randn(4, 7, 3))
        output, h_n = layer(torch.randn(4, 7, 3), h_n)
        output.mean().backward()
        optimizer.step()
        return [tuple(output.shape), tuple(h_n.shape)]

    assert caller(nn.RNN) == caller(scornn.ScoRNN)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad])
def test_W_is_a_fresh_tensor(mode: Any) -> None:
    layer, x = scornn.ScoRNN(3, 8), torch.randn(5, 2, 3)
    with mode():
        before = layer(x)[0].detach().clone()
        with torch.no_grad():
            layer.weight_hh_l0.mul_(2)
            nn.init.orthogonal_(layer.weight_hh_l0)
        assert torch.equal(layer(x)[0], before)


def test_data_parallel(tmp_path: Path) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    try:
        layer = scornn.ScoRNN(3, 5)
        wrapped = nn.parallel.DistributedDataParallel(layer)
        x = torch.randn(6, 2, 3)
        wrapped(x)[0].sum().backward()
        gradient = layer.skew_hh_l0.grad
        layer.zero_grad()
        layer(x)[0].sum().backward()
        torch.testing.assert_close(layer.skew_hh_l0.grad, gradient)
    finally:
        dist.destroy_process_group()


class TestParametrization:
    def test_trains_and_stays_orthogonal(self) -> None:
        linear = scornn.parametrizations.scaled_cayley(nn.Linear(6, 6), "weight", rho=3)
        assert torch.linalg.det(linear.weight).item() == pytest.approx(-1, abs=1e-5)
        before = linear.weight.detach().clone()
        optimizer = torch.optim.SGD(linear.parameters(), lr=0.5)
        for _ in range(20):
            optimizer.zero_grad()
            linear(torch.randn(4, 6)).square().mean(0)[0].backward()
            optimizer.step()
        assert (linear.weight - before).abs().max() > 1e-3
        assert orthogonality_error(linear.weight) < 1e-5

    def test_right_inverse(self) -> None:
        linear = scornn.parametrizations.scaled_cayley(nn.Linear(6, 6, dtype=torch.float64), "weight")
        W = torch.linalg.qr(torch.randn(6, 6, dtype=torch.float64)).Q
        linear.weight = W
        torch.testing.assert_close(linear.weight.detach(), W, rtol=0, atol=1e-12)
        twin = scornn.parametrizations.scaled_cayley(nn.Linear(6, 6, dtype=torch.float64), "weight")
        twin.load_state_dict(linear.state_dict())
        torch.testing.assert_close(twin.weight.detach(), W, rtol=0, atol=1e-12)
        nn.utils.parametrize.remove_parametrizations(linear, "weight")
        torch.testing.assert_close(linear.weight.detach(), W, rtol=0, atol=1e-12)

    def test_assigned_in_another_precision(self) -> None:
        linear = scornn.parametrizations.scaled_cayley(nn.Linear(6, 6), "weight")
        W = torch.linalg.qr(torch.randn(6, 6, dtype=torch.float64)).Q
        linear.weight = W
        torch.testing.assert_close(linear.weight.detach().double(), W, rtol=0, atol=1e-5)

    @pytest.mark.parametrize("size", [1, 5])
    def test_a_refused_assignment_changes_nothing(self, size: int) -> None:
        linear = scornn.parametrizations.scaled_cayley(nn.Linear(6, 6), "weight", rho=3)
        before = linear.weight.detach().clone()
        with pytest.raises(ValueError, match=rf"of shape \(6, 6\), got \({size}, {size}\)"):
            linear.weight = torch.eye(size)
        assert torch.equal(linear.weight, before)

    def test_refuses(self) -> None:
        with pytest.raises(TypeError, match=r"use scornn\.ScoRNN"):
            scornn.parametrizations.scaled_cayley(nn.RNN(4, 4), "weight_hh_l0")
        with pytest.raises(ValueError, match=r"square weight, but 'weight' has shape \(4, 3\)"):
            scornn.parametrizations.scaled_cayley(nn.Linear(3, 4))
        with pytest.raises(ValueError, match=r"rho, .*, must lie in 0\.\.4, the size of W; got 5"):
            scornn.parametrizations.scaled_cayley(nn.Linear(4, 4), rho=5)
        with pytest.raises(ValueError, match="no parameter 'wait'"):
            scornn.parametrizations.scaled_cayley(nn.Linear(4, 4), "wait")


class TestSequenceModel:
    @pytest.mark.parametrize("model", ["scornn", "lstm"])
    def test_lengths_change_nothing_before_the_end(self, model: str) -> None:
        net = scornn.nn.SequenceModel(scornn.nn.build(model, 3, 5), 2)
        x = torch.randn(6, 2, 3)
        ragged = net(x, torch.tensor([6, 4]))
        assert ragged.shape == (6, 2, 2)
        torch.testing.assert_close(ragged[:4], net(x)[:4])

    @pytest.mark.parametrize("model", ["scornn", "lstm", "memory-blocks"])
    def test_lengths_may_be_a_list_and_are_whole(self, model: str) -> None:
        net, x = scornn.nn.SequenceModel(scornn.nn.build(model, 3, 6), 2, read="last"), torch.randn(6, 2, 3)
        torch.testing.assert_close(net(x, [6, 4]), net(x, torch.tensor([6, 4])))
        with pytest.raises(TypeError, match=r"lengths must be integers, got torch\.float32"):
            net(x, torch.tensor([6.0, 3.5]))

    @pytest.mark.parametrize("backend", ["auto", "naive"])
    @pytest.mark.parametrize("read", ["all", "last", "mean"])
    def test_lengths_of_any_integers_whatever_the_default_device(self, backend: str, read: Any) -> None:
        net, x = scornn.nn.SequenceModel(scornn.nn.LSTM(3, 5, backend=backend), 2, read), torch.randn(6, 2, 3)
        expected = net(x, torch.tensor([6, 4]))
        for dtype in (torch.int8, torch.int16, torch.int32, torch.uint8, torch.uint16):
            torch.testing.assert_close(net(x, torch.tensor([6, 4], dtype=dtype)), expected)
        with torch.device("meta"):
            torch.testing.assert_close(net(x, [6, 4]), expected)

    @pytest.mark.parametrize("read", ["all", "last"])
    def test_a_head_whose_forward_was_replaced_is_called(self, read: Any) -> None:
        net, x = scornn.nn.SequenceModel(scornn.ScoRNN(3, 8), 2, read), torch.randn(6, 2, 3)
        expected = -net(x)
        forward = net.head.forward
        net.head.forward = lambda h: -forward(h)
        torch.testing.assert_close(net(x), expected)

    @pytest.mark.parametrize("model", ["scornn", "lstm"])
    def test_last_reads_the_end_of_each_sequence(self, model: str) -> None:
        layer = scornn.nn.build(model, 3, 5)
        every = scornn.nn.SequenceModel(layer, 2, read="all")
        last = scornn.nn.SequenceModel(layer, 2, read="last")
        last.load_state_dict(every.state_dict())
        x = torch.randn(6, 2, 3)
        torch.testing.assert_close(last(x), every(x)[-1])
        torch.testing.assert_close(last(x, torch.tensor([6, 4]))[1], every(x)[3, 1])

    @pytest.mark.parametrize("lengths", [[6, 6, 6], [2, 6, 1], [3, 2, 4]])
    def test_a_mean_over_lengths_is_that_of_each_sequence(self, lengths: list[int]) -> None:
        net = scornn.nn.SequenceModel(scornn.ScoRNN(3, 5, dtype=torch.float64), 2, "mean")
        x, target = (
            torch.randn(6, 3, 3, dtype=torch.float64, requires_grad=True),
            torch.randn(3, 2, dtype=torch.float64),
        )
        alone = torch.cat([net(x[:length, k : k + 1]) for k, length in enumerate(lengths)])
        leaves = (x, *net.layer.parameters(), *net.head.parameters())
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
        for found in (net(x, lengths), net(packed)):
            torch.testing.assert_close(found, alone)
            ours, expected = (
                torch.autograd.grad((y * target).sum(), leaves, retain_graph=True) for y in (found, alone)
            )
            for a, b in zip(ours, expected, strict=True):
                torch.testing.assert_close(a, b)

    def test_the_head_over_time_is_a_linear_layer(self) -> None:
        net = scornn.nn.SequenceModel(scornn.ScoRNN(3, 5, backend="naive", dtype=torch.float64), 2)
        nn.init.normal_(net.layer.weight_ih_l0)
        x = torch.randn(6, 2, 3, dtype=torch.float64, requires_grad=True)
        target = torch.randn(6, 2, 2, dtype=torch.float64)
        leaves = (x, net.head.weight, net.head.bias, net.layer.skew_hh_l0)
        ours = torch.autograd.grad((net(x) * target).sum(), leaves)
        expected = torch.autograd.grad((net.head(net.layer(x)[0]) * target).sum(), leaves)
        for a, b in zip(ours, expected, strict=True):
            torch.testing.assert_close(a, b)
        assert torch.autograd.gradgradcheck(net, x, fast_mode=True)

    def test_refuses_another_reading(self) -> None:
        with pytest.raises(ValueError, match="'first'"):
            scornn.nn.SequenceModel(scornn.ScoRNN(3, 5), 2, read="first")  # type: ignore[arg-type]


def test_rho_is_that_of_the_signs_that_are_there() -> None:
    layer, other = scornn.ScoRNN(3, 8, rho=8), scornn.ScoRNN(3, 8, rho=1)
    layer.load_state_dict(other.state_dict())
    assert (layer.rho, scornn.ScoRNNCell.from_layer(layer).rho) == (1, 1)
    assert "rho=1" in repr(layer)
    assert scornn.ScoRNN(3, 8, device="meta").rho == 4
