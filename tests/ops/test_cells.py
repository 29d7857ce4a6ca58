"""Every rung of every cell against the loop that defines it, in float64: outputs and every gradient."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tests.ops.problems import F64, KINDS, PRODUCTS, assert_like_naive, changed, leaves, problem, results, rung
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from scornn.ops import Operands, backends, native, run
from scornn.ops.rung import CELLS

SIZES = (1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 64, 158, 170)  # 158 = 2 · 79, 170 = 2 · 5 · 17
KERNEL = ["native"] if backends()["native"] == "available" else []
needs_kernel = pytest.mark.skipif(not KERNEL, reason="no native kernel")


def rungs_of(kind: str) -> list[str]:
    cell = "product" if kind in PRODUCTS else kind
    return [r.name for r in CELLS[cell].rungs if r.name in (*KERNEL, "manual", "torch")]


each_rung = pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in KINDS for name in rungs_of(kind)])


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Three threads, however small the work."""
    monkeypatch.setattr(native, "_SERIAL", 0)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@needs_kernel
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", range(len(SIZES)))
def test_sizes_on_the_kernel(number: int, kind: str, isa: str, threads: None) -> None:
    shift = KINDS.index(kind)
    n, m, B = (SIZES[(factor * number + first + shift) % len(SIZES)] for factor, first in ((1, 0), (3, 1), (5, 2)))
    T = (1, 2, 37)[(number + shift) % 3] if n < 100 else 4
    order = {"reverse": number % 4 > 1}
    given = problem(kind, T, B, n, m % 40 + 1, packed=number % 2 == 0, bias=number % 3 > 0, **order)
    assert_like_naive("native", given, dtype=F64 if number % 4 else torch.float32)


@each_rung
@pytest.mark.parametrize("use", [None, 0, 1], ids=["both", "output", "h_n"])
@pytest.mark.parametrize("packed", [False, True], ids=["dense", "packed"])
@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
def test_modes(kind: str, name: str, use: int | None, packed: bool, reverse: bool) -> None:
    given = problem(kind, 6, 11, 12, 3, packed, reverse=reverse)
    given.h0[0] = 0
    given.x[..., 0] = 0
    assert_like_naive(name, given, use)


@each_rung
@pytest.mark.parametrize("n", [1, 2, 8])  # the smallest: one unit is in no rotation
def test_few_units(kind: str, name: str, n: int) -> None:
    assert_like_naive(name, problem(kind, 4, 3, n, 2, packed=True, reverse=True))


@needs_kernel
@pytest.mark.parametrize("kind", KINDS)
def test_more_steps_than_a_chunk_and_more_rows_than_a_block(kind: str, isa: str) -> None:
    assert_like_naive("native", problem(kind, 300, 3, 9, 2, packed=True))
    assert_like_naive("native", problem(kind, 3, 150, 9, 2, packed=True))


@each_rung
@pytest.mark.parametrize("where", ["x", "h0"])
def test_a_nan_stays_in_its_sample(kind: str, name: str, where: str) -> None:
    given = problem(kind, 5, 9, 16, 2)
    clean, count = results(name, given), 3 if kind == "lstm" else 2
    (given.x[2, 4] if where == "x" else given.h0[4])[0] = torch.nan
    found, others = results(name, given), [row for row in range(9) if row != 4]
    assert found[0][2:, 4].isnan().any()
    for k in (0, count):  # the states, and the gradient of x
        assert torch.equal(found[k][:, others], clean[k][:, others])
    for k in (1, count + 1):  # the last ones, and the gradient of h0
        assert torch.equal(found[k][others], clean[k][others])


@needs_kernel
@pytest.mark.parametrize("kind", KINDS)
def test_rows_do_not_depend_on_their_neighbours(kind: str, isa: str) -> None:
    given = problem(kind, 5, 37, 16, 3)
    whole = rung("native", given).run(given)
    for rows in (slice(0, 1), slice(3, 5), slice(20, 36)):
        c0 = None if given.c0 is None else given.c0[rows]
        part = rung("native", given).run(given._replace(x=given.x[:, rows], h0=given.h0[rows], c0=c0))
        assert torch.equal(part[0], whole[0][:, rows])
        assert torch.equal(part[1], whole[1][rows])


