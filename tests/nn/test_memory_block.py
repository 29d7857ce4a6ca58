"""Blocks on the linear memory: reading, padding, streaming."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from scornn import optim
from scornn.nn import MemoryBlock, MemoryNetwork

F64 = torch.float64
READS = ("all", "last", "mean")


def network(read: Any, **options: Any) -> MemoryNetwork:
    torch.manual_seed(0)
    return MemoryNetwork(2, 3, width=5, hidden_size=7, depth=2, read=read, dtype=F64, **options)


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("pieces", [[1] * 11, [4, 1, 6]], ids=["by step", "in pieces"])
def test_streaming_gives_the_same_numbers(read: str, pieces: list[int]) -> None:
    model, x = network(read), torch.randn(11, 3, 2, dtype=F64)
    state, seen = None, []
    for piece in x.split(pieces):
        y, state = model.stream(piece, state)
        seen.append(y)
    expected = model(x)
    torch.testing.assert_close(torch.cat(seen) if read == "all" else seen[-1][-1], expected, rtol=1e-11, atol=1e-11)
    assert state is not None
    assert state.steps == 11


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


@pytest.mark.parametrize("read", READS)
def test_every_backend_gives_the_same_gradients(read: str) -> None:
    x, found = torch.randn(6, 2, 2, dtype=F64), []
    for backend in ("naive", "auto"):
        model = network(read, backend=backend)
        model(x).square().sum().backward()
        found.append([p.grad for p in model.parameters()])
    for ours, expected in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-9, atol=1e-9)
    assert all(g is not None and g.any() for g in found[1])


def test_the_angles_are_the_recurrent_parameters() -> None:
    model = network("last")
    groups = {group["name"]: group["params"] for group in optim.parameter_groups(model, lr=1.0, recurrent_lr=0.1)}
    angles = [p for name, p in model.named_parameters() if "angle_hh" in name]
    assert len(angles) == 2
    assert {id(p) for p in groups["recurrent"]} == {id(p) for p in angles}


def test_refusals() -> None:
    with pytest.raises(ValueError, match="unknown read 'first'"):
        network("first")
    with pytest.raises(ValueError, match="expand must be greater than zero"):
        MemoryBlock(3, 4, expand=0)
