"""The recurrence with a linear head in one pass, against the head on the states of the naive loop, in float64."""

from __future__ import annotations

from typing import Any, Literal

import pytest
import torch
import torch.nn.utils.prune
from tests.ops import problems as shared
from torch import Tensor

from scornn.nn import SequenceModel
from scornn.nn.catalogue import MODELS, build
from scornn.ops import Operands, activations, backends, naive, native, readout, recurrence

F64 = torch.float64
SIZES = (1, 2, 7, 9, 16, 17, 33)
needs_kernel = pytest.mark.skipif(backends()["native"] != "available", reason="no native kernel")


def problem(T: int, B: int, n: int, m: int, p: int, activation: str, packed: bool, dtype: torch.dtype = F64) -> Any:
    """The tensors, those of a head among them, and the batch sizes."""
    given = shared.problem(activation, T, B, n, m, packed)
    states = given.h0.shape[1]
    head = torch.randn(p, states, dtype=F64), torch.randn(p, dtype=F64)
    assert given.b is not None
    tensors = [given.x, given.h0, given.W, given.U, given.b, *head]
    return [t.to(dtype).requires_grad_() for t in tensors], given.batch_sizes


def results(backend: str, tensors: list[Tensor], use: str = "both", **settings: Any) -> list[Tensor]:
    if backend == "naive":
        *inputs, V, c = tensors
        output, h_n = naive.recurrence(Operands(*inputs, *settings.values()))
        y = torch.nn.functional.linear(output, V, c)
    else:
        y, h_n = readout(*tensors, backend=backend, **settings)
    random = torch.Generator().manual_seed(3)
    weights = [torch.randn(t.shape, generator=random, dtype=F64).to(t.dtype) for t in (y, h_n)]
    chosen = {"both": slice(0, 2), "y": slice(0, 1), "h_n": slice(1, 2)}[use]
    gradients = torch.autograd.grad(
        (y, h_n)[chosen], tensors, weights[chosen], allow_unused=True, materialize_grads=True
    )
    return [y, h_n, *gradients]


def assert_like_naive(tensors: list[Tensor], backend: str, use: str = "both", **settings: Any) -> None:
    expected, ours = (results(which, tensors, use, **settings) for which in ("naive", backend))
    names = ("y", "h_n", "x", "h0", "W", "U", "b", "V", "c")
    for name, want, got in zip(names, expected, ours, strict=True):
        scale = 1 + float(want.detach().abs().max())
        torch.testing.assert_close(got, want, rtol=0, atol=1e-12 * scale, msg=lambda s, name=name: f"{name}: {s}")


@needs_kernel
@pytest.mark.parametrize("number", range(4 * len(SIZES)))
def test_sizes(number: int, isa: str) -> None:
    n, m, B, p = (SIZES[(factor * number + shift) % len(SIZES)] for factor, shift in ((1, 0), (3, 1), (5, 2), (2, 3)))
    activation = list(activations.ACTIVATIONS)[number % len(activations.ACTIVATIONS)]
    tensors, batch_sizes = problem(1 + number % 5 * 9, B, n, m, p, activation, packed=number % 2 == 0)
    assert_like_naive(tensors, "native", activation=activation, batch_sizes=batch_sizes, reverse=number % 4 > 1)


@pytest.mark.parametrize("backend", [name for name, state in backends().items() if state == "available"])
@pytest.mark.parametrize("use", ["both", "y", "h_n"])
@pytest.mark.parametrize("packed", [False, True], ids=["dense", "packed"])
@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
def test_backends(backend: str, use: str, packed: bool, reverse: bool) -> None:
    tensors, batch_sizes = problem(6, 5, 18, 3, 4, "modrelu", packed)
    settings = {"activation": "modrelu", "batch_sizes": batch_sizes, "reverse": reverse}
    assert_like_naive(tensors, backend, use, **settings)


@needs_kernel
@pytest.mark.parametrize("wanted", range(7))
def test_one_gradient_alone_has_the_same_bits(wanted: int) -> None:
    tensors, _ = problem(30, 9, 21, 2, 5, "modrelu", False, torch.float32)
    g = torch.randn(30, 9, 5)
    every = torch.autograd.grad(readout(*tensors)[0], tensors, g)
    for k, t in enumerate(tensors):
        t.requires_grad_(k == wanted)
    (alone,) = torch.autograd.grad(readout(*tensors)[0], [tensors[wanted]], g)
    assert torch.equal(alone, every[wanted])