@needs_kernel
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_bits_from_call_to_call_and_states_for_any_threads(kind: str, threads: None) -> None:
    given, found = problem(kind, 20, 21, 16, 3, packed=True), []
    for count in (1, 1, 3):
        torch.set_num_threads(count)
        found.append(results("native", given))
    apart = len(found[0]) - len(leaves(changed(given, lambda t: t.requires_grad_())))
    apart += 3 if kind == "lstm" else 2  # the outputs, and what each row has for itself: x, h0 and c0
    for k, (one, again, three) in enumerate(zip(*found, strict=True)):
        assert torch.equal(one, again)
        assert torch.equal(one, three) if k < apart else torch.allclose(one, three, rtol=1e-11, atol=1e-11)


@needs_kernel
@pytest.mark.parametrize("kind", KINDS)
def test_one_gradient_alone_has_the_same_bits(kind: str) -> None:
    given = changed(problem(kind, 30, 9, 16, 2), lambda t: t.float().requires_grad_())
    g, trained = torch.randn_like(given.x.new_empty(30, 9, given.h0.shape[1])), leaves(given)
    run = rung("native", given).run
    every = torch.autograd.grad(run(given)[0], trained, g)
    for t in trained:
        t.requires_grad_(False)
    for t, expected in zip(trained, every, strict=True):
        t.requires_grad_(True)
        (alone,) = torch.autograd.grad(run(given)[0], [t], g)
        assert torch.equal(alone, expected)
        t.requires_grad_(False)


@each_rung
def test_an_empty_batch(kind: str, name: str) -> None:
    if name == "torch" or (kind == "fourier" and name == "manual"):
        pytest.skip("torch's loops and transforms take no empty batch")
    given = problem(kind, 4, 2, 8, 3)
    c0 = None if given.c0 is None else given.c0[:0]
    ours = results(name, given._replace(x=given.x[:, :0], h0=given.h0[:0], c0=c0))
    assert ours[0].shape[:2] == (4, 0)
    assert all(torch.equal(t, torch.zeros_like(t)) for t in ours)


@each_rung
def test_the_second_derivatives_are_those_of_the_plain_rung(kind: str, name: str) -> None:
    given = changed(problem(kind, 3, 2, 4, 2), lambda t: t.requires_grad_())
    found = []
    for each in (name, "naive"):
        output, h_n, *_ = rung(each, given).run(given)
        gradients = torch.autograd.grad(output.square().sum() + h_n.sum(), leaves(given), create_graph=True)
        norm = torch.stack([g.square().sum() for g in gradients]).sum()
        found.append(torch.autograd.grad(norm, leaves(given)))
    for ours, expected in zip(*found, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-9, atol=1e-9)


@each_rung
def test_batched_gradients(kind: str, name: str) -> None:
    if name == "torch":
        return
    given = changed(problem(kind, 3, 2, 4, 2), lambda t: t.requires_grad_())
    output, wanted = rung(name, given).run(given)[0], [given.x, given.U]
    g = torch.randn(3, *output.shape, dtype=F64)
    together = torch.autograd.grad(output, wanted, g, is_grads_batched=True, retain_graph=True)
    apart = [torch.autograd.grad(output, wanted, one, retain_graph=True) for one in g]
    for one, parts in zip(together, zip(*apart, strict=True), strict=True):
        torch.testing.assert_close(one, torch.stack(parts), rtol=0, atol=1e-12)


@each_rung
def test_meta_tensors_have_the_shapes(kind: str, name: str) -> None:
    given = changed(problem(kind, 3, 2, 4, 2), lambda t: t.float().to("meta").requires_grad_())
    if isinstance(given.W, tuple) and kind in ("bank", "fourier"):
        return  # signs and permutations are looked at
    output, h_n, *_ = rung(name, given).run(given)
    assert (output.shape, h_n.shape) == ((3, 2, given.h0.shape[1]), given.h0.shape)
    gradients = torch.autograd.grad(output.sum() + h_n.sum(), leaves(given), allow_unused=True)
    assert all(g is None or g.shape == t.shape for g, t in zip(gradients, leaves(given), strict=True))


