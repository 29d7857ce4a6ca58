"""Every way of a bank of rotations through time against the loop that defines it: float64, every gradient."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from scornn.ops import backends, bank_scan
from scornn.ops.bank import Bank
from scornn.ops.bank_last import last_state

F64 = torch.float64
RUNGS = [name for name in ("manual", "native") if backends()[name] == "available"]


def bank_of(n: int, signs: int) -> Bank:
    planes = (n - signs) // 2
    angle = (torch.rand(planes, dtype=F64) * 7 - 2).requires_grad_()
    return Bank(angle, torch.tensor([1.0, -1.0], dtype=F64)[2 - signs :])


def operands(T: int, B: int, m: int, n: int, signs: int, bias: bool) -> tuple[Any, ...]:
    torch.manual_seed(T + 10 * n + m)
    draw = lambda *shape: torch.randn(*shape, dtype=F64, requires_grad=True)  # noqa: E731
    return draw(T, B, m), draw(B, n), bank_of(n, signs), draw(n, m), draw(n) if bias else None


SIZES = [(1, 2, 1, 1, 1), (1, 1, 1, 2, 0), (2, 3, 1, 2, 2), (3, 1, 2, 3, 1), (7, 3, 1, 17, 1), (31, 5, 3, 34, 0)]
SIZES += [(13, 2, 9, 5, 1), (5, 70, 1, 6, 2), (101, 2, 1, 4, 0), (11, 3, 10, 33, 1)]


def gradients(results: tuple[Tensor, ...], given: tuple[Any, ...]) -> list[Tensor]:
    torch.manual_seed(3)
    loss = sum((r * torch.randn(r.shape, dtype=F64)).sum() for r in results)
    x, h0, bank, U, b = given
    leaves = [t for t in (x, h0, bank.angle, U, b) if t is not None and t.numel()]
    return [*results, *torch.autograd.grad(loss, leaves)]


def compare(ours: list[Tensor], expected: list[Tensor]) -> None:
    for a, b in zip(ours, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("m", [1, 2, 10])
@pytest.mark.parametrize("sizes", [[5, 4, 4, 2, 1, 1], [5] * 7 + [4] * 9 + [3] * 2 + [2] * 14 + [1]])
def test_packed(sizes: list[int], m: int, reverse: bool) -> None:
    _, h0, bank, U, b = operands(1, 5, m, 7, 1, True)
    x = torch.randn(sum(sizes), m, dtype=F64, requires_grad=True)
    given, batch_sizes = (x, h0, bank, U, b), torch.tensor(sizes)
    expected = bank_scan.every_state(*given, batch_sizes, reverse, "naive")[1:]
    last = (last_state(*given, batch_sizes, reverse),)
    compare(gradients(last, given), gradients(expected, given))


@pytest.mark.parametrize("block", [1, 40, 1 << 21])
@pytest.mark.parametrize(("T", "B", "m", "n", "signs"), SIZES)
def test_last_state(T: int, B: int, m: int, n: int, signs: int, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scornn.ops.bank_last.BLOCK", block)
    given = operands(T, B, m, n, signs, bias=n % 2 == 0)
    expected = bank_scan.every_state(*given, None, False, "naive")[1:]
    compare(gradients((last_state(*given, None, False),), given), gradients(expected, given))


@pytest.mark.parametrize("way", [*RUNGS, "last"])
def test_rounding_after_ten_thousand_steps(way: str) -> None:
    """In float32 the error is that of the roundings, √T·ε: no angle is wrong by a rounding of its own."""
    T, n = 10_000, 32
    torch.manual_seed(0)
    x, U, angle = torch.randn(T, 1, 1), torch.rand(n, 1) - 0.5, torch.rand(n // 2) * 3
    bank, h0 = Bank(angle, torch.zeros(0)), torch.zeros(1, n)
    exact = Bank(angle.double(), torch.zeros(0, dtype=F64))
    expected = last_state(x.double(), h0.double(), exact, U.double(), None, None, False)
    if way == "last":
        found = last_state(x, h0, bank, U, None, None, False)
    else:
        found = bank_scan.every_state(x, h0, bank, U, None, None, False, way)[1]
    error = float((found - expected).abs().max() / expected.abs().max())
    assert error < 5 * T**0.5 * torch.finfo(torch.float32).eps


@pytest.mark.parametrize("backend", RUNGS)
@pytest.mark.parametrize("m", [1, 3, 10])
@pytest.mark.parametrize("scale", [1.0, 1e4, 1e8])
def test_a_later_step_changes_no_earlier_gradient(scale: float, m: int, backend: str) -> None:
    """However large it is: a loss on the first 100 states has the gradient that they alone have."""
    torch.manual_seed(0)
    x, h0, U, angle = torch.randn(200, 2, m), torch.zeros(2, 32), torch.rand(32, m) - 0.5, torch.rand(16) * 3
    x[150] *= scale

    def by_angle(dtype: torch.dtype, steps: int, name: str) -> Tensor:
        bank = Bank(angle.to(dtype).requires_grad_(), torch.zeros(0, dtype=dtype))
        given = (x[:steps].to(dtype), h0.to(dtype), bank, U.to(dtype), None)
        output, _ = bank_scan.every_state(*given, None, False, name)
        output[:100].square().mean().backward()
        assert bank.angle.grad is not None
        return bank.angle.grad.double()

    expected = by_angle(F64, 100, "naive")
    found = by_angle(torch.float32, 200, backend)
    assert (found - expected).norm() < 2e-6 * expected.norm()


@pytest.mark.parametrize("sizes", [[2, 1, 3], [2, 1], [3, 2], [3, 3, 0], [3, 4, -1]])
def test_wrong_batch_sizes_are_refused(sizes: list[int]) -> None:
    _, h0, bank, U, b = operands(1, sizes[0], 1, 4, 0, False)
    given = (torch.zeros(6, 1, dtype=F64), h0, bank, U, b, torch.tensor(sizes), False)
    with pytest.raises(ValueError, match="batch_sizes of a PackedSequence"):
        last_state(*given)
