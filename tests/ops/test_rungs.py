"""The table of rungs: what reads it, and a backend added to it from outside."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from scornn import ops
from scornn.ops import naive, sequence
from scornn.ops.rung import Rung, choose

ARGUMENTS: Any = (torch.ones(3, 2, 1), torch.zeros(2, 4), torch.eye(4), torch.ones(4, 1))


def test_names_come_from_the_table() -> None:
    names = [rung.name for rung in sequence.RUNGS]
    assert list(ops.BACKENDS) == ["auto", *names]
    assert set(ops.backends()) == set(names)
    assert ops.chosen("cpu", ("auto", "naive")) == "naive"
    assert ops.chosen("cpu", dtype=torch.bfloat16) == "manual"


def test_a_backend_is_one_file_and_one_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def run(*operands: Any) -> tuple[Tensor, Tensor]:
        seen.append("mine")
        return naive.recurrence(*operands)

    mine = Rung("mine", run, refuses=lambda x: None if x.dtype == torch.float64 else f"it takes float64, got {x.dtype}")
    monkeypatch.setattr(sequence, "RUNGS", (mine, *sequence.RUNGS))
    ops.recurrence(*ARGUMENTS)
    assert seen == []  # auto passes it over
    ops.recurrence(*(t.double() for t in ARGUMENTS))
    assert seen == ["mine"]
    with pytest.raises(RuntimeError, match='backend="mine" cannot run: it takes float64'):
        ops.recurrence(*ARGUMENTS, backend="mine")
    assert ops.chosen("cpu", ("auto", "mine", "naive"), torch.float64) == "mine"
    assert ops.backends()["mine"] == "available"


def test_auto_warns_once_where_a_rung_is_not_installed() -> None:
    rungs = (Rung("absent", naive.recurrence, unavailable=lambda: "of the weather"), naive.RUNG)
    with pytest.warns(UserWarning, match=r"the absent kernel cannot run \(of the weather\)"):
        assert choose(rungs, "auto", ARGUMENTS[0]) is naive.RUNG
    assert choose(rungs, "auto", ARGUMENTS[0]) is naive.RUNG  # and no second warning