@pytest.mark.parametrize(
    ("operator", "kind"),
    [
        *((f"{name}_forward", kind) for name in (*KERNEL, "manual") for kind in ("modrelu", "complex_modrelu")),
        *(("gated_forward", kind) for kind in ("lstm", "gru") if KERNEL),
        ("goru_forward", "goru"),
        *((name, kind) for kind in PRODUCTS[:2] for name in ("product_forward", *["structured_forward"] * len(KERNEL))),
        *((f"{name}_rotations_forward", "bank") for name in (*KERNEL, "manual")),
    ],
)
@pytest.mark.parametrize("packed", [False, True], ids=["dense", "packed"])
def test_opcheck(operator: str, kind: str, packed: bool) -> None:
    given = changed(problem(kind, 4, 3, 6, 2, packed, bias=packed, reverse=packed), lambda t: t.requires_grad_())
    x, h0, W, U, b, cell, batch_sizes, reverse, c0, _ = given
    inside = W if kind == "bank" else [*W.factors, None, None][:3] if kind in PRODUCTS else [W]
    arguments: list[Any] = [x, h0, *([c0] if operator == "gated_forward" else []), *inside, U, b]
    arguments += [W.name] if kind in PRODUCTS else []
    arguments += [] if kind == "bank" else [cell]
    arguments += [batch_sizes, reverse] + ([True] if operator == "gated_forward" else [])
    torch.library.opcheck(getattr(torch.ops.scornn, operator).default, tuple(arguments))


FLOPS = {  # of W for each row of 8 units
    **dict.fromkeys(("modrelu", "relu"), 2 * 8 * 8),
    "lstm": 2 * 4 * 8 * 8,
    "bank": 4 * 8,
    "fourier": 8 * (3 * 6 + 2 * 16 + 2 * 5 * 3),  # diagonals, reflections, transforms
    "rotations/real/tunable/2": 6 * (4 + 3),
    "rotations/complex/tunable/3": 18 * (4 + 3 + 4) + 6 * 8,
    "rotations/real/fft/0": 6 * 3 * 4,
}


@pytest.mark.parametrize(("kind", "name"), [(k, n) for k in FLOPS for n in rungs_of(k) if n != "torch"])
def test_flops_are_counted_as_those_of_the_plain_loop(kind: str, name: str) -> None:
    given = changed(problem(kind, 5, 2, 8, 3), lambda t: t.requires_grad_())
    with FlopCounterMode(display=False) as counter:
        rung(name, given).run(given)[0].sum().backward()
    assert counter.get_total_flops() == 3 * 5 * 2 * (2 * given.U.numel() + FLOPS[kind])


@needs_kernel
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("field", ["h0", "c0", "W", "U", "b"])
def test_tensors_that_do_not_belong_together_are_refused(kind: str, field: str) -> None:
    """By the operator itself: the kernel would read beyond them."""
    given = problem(kind, 4, 3, 8, 2)
    if getattr(given, field) is None:
        return

    def wrong(change: Any) -> Operands:
        whole = getattr(given, field)
        if isinstance(whole, Tensor):
            return given._replace(**{field: change(whole)})
        return given._replace(
            W=whole._replace(angle=change(whole.angle))
            if kind == "bank"
            else whole._replace(factors=[change(whole.factors[0]), *whole.factors[1:]])
        )

    said = r"expected \w+ (of shape|with 3|n even)|they must agree"
    for change in (lambda t: t[..., :-1], lambda t: t.float()):
        with pytest.raises(ValueError, match=said):
            rung("native", given).run(wrong(change))
    with pytest.raises(ValueError, match=said):
        run(wrong(lambda t: t.to("meta")), "native")
    for sizes in ([3, 2, 2], [2, 3, 3], [4, 3, 1, 0], [9]):
        packed = given._replace(x=torch.zeros(8, 2, dtype=F64), batch_sizes=torch.tensor(sizes))
        with pytest.raises(ValueError, match="expected batch_sizes of a PackedSequence"):
            rung("native", packed).run(packed)
