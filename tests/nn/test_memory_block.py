"""Blocks on the linear memory: reading, padding, streaming, strides, gates that start closed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

from scornn import backends, optim
from scornn.nn import MemoryBlock, MemoryBlocks, SequenceModel

F64 = torch.float64
READS = ("all", "last", "mean")


def network(read: Any, **options: Any) -> SequenceModel:
    torch.manual_seed(0)
    return SequenceModel(MemoryBlocks(2, 7, 2, width=5, dtype=F64, **options), 3, read=read)


@pytest.mark.parametrize("read", READS)
def test_padding_changes_nothing(read: str) -> None:
    model, x = network(read), torch.randn(9, 2, 2, dtype=F64)
    x[4:, 1] = float("nan")
    padded = model(x, torch.tensor([9, 4]))
    alone = model(x[:4, 1:])
    torch.testing.assert_close(padded[:4, 1:] if read == "all" else padded[1:], alone, rtol=1e-11, atol=1e-11)
    if read == "all":
        assert not padded[4:, 1].any()
    padded.sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("stride", [1, 3])
@pytest.mark.parametrize("read", READS)
def test_every_backend_gives_the_same_gradients(read: str, stride: int) -> None:
    x, found = torch.randn(6, 2, 2, dtype=F64), []
    for backend in ("naive", "auto"):
        model = network(read, backend=backend, stride=stride)
        model(x).square().sum().backward()
        found.append([p.grad for p in model.parameters()])
    for ours, expected in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-9, atol=1e-9)
    assert all(g is not None and g.any() for g in found[1])


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("backend", ["naive", "auto"])
def test_the_last_output_is_the_last_of_all(bidirectional: bool, backend: str) -> None:
    layer = MemoryBlocks(2, 7, 2, width=5, dtype=F64, bidirectional=bidirectional, backend=backend)
    x = torch.randn(6, 3, 2, dtype=F64)
    output, h_n = layer(x)
    last, state = layer(x, need_output="last")
    expected = torch.cat([output[-1, :, :5], output[0, :, 5:]], -1)
    torch.testing.assert_close(last, expected, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(state, h_n, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(layer(x[:, 1], need_output="last")[0], last[1], rtol=1e-11, atol=1e-11)


def test_a_stride_reads_the_states_of_every_step() -> None:
    """One block with a stride gives what the same block without one gives at every third step."""
    torch.manual_seed(0)
    strided = MemoryBlocks(2, 7, width=5, dtype=F64, stride=3)
    every = MemoryBlocks(2, 7, width=5, dtype=F64)
    every.load_state_dict(strided.state_dict())
    x, h0 = torch.randn(12, 3, 2, dtype=F64), torch.randn(1, 3, 7, dtype=F64)
    (some, h_n), (all_steps, expected) = strided(x, h0), every(x, h0)
    torch.testing.assert_close(some, all_steps[2::3], rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(h_n, expected, rtol=1e-11, atol=1e-11)
    gradients = [torch.autograd.grad(y.square().sum(), m.parameters()) for y, m in ((some, strided),)]
    slow = torch.autograd.grad(all_steps[2::3].square().sum(), every.parameters())
    for ours, theirs in zip(gradients[0], slow, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


def test_a_stride_takes_an_empty_batch() -> None:
    output, h_n = MemoryBlocks(2, 7, width=5, stride=3)(torch.zeros(12, 0, 2))
    assert (output.shape, h_n.shape) == ((4, 0, 5), (1, 0, 7))


@pytest.mark.parametrize("backend", [name for name in ("manual", "native") if backends()[name] == "available"])
def test_a_stride_turns_by_the_angle_itself_however_long_the_sequence(backend: str) -> None:
    """S·θ rounded to float32 is another angle, which T / S turns multiply."""
    torch.manual_seed(0)
    layer = MemoryBlocks(1, 8, width=4, stride=14, backend=backend)
    exact = MemoryBlocks(1, 8, width=4, stride=14, backend="manual", dtype=F64)
    exact.load_state_dict(layer.state_dict())
    x, h0 = torch.zeros(70_000, 1, 1), torch.ones(1, 1, 8)  # what is remembered of the start
    _, h_n = layer(x, h0)
    _, expected = exact(x.double(), h0.double())
    torch.testing.assert_close(h_n.double(), expected, rtol=0, atol=2e-5)


def test_the_angles_are_the_recurrent_parameters() -> None:
    model = network("last")
    groups = {group["name"]: group["params"] for group in optim.parameter_groups(model, lr=1.0, recurrent_lr=0.1)}
    angles = [p for name, p in optim.named_parameters(model).items() if "angle_hh" in name]
    assert len(angles) == 2
    assert {id(p) for p in groups["recurrent"]} == {id(p) for p in angles}


def test_without_norm_nothing_is_normed() -> None:
    """Twice the input is twice the state, in a block above another too."""
    torch.manual_seed(0)
    block = MemoryBlock(5, 7, 5, norm=False, dtype=F64)
    x, h0 = torch.randn(6, 3, 5, dtype=F64), torch.zeros(3, 7, dtype=F64)
    torch.testing.assert_close(block(2 * x, h0)[1], 2 * block(x, h0)[1])
    assert not any(isinstance(part, torch.nn.LayerNorm) for part in network("last", norm=False).modules())


def test_closed_gates_let_little_through() -> None:
    """What the gates add is small where the input is, and comes with it; fresh parameters are closed too."""
    torch.manual_seed(0)
    open_, closed = (MemoryBlock(4, 6, 4, closed=c, norm=False, dtype=F64) for c in (0.0, 6.0))
    for _ in range(2):
        x, h0 = torch.full((1, 1, 4), 1e-3, dtype=F64), torch.zeros(1, 6, dtype=F64)
        added = [(block(x, h0)[0] - x - block.out.bias).norm() for block in (open_, closed)]
        assert added[1] < added[0] / 20
        assert closed.gates_ih.weight.std() > 4 * open_.gates_ih.weight.std()
        open_.reset_parameters()
        closed.reset_parameters()


def test_closed_gates_end_the_plateau_of_adding() -> None:
    """Two of sixty steps count. In as many steps of training open gates with norms do not leave the baseline, 1/6."""

    def loss(**options: Any) -> float:
        torch.manual_seed(0)
        model = SequenceModel(MemoryBlocks(2, 32, 2, width=16, **options), 1, read="last")
        optimizer = torch.optim.Adam(optim.parameter_groups(model, lr=5e-3, recurrent_lr=1e-4))
        losses = []
        for _ in range(240):
            value, marker = torch.rand(60, 50), torch.zeros(60, 50)
            for half in (0, 30):
                marker[torch.randint(half, half + 30, (50,)), torch.arange(50)] = 1
            error = model(torch.stack([value, marker], -1)).squeeze(-1) - (value * marker).sum(0)
            optimizer.zero_grad()
            error.square().mean().backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(error.detach().square().mean().item())
        return sum(losses[-20:]) / 20

    assert loss(norm=False, closed=5.0) < 0.09
    assert loss() > 0.12


def test_refusals() -> None:
    for closed in (-1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="closed must be a finite number of 0 or more"):
            network("last", closed=closed)
    with pytest.raises(ValueError, match='read must be "all", "last" or "mean"'):
        network("first")
    with pytest.raises(ValueError, match="expand must be greater than zero"):
        network("last", expand=0)
    with pytest.raises(ValueError, match="bias must be False"):
        MemoryBlocks(2, 3, bias=True)
    with pytest.raises(RuntimeError, match="a multiple of it, in one direction; got 7 steps"):
        network("last", stride=2)(torch.zeros(7, 1, 2, dtype=F64))
    with pytest.raises(RuntimeError, match="got packed sequences"):
        network("mean", stride=2)(torch.zeros(8, 2, 2, dtype=F64), torch.tensor([8, 6]))
    with pytest.raises(RuntimeError, match="in one direction"):
        MemoryBlock(1, 4, 3, stride=2)(torch.zeros(4, 2, 1), torch.zeros(2, 4), reverse=True)
    with pytest.raises(ValueError, match="closed must be a finite number of 0 or more, got '3'"):
        MemoryBlock(1, 4, 3, closed="3")  # type: ignore[arg-type]
    with pytest.raises(AttributeError, match="cannot be assigned to"):
        MemoryBlocks(1, 4).weight_hh_l0 = torch.eye(4)


@pytest.mark.parametrize("use", [True, "last", False])
def test_one_block_with_a_stride_refuses_other_lengths_however_it_is_read(use: Any) -> None:
    layer = MemoryBlocks(1, 4, stride=2)
    with pytest.raises(RuntimeError, match="got 7 steps"):
        layer(torch.zeros(7, 2, 1), need_output=use)
    with pytest.raises(RuntimeError, match="got packed sequences"):
        layer(pack_sequence([torch.zeros(4, 1), torch.zeros(2, 1)]), need_output=use)


@pytest.mark.parametrize("backend", ["auto", "naive"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_stride_in_half_precision(dtype: torch.dtype, backend: str) -> None:
    layer = MemoryBlocks(1, 8, 2, stride=4, backend=backend).to(dtype)
    x = torch.randn(12, 2, 1).to(dtype)
    output, h_n = layer(x)
    assert output.dtype == h_n.dtype == dtype
    torch.testing.assert_close(output.float(), layer.float()(x.float())[0], rtol=0.1, atol=0.1)


@pytest.mark.parametrize("backend", ["auto", "manual", "naive"])
@pytest.mark.parametrize("use", ["forward", "last"])
def test_what_does_not_belong_together_is_refused(use: str, backend: str) -> None:
    """The kernel wrote beyond a state of another batch, into the memory of others."""
    block, x, h0 = MemoryBlock(3, 8, 5, backend=backend), torch.zeros(6, 2, 3), torch.zeros(2, 8)
    run = getattr(block, use)
    for wrong in (torch.zeros(3, 8), torch.zeros(1, 8), torch.zeros(2, 4)):
        with pytest.raises(ValueError, match=r"expected h0 of shape \(2, 8\), got"):
            run(x, wrong)
    with pytest.raises(ValueError, match=r"x is torch\.float32 on cpu, but h0 is torch\.float64"):
        run(x, h0.double())
    with pytest.raises(RuntimeError, match="Expected sequence length to be larger than 0"):
        run(x[:0], h0)
    with pytest.raises(ValueError, match=r"expected x with 3 dimensions"):
        run(x[:, 0], h0)


@pytest.mark.parametrize("backend", ["auto", "naive"])
@pytest.mark.parametrize("use", ["every", "last"])
@pytest.mark.parametrize("width", [8, 5])
def test_a_block_alone_keeps_its_precision_under_autocast(width: int, use: str, backend: str) -> None:
    """As in a stack; also what a rounded layer below hands on is read in the precision of the weights."""
    block = MemoryBlock(8, 16, width, backend=backend)
    run = block if use == "every" else block.last
    x, h0 = torch.randn(6, 2, 8).bfloat16().float(), torch.zeros(2, 16)
    expected = run(x, h0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        results = [run(x, h0), run(x.bfloat16(), h0.bfloat16())]
    for result in results:
        for given, wanted in zip(result, expected, strict=True):
            assert given.dtype == torch.float32
            assert torch.equal(given, wanted)