@needs_kernel
def test_threads_do_not_change_y_or_x(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "_SERIAL", 0)
    tensors, sizes = problem(20, 11, 17, 3, 4, "modrelu", True)
    settings: dict[str, Any] = {"activation": "modrelu", "batch_sizes": sizes, "reverse": False}
    before = torch.get_num_threads()
    try:
        found = []
        for threads in (1, 3):
            torch.set_num_threads(threads)
            found.append(results("native", tensors, **settings))
    finally:
        torch.set_num_threads(before)
    for k, (one, three) in enumerate(zip(*found, strict=True)):
        assert torch.equal(one, three) if k < 4 else torch.allclose(one, three, rtol=1e-12, atol=1e-12)


@needs_kernel
def test_opcheck() -> None:
    tensors, _ = problem(4, 3, 6, 2, 5, "modrelu", False)
    torch.library.opcheck(torch.ops.scornn.native_reading_forward.default, (*tensors, "modrelu", None, False))


@needs_kernel
def test_a_gradient_of_any_layout() -> None:
    tensors, _ = problem(5, 4, 8, 2, 3, "modrelu", False)
    V = tensors[5]
    expected, got = (
        torch.autograd.grad(readout(*tensors, backend=backend)[0].sum(), V)[0] for backend in ("naive", "native")
    )
    torch.testing.assert_close(got, expected)
    y = readout(*tensors, backend="native")[0]
    g = torch.randn(3, 4, 5, dtype=F64)
    one = torch.autograd.grad(y, V, g.permute(2, 1, 0), retain_graph=True)[0]
    assert torch.equal(one, torch.autograd.grad(y, V, g.permute(2, 1, 0).contiguous())[0])


@pytest.mark.parametrize(
    ("V", "c"),
    [(torch.zeros(3, 5), torch.zeros(3)), (torch.zeros(3, 6), torch.zeros(2)), (torch.zeros(6), torch.zeros(6))],
)
def test_refuses_a_head_of_another_size(V: Tensor, c: Tensor) -> None:
    W = torch.eye(6)
    with pytest.raises(ValueError, match=r"V of shape \(p, 6\) and c of shape \(p,\)"):
        readout(torch.zeros(2, 1, 6), torch.zeros(1, 6), W, W, None, V, c)


@needs_kernel
def test_the_gradient_of_all_states_is_never_made() -> None:
    tensors, _ = problem(200, 4, 32, 2, 3, "modrelu", False, torch.float32)
    y, _ = readout(*tensors)
    seen: list[Any] = []
    assert y.grad_fn is not None
    y.grad_fn.register_prehook(lambda grads: seen.extend(grads))
    y.sum().backward()
    assert [g is None for g in seen] == [True, True, False]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("lengths", [None, [3, 6, 1]], ids=["dense", "packed"])
@pytest.mark.parametrize("options", [{}, {"num_layers": 2}, {"bidirectional": True}], ids=["one", "two", "both-ways"])
def test_every_model_reads_like_a_head(name: str, lengths: list[int] | None, options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    model = SequenceModel(build(name, 2, 8, dtype=F64, **options), 2).eval()
    x = torch.randn(6, 3, 2, dtype=F64)
    sizes = None if lengths is None else torch.tensor(lengths)
    output, _ = model.layer(x) if sizes is None else _padded(model.layer, x, sizes)
    h = model.layer.readout(output) if hasattr(model.layer, "readout") else output
    expected = model.head(h)
    if sizes is not None:
        expected = expected * (torch.arange(6).unsqueeze(1) < sizes).unsqueeze(-1)
    torch.testing.assert_close(model(x, sizes), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["lstm", "gru", "scornn"])
@pytest.mark.parametrize("read", ["all", "last"])
def test_padding_reaches_neither_output_nor_gradient(name: str, read: Literal["all", "last"]) -> None:
    torch.manual_seed(0)
    model = SequenceModel(build(name, 2, 8, num_layers=2, dtype=F64), 3, read=read)
    x, lengths = torch.randn(6, 3, 2, dtype=F64), torch.tensor([3, 6, 1])
    alone = [model(x[:length, k : k + 1]) for k, length in enumerate(lengths.tolist())]
    for k, length in enumerate(lengths.tolist()):
        x[length:, k] = float("nan")
    together = model(x.requires_grad_(), lengths)
    for k, one in enumerate(alone):
        got = together[k : k + 1] if read == "last" else together[: len(one), k : k + 1]
        torch.testing.assert_close(got, one, rtol=0, atol=1e-12)
    together.sum().backward()
    assert x.grad is not None
    assert torch.isfinite(x.grad).all()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)
    for wrong in ([3, 0, 1], [3, 7, 1]):
        with pytest.raises(RuntimeError, match=r"lengths must lie in 1\.\.6"):
            model(x, torch.tensor(wrong))


