"""W as a product of factors on the kernel against the loop that defines it, in float64, outputs and every gradient."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.ops.problems import F64, assert_like_naive, problem, results, rung
from torch import Tensor
from torch.func import functional_call

from scornn.nn.eurnn import EURNN
from scornn.nn.urnn import URNN
from scornn.ops import backends

pytestmark = pytest.mark.skipif(backends()["native"] != "available", reason="no native kernel")


def test_real_units_without_an_activation() -> None:
    given = problem("rotations/real/tunable/2", 6, 11, 12, 3, packed=True, reverse=True)
    assert_like_naive("native", given._replace(cell="identity"))


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_states_whose_squares_do_not_fit(scale: float) -> None:
    given = problem("fourier", 2, 3, 8, 2)
    assert given.b is not None
    given = given._replace(x=scale * given.x, h0=scale * given.h0, b=given.b.abs())
    want, got = results("naive", given), results("native", given, dtype=torch.float32)
    for k in (0, 1, 3):  # states, and the gradient of h0
        assert float((got[k].double() - want[k]).abs().max()) <= 1e-4 * float(want[k].abs().max())


def test_a_state_that_underflows_has_no_gradient() -> None:
    given = problem("fourier", 1, 3, 8, 2, bias=False)
    given = given._replace(x=1e-30 * given.x, h0=1e-30 * given.h0)
    for name in ("naive", "manual", "native"):
        output, _, dx, dh0, *_ = results(name, given, dtype=torch.float32)
        assert all((t == 0).all() for t in (output, dx, dh0))


def test_strides_of_x_and_of_the_gradient() -> None:
    given, grads = problem("fourier", 4, 5, 6, 3), []
    given = given._replace(x=given.x.transpose(0, 2).contiguous().transpose(0, 2))
    for name in ("naive", "native"):
        h0 = given.h0.detach().requires_grad_()
        rung(name, given).run(given._replace(h0=h0))[0][..., ::2].sum().backward()  # as a head that reads the real part
        grads.append(h0.grad)
    torch.testing.assert_close(grads[1], grads[0])


@pytest.mark.parametrize(
    "layer", [lambda form: URNN(3, 80, form=form, dtype=F64), lambda form: EURNN(3, 80, form=form, dtype=F64)]
)
def test_auto_is_the_product_and_equals_the_dense_form(layer: Any) -> None:
    auto, dense = layer("auto"), layer("dense")
    dense.load_state_dict(auto.state_dict())
    assert auto.matrix("_l0").runs_as_product()
    x = torch.randn(6, 4, 3, dtype=F64)
    for got, want in zip(auto(x), dense(x), strict=True):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize(
    ("layer", "name", "given", "said"),
    [
        (EURNN(3, 64), "hh_l0.angle", torch.zeros(63, dtype=F64), "angle is torch.float64"),
        (EURNN(3, 64), "hh_l0.angle", torch.zeros(1), r"expected angle of shape \(63,\)"),
        (EURNN(3, 64, complex=False), "bias_l0", torch.zeros(1), r"expected b of shape \(64,\)"),
        (EURNN(3, 64, complex=False), "weight_ih_l0", torch.zeros(8, 3), r"expected h0 of shape \(2, 8\)"),
        (URNN(3, 64), "hh_l0.phase", torch.zeros(3, 64, dtype=F64), "phase is torch.float64"),
        (URNN(3, 64), "hh_l0.permutation", torch.arange(64, dtype=torch.int32), "a permutation of 64 numbers in int64"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_kernel_reads_no_further_than_its_arguments_go(layer: Any, name: str, given: Tensor, said: str) -> None:
    assert layer.matrix("_l0").runs_as_product()
    with pytest.raises(ValueError, match=said):
        functional_call(layer, {name: given}, (torch.randn(5, 2, 3),))
