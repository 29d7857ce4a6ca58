"""The table of rungs: what reads it, and a backend added to it from outside."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from scornn import ops
from scornn.ops import Operands, naive, sequence
from scornn.ops.rung import CELLS, Rung, choose

ARGUMENTS: Any = (torch.ones(3, 2, 1), torch.zeros(2, 4), torch.eye(4), torch.ones(4, 1))
OPERANDS = Operands(*ARGUMENTS, None, "modrelu")


def test_names_come_from_the_table() -> None:
    names = [rung.name for rung in sequence.RUNGS]
    assert list(ops.BACKENDS) == ["auto", "native", "manual", "torch", "naive"]
    assert set(ops.backends()) == set(names)
    assert ops.chosen("cpu", ("auto", "naive")) == "naive"
    assert ops.chosen("cpu", dtype=torch.bfloat16) == "manual"


def enter(rungs: tuple[Rung, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequence, "RUNGS", rungs)
    monkeypatch.setitem(CELLS, "modrelu", CELLS["modrelu"]._replace(rungs=rungs))


def test_a_backend_is_one_file_and_one_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def run(operands: Operands) -> tuple[Tensor, ...]:
        seen.append("mine")
        return naive.recurrence(operands)

    def refuses(operands: Operands) -> str | None:
        return None if operands.x.dtype == torch.float64 else f"it takes float64, got {operands.x.dtype}"

    enter((Rung("mine", run, refuses=refuses), *sequence.RUNGS), monkeypatch)
    ops.recurrence(*ARGUMENTS)
    assert seen == []  # auto passes it over
    ops.recurrence(*(t.double() for t in ARGUMENTS))
    assert seen == ["mine"]
    with pytest.raises(RuntimeError, match='backend="mine" cannot run: it takes float64'):
        ops.recurrence(*ARGUMENTS, backend="mine")
    assert ops.chosen("cpu", ("auto", "mine", "naive"), torch.float64) == "mine"
    assert ops.backends()["mine"] == "available"


def test_auto_warns_once_where_a_rung_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = Rung("absent", naive.recurrence, unavailable=lambda: "of the weather")
    enter((absent, naive.RUNG), monkeypatch)
    with pytest.warns(UserWarning, match=r"the absent kernel cannot run \(of the weather\)"):
        assert choose(OPERANDS, "auto") is naive.RUNG
    assert choose(OPERANDS, "auto") is naive.RUNG  # and no second warning