def test_hooks_of_the_head_are_called() -> None:
    model = SequenceModel(build("scornn", 2, 8), 3)
    x = torch.randn(5, 3, 2)
    torch.nn.utils.prune.random_unstructured(model.head, "weight", amount=0.5)
    assert 0 < int((model.head.weight == 0).sum()) < 24
    model(x).sum().backward()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.step()
    y = model(x)
    torch.testing.assert_close(y, torch.nn.functional.linear(model.layer(x)[0], model.head.weight, model.head.bias))
    assert torch.equal(model.head.weight, model.head.weight_orig * model.head.weight_mask)
    model = SequenceModel(build("scornn", 2, 8), 3)
    seen: list[tuple[int, ...]] = []
    model.head.register_forward_hook(lambda head, inputs, output: seen.append(tuple(output.shape)))
    model(x)
    assert seen == [(5, 3, 3)]
    model = SequenceModel(build("scornn", 2, 8), 2)
    model.layer.register_forward_hook(lambda layer, inputs, output: seen.append(tuple(output[0].shape)))
    model(x)
    assert seen[1:] == [(5, 3, 8)]


def test_other_heads_and_layers() -> None:
    class Mine(MODELS["scornn"].layer):  # type: ignore[misc, name-defined]
        def forward(self, input: Any, hx: Any = None, **asked: Any) -> Any:
            return super().forward(input, hx, **asked)

    x = torch.randn(5, 3, 2)
    model = SequenceModel(Mine(2, 8), 2)
    torch.testing.assert_close(model(x), model.head(model.layer(x)[0]))
    model = SequenceModel(build("scornn", 2, 8), 2)
    model.head = torch.nn.Linear(8, 2, bias=False)
    torch.testing.assert_close(model(x), model.head(model.layer(x)[0]))


@pytest.mark.parametrize("read", ["all", "last"])
def test_autocast_gives_what_a_linear_layer_gives(read: Literal["all", "last"]) -> None:
    model = SequenceModel(build("scornn", 2, 8), 2, read=read)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert model(torch.randn(5, 3, 2)).dtype == torch.bfloat16


def test_states_that_overflow_in_the_padding() -> None:
    layer: Any = build("rnn", 1, 4, nonlinearity="relu")
    with torch.no_grad():
        layer.weight_hh_l0.copy_(2 * torch.eye(4))
        layer.bias_l0.fill_(1)
    model = SequenceModel(layer, 2)
    model(torch.rand(200, 2, 1), torch.tensor([5, 3])).sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


@pytest.mark.parametrize("name", ["scornn", "lstm", "gru"])
def test_a_length_for_each_sequence(name: str) -> None:
    model = SequenceModel(build(name, 2, 8), 2, read="last")
    with pytest.raises(RuntimeError, match="one length for each of the 3 sequences"):
        model(torch.randn(5, 3, 2), torch.tensor([4]))


def _padded(layer: Any, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
    return torch.nn.utils.rnn.pad_packed_sequence(layer(packed)[0], total_length=len(x))


def test_states_are_those_of_the_recurrence() -> None:
    tensors, _ = problem(5, 4, 8, 2, 8, "modrelu", False)
    x, h0, W, U, b, _, _ = tensors
    identity, zero = torch.eye(8, dtype=F64), torch.zeros(8, dtype=F64)
    torch.testing.assert_close(readout(x, h0, W, U, b, identity, zero)[0], recurrence(x, h0, W, U, b)[0])
