"""Layers of other models as ScoRNN, and what ``scornn models`` prints."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch import nn

import scornn
from scornn.nn import MODELS, build
from scornn.program import cli


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("exprnn", {"nonlinearity": "tanh"}),
        ("exprnn", {"num_layers": 2, "bidirectional": True, "batch_first": True}),
        ("dtriv", {}),
        ("ornn", {"reflections": 3}),
        ("ornn", {"reflections": 9, "num_layers": 2}),
        ("eurnn", {"complex": False, "capacity": 4}),
        ("eurnn", {"complex": False, "nonlinearity": "identity", "form": "product"}),
        ("henaff", {"bias": False}),
        ("irnn", {"learn_h0": True}),
        ("spectral", {"margin": 0}),
        ("scornn", {"rho": 1}),
    ],
    ids=str,
)
def test_converted_layers_give_the_same_outputs(model: str, options: dict[str, Any]) -> None:
    layer: Any = build(model, 3, 9, dtype=torch.float64, **options)
    made = scornn.convert(layer)
    x = torch.randn(8, 8, 3, dtype=torch.float64)
    for ours, expected in zip(made(x), layer(x), strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-9, atol=1e-9)
    assert isinstance(made, scornn.ScoRNN)
    torch.testing.assert_close(made.weight_hh_l0, layer.weight_hh_l0, rtol=0, atol=1e-12)
    assert made.skew_hh_l0.abs().max() <= 1 + 1e-9
    made(x)[0].sum().backward()
    assert layer.weight_ih_l0.grad is None


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (lambda: build("urnn", 3, 4), "URNN has the nonlinearity complex_modrelu"),
        (lambda: build("scurnn", 3, 4), "nonlinearity complex_modrelu"),
        (lambda: build("goru", 3, 4), "not one dense matrix"),
        (lambda: nn.LSTM(3, 4), "recurrence of LSTM"),
        (lambda: build("rnn", 3, 4), "W is not orthogonal"),
    ],
)
def test_what_cannot_be_converted(layer: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        scornn.convert(layer())


def test_models_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["models"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in MODELS)
    assert "(I + A)⁻¹(I − A)D" in text
    assert "Arjovsky, Shah and Bengio" in text


def test_models_command_counts(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["models", "--task", "mnist"]) == 0
    text = capsys.readouterr().out
    assert "mnist, n=170: 16,415 parameters" in text
    assert "mnist, n=256, reflections=32: 11,034 parameters" in text
    assert "mnist: the paper gives no size" in text

    assert cli.main(["models", "--task", "copying", "--hidden", "190", "--json"]) == 0
    models = {model["name"]: model for model in json.loads(capsys.readouterr().out)}
    assert set(models) == set(MODELS)
    assert models["scornn"]["counts"][0]["parameters"] == 21_764
    assert "power of two" in models["goru"]["counts"][0]["why"]


@pytest.mark.parametrize("arguments", [["--task", "chess"], ["--hidden", "0"], ["--hidden", "ten"]])
def test_models_command_refuses(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["models", *arguments]) == 2
    assert arguments[1] in capsys.readouterr().err
