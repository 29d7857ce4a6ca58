"""The sequence operator: opcheck, backends, and its argument errors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from scornn.ops import activations, backends, recurrence

T, B, N, M = 4, 3, 6, 2


def arguments(activation: str, dtype: torch.dtype = torch.float64) -> tuple[Tensor, ...]:
    units = activations.ACTIVATIONS[activation].units_per_bias
    make = lambda *shape: torch.randn(*shape, dtype=dtype, requires_grad=True)  # noqa: E731
    return make(T, B, M), make(B, N), make(N, N), make(N, M), make(N // units)


@pytest.mark.parametrize("name", ["native", "manual"])
def test_gradients_lie_as_a_compiler_is_told_however_the_arguments_do(name: str) -> None:
    if backends()[name] != "available":
        pytest.skip(backends()[name])
    x, h0, W, U, b = (a.detach().mT.contiguous().mT if a.dim() > 1 else a.detach() for a in arguments("tanh"))
    output, needs = torch.randn(T, B, N, dtype=torch.float64), [True] * 5
    backward = getattr(torch.ops.scornn, f"{name}_backward").default
    given = (torch.randn_like(output), None, output, x, h0, W, U, b, "tanh", None, False, needs)
    torch.library.opcheck(backward, given, test_utils="test_faketensor")


@pytest.mark.parametrize("activation", activations.ACTIVATIONS)
@pytest.mark.parametrize("sign", [-0.3, 0.0, 0.3])
def test_gradient_from_the_state_alone_equals_autograd(activation: str, sign: float) -> None:
    act = activations.ACTIVATIONS[activation]
    z = torch.randn(50, N, dtype=torch.float64)
    z[0] = 0
    z[1, :2] = 1e-12
    z.requires_grad_()
    b = torch.full((N // act.units_per_bias,), sign, dtype=torch.float64, requires_grad=True)
    g = torch.randn(50, N, dtype=torch.float64)
    h = act.value(z, b)
    expected_z, expected_b = torch.autograd.grad(h, (z, b), g)
    dz, db = act.pullback(g, h.detach(), b.detach())
    torch.testing.assert_close(dz, expected_z, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(db.sum(0), expected_b, rtol=1e-6, atol=1e-9)


def test_unused_output_costs_no_full_length_gradient() -> None:
    x, h0, W, U, b = arguments("modrelu")
    _, h_n = recurrence(x, h0, W, U, b, backend="manual")
    seen: list[Any] = []
    node = h_n.grad_fn
    assert node is not None
    node.register_prehook(lambda grads: seen.extend(grads))
    h_n.sum().backward()
    assert seen[0] is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"activation": "sigmoid"}, "unknown activation 'sigmoid'"),
        ({"backend": "cuda"}, "unknown backend 'cuda'"),
        ({"x": torch.zeros(T, B, M + 1, dtype=torch.float64)}, "the last of size 2; got shape"),
        ({"h0": torch.zeros(B + 1, N, dtype=torch.float64)}, r"h0 of shape \(3, 6\), got \(4, 6\)"),
        ({"W": torch.zeros(N, N + 1, dtype=torch.float64)}, r"W of shape \(6, 6\)"),
        ({"b": torch.zeros(N + 1, dtype=torch.float64)}, r"b of shape \(6,\)"),
        ({"U": torch.zeros(N, M)}, "U is torch.float32"),
        ({"x": torch.zeros(3, M, dtype=torch.float64), "batch_sizes": torch.tensor([1, 2])}, "a PackedSequence"),
    ],
)
def test_refuses(change: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = dict(zip(("x", "h0", "W", "U", "b"), arguments("modrelu"), strict=True)) | change
    with pytest.raises(ValueError, match=message):
        recurrence(**given)


RUNNING = [name for name, state in backends().items() if state == "available"]
