"""One battery for every recurrent layer: the contract of torch.nn.RNN, on every backend that a layer has.

A new model needs a line in CASES only if its defaults do not suit (a size it must have, a second variant).
"""

from __future__ import annotations

import copy
import inspect
import io
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence, pad_packed_sequence

import scornn
from scornn import matrices
from scornn.nn import MODELS, Cell
from scornn.nn.catalogue import model

M, N, T, B = 3, 4, 6, 2


@model("symmetric")
class Symmetric(matrices.Matrix):
    """A matrix of one's own."""

    def __init__(self, n: int, gain: float = 1.0, **where: Any) -> None:
        super().__init__(n)
        self.gain, self.part = gain, nn.Parameter(torch.empty(n, n, **where))
        self.reset()

    def reset(self) -> None:
        nn.init.xavier_uniform_(self.part, self.gain)

    def forward(self) -> Tensor:
        return (self.part + self.part.mT) / 2


@model("cycle")
class Cycle(matrices.Matrix):
    """One that is applied and never formed."""

    def __init__(self, n: int, **where: Any) -> None:
        super().__init__(n)
        self.scale = nn.Parameter(torch.empty(n, **where))
        self.reset()

    def reset(self) -> None:
        nn.init.uniform_(self.scale, -1, 1)

    def multiplier(self) -> Callable[[Tensor], Tensor]:
        return lambda h: self.scale * h.roll(1, -1)


KINDS = {name: entry.layer for name, entry in MODELS.items()}
"""Every model of the library, and two that were entered here, which no other test is to find."""
for own in ("symmetric", "cycle"):
    MODELS.pop(own)


@dataclass(frozen=True)
class Case:
    """A model with options, and the hidden sizes to try it at."""

    model: str
    options: dict[str, Any] = field(default_factory=dict)
    sizes: tuple[int, ...] = (1, 2, 3, 17, 33)

    def layer(self, input_size: int = M, hidden_size: int = N, *, dtype: Any = torch.float64, **more: Any) -> Any:
        torch.manual_seed(1)
        layer = KINDS[self.model](input_size, hidden_size, dtype=dtype, **{**self.options, **more})
        with torch.no_grad():  # away from zeros and other special points
            for name, parameter in layer.named_parameters():
                if name.startswith(("weight_ih", "bias")) and parameter.requires_grad:
                    parameter.add_(0.3 * torch.randn_like(parameter))
        return layer

    def __str__(self) -> str:
        return "-".join([self.model, *(f"{key}={value}" for key, value in self.options.items())])


EXTRA = [
    Case("scornn", {"nonlinearity": "relu"}),
    Case("scornn", {"nonlinearity": "tanh", "rho": 1}, sizes=(1, 2)),
    Case("scornn", {"nonlinearity": "identity", "bias": False}),
    Case("scornn", {"bandwidth": 1}, sizes=(2, 17)),
    Case("scornn", {"bias": False}),
    Case("rnn", {"learn_h0": True}),
    Case("urnn", {"form": "fft"}),
    Case("eurnn", {"complex": False, "capacity": 3}),
    Case("eurnn", {"style": "fft", "learn_h0": True}, sizes=(1, 2, 16)),
    Case("eurnn", {"form": "product", "capacity": 3}),
    Case("eurnn", {"form": "product", "complex": False}),
    Case("ornn", {"reflections": 3}, sizes=(3, 17)),
    Case("goru", {"style": "tunable", "bias": False}),
    Case("spectral", {"margin": 0}),
    Case("linear-memory", {"bias": True, "rho": 1, "start": "cayley"}, sizes=(2, 17, 33)),
]
SIZES: dict[str, tuple[int, ...]] = {"goru": (1, 2, 16, 32)}
CASES = [Case(model, sizes=SIZES.get(model, Case.sizes)) for model in KINDS] + EXTRA


def backends(case: Case) -> list[str | None]:
    if "backend" not in inspect.signature(KINDS[case.model].__init__).parameters:
        return [None]
    has = KINDS[case.model].BACKENDS
    lacks = {"manual"} if case.model in ("lstm", "gru") else set()  # it stands for torch's loop there
    return [name for name, state in scornn.backends().items() if state == "available" and name in {*has} - lacks]


def on(backend: str | None) -> dict[str, str]:
    return {} if backend is None else {"backend": backend}


cases = pytest.mark.parametrize("case", CASES, ids=str)
case_and_backend = pytest.mark.parametrize(("case", "backend"), [(c, b) for c in CASES for b in backends(c)], ids=str)
faster_backends = pytest.mark.parametrize(
    ("case", "backend"), [(c, b) for c in CASES for b in backends(c) if b not in (None, "naive")], ids=str
)


def state_of(result: Any) -> Tensor:
    """h_n, for an LSTM without c_n."""
    state = result[1]
    return state[0] if isinstance(state, tuple) else state


def inputs(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, dtype=dtype)


@cases
@pytest.mark.parametrize("num_layers", [1, 2])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
def test_shapes_are_those_of_torch_rnn(case: Case, num_layers: int, bidirectional: bool, batch_first: bool) -> None:
    same: dict[str, Any] = {"num_layers": num_layers, "bidirectional": bidirectional, "batch_first": batch_first}
    layer = case.layer(**same)
    twin = nn.RNN(M, layer.state_size, **same, dtype=torch.float64)
    for shape in [(T, B, M), (T, M), (1, B, M), (T, 1, M)]:
        x = inputs(*shape)
        ours, theirs = layer(x), twin(x)
        assert ours[0].shape == theirs[0].shape
        assert state_of(ours).shape == theirs[1].shape


@cases
def test_any_size(case: Case) -> None:
    for n in case.sizes:
        layer = case.layer(hidden_size=n)
        output, _ = layer(inputs(T, B, M))
        assert output.isfinite().all()


@cases
def test_empty_batch(case: Case) -> None:
    layer = case.layer()
    output, _ = layer(inputs(T, 0, M))
    assert output.shape[:2] == (T, 0)
    output.sum().backward()
    assert all(p.grad is None or (p.grad == 0).all() for p in layer.parameters())


@cases
def test_batch_first_and_unbatched_give_the_same_numbers(case: Case) -> None:
    layer, first = case.layer(), case.layer(batch_first=True)
    x = inputs(T, B, M)
    expected = layer(x)
    result = first(x.transpose(0, 1))
    torch.testing.assert_close(result[0].transpose(0, 1), expected[0])
    torch.testing.assert_close(state_of(result), state_of(expected))
    single = layer(x[:, 1])
    torch.testing.assert_close(single[0], expected[0][:, 1])
    torch.testing.assert_close(state_of(single), state_of(expected)[:, 1])


@case_and_backend
@pytest.mark.parametrize("enforce_sorted", [True, False])
def test_packed_equals_one_by_one(case: Case, backend: str | None, enforce_sorted: bool) -> None:
    layer = case.layer(num_layers=2, bidirectional=True, **on(backend))
    lengths = [5, 3, 3, 1] if enforce_sorted else [3, 5, 1, 3]
    sequences = [inputs(length, M) for length in lengths]
    output, state = layer(pack_sequence(sequences, enforce_sorted=enforce_sorted))
    padded, _ = pad_packed_sequence(output)
    for i, sequence in enumerate(sequences):
        alone = layer(sequence)
        torch.testing.assert_close(padded[: lengths[i], i], alone[0])
        torch.testing.assert_close(state_of((None, state))[:, i], state_of(alone))


@case_and_backend
def test_packed_rows_that_do_not_add_up_are_refused(case: Case, backend: str | None) -> None:
    """Made by hand: torch's own functions make none such."""
    layer = case.layer(**on(backend))
    for sizes in ([2, 1, 3], [2, 1], [3, 3, 0], []):
        with pytest.raises(ValueError, match="batch_sizes of a PackedSequence"):
            layer(PackedSequence(inputs(6, M), torch.tensor(sizes, dtype=torch.int64)))


@case_and_backend
def test_padding_reaches_no_gradient(case: Case, backend: str | None) -> None:
    layer = case.layer(bidirectional=True, **on(backend))
    x = inputs(5, 2, M)
    x[2:, 1] = float("nan")
    x.requires_grad_()
    output, _ = layer(pack_padded_sequence(x, torch.tensor([5, 2])))
    output.data.sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    assert (x.grad[2:, 1] == 0).all()
    assert all(p.grad is None or p.grad.isfinite().all() for p in layer.parameters())


@cases
@pytest.mark.parametrize("cut", [1, 3, 5])
def test_a_sequence_cut_in_two_with_the_state_carried_over(case: Case, cut: int) -> None:
    layer = case.layer(num_layers=2)
    x = inputs(T, B, M)
    whole = layer(x)
    first, state = layer(x[:cut])
    second = layer(x[cut:], state)
    torch.testing.assert_close(torch.cat([first, second[0]]), whole[0])
    torch.testing.assert_close(state_of(second), state_of(whole))


def parameters_as_arguments(layer: nn.Module) -> tuple[list[str], list[Tensor]]:
    named = [(name, p) for name, p in layer.named_parameters() if p.requires_grad]
    return [name for name, _ in named], [p.detach().clone().requires_grad_() for _, p in named]


def with_state(layer: nn.Module, x: Tensor, requires_grad: bool = True) -> Any:
    """A random h_0 (and c_0) of the right shape."""
    state = layer(x)[1]
    draw = lambda h: (0.5 * torch.randn_like(h)).requires_grad_(requires_grad)  # noqa: E731
    return tuple(draw(h) for h in state) if isinstance(state, tuple) else draw(state)


@case_and_backend
def test_gradcheck_of_input_state_and_every_parameter(case: Case, backend: str | None) -> None:
    layer = case.layer(num_layers=1, bidirectional=True, **on(backend))
    names, values = parameters_as_arguments(layer)
    x = inputs(3, B, M).requires_grad_()
    state = with_state(layer, x)
    states = state if isinstance(state, tuple) else (state,)

    def run(x: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        given = rest[: len(states)]
        hx = given if len(given) > 1 else given[0]
        output, h_n = functional_call(layer, dict(zip(names, rest[len(states) :], strict=True)), (x, hx))
        return (output, *(h_n if isinstance(h_n, tuple) else (h_n,)))

    assert torch.autograd.gradcheck(run, (x, *states, *values), fast_mode=True)


GRADIENTS = {
    "sum": lambda output, h: output.sum(),
    "weighted": lambda output, h: (
        (output * torch.linspace(0, 1, output.numel()).view_as(output)).sum() + h.square().sum()
    ),
    "last step": lambda output, h: output[-1].square().sum(),
    "state only": lambda output, h: h.square().sum(),
    "sliced": lambda output, h: output[::2, :, 1:].square().sum(),
    "transposed": lambda output, h: (
        output.transpose(0, 2) * torch.rand(output.transpose(0, 2).shape).to(output)
    ).sum(),
    "negated view": lambda output, h: (output * torch._neg_view(torch.ones_like(output))).sum(),
}


@pytest.mark.parametrize("packed", [False, True])
@faster_backends
def test_backends_agree_on_outputs_and_every_gradient(case: Case, backend: str | None, packed: bool) -> None:
    x = inputs(T, 3, M)
    results = []
    for name in ("naive", backend):
        layer = case.layer(num_layers=2, bidirectional=True, backend=name)
        leaf = x.clone().requires_grad_()
        source = pack_padded_sequence(leaf, torch.tensor([T, 4, 1])) if packed else leaf
        output, h_n = layer(source)
        if packed:
            output, _ = pad_packed_sequence(output)
        h_n = torch.cat(h_n) if isinstance(h_n, tuple) else h_n
        found: dict[str, list[Tensor | None]] = {"output": [output], "state": [h_n]}
        leaves = [leaf, *(p for p in layer.parameters() if p.requires_grad)]
        for use in ("weighted", "last step") if packed else GRADIENTS:
            torch.manual_seed(2)
            loss = GRADIENTS[use](output, h_n)
            found[use] = list(torch.autograd.grad(loss, leaves, retain_graph=True, allow_unused=True))
        results.append(found)
    for what, expected in results[0].items():
        torch.testing.assert_close(
            results[1][what], expected, rtol=1e-10, atol=1e-10, msg=lambda m, w=what: f"{w}: {m}"
        )


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # torch.func.jvp's own
@cases
def test_torch_func_and_forward_mode_agree_with_backward(case: Case) -> None:
    layer, x = case.layer(), inputs(T, B, M)
    values = {name: p.detach() for name, p in layer.named_parameters()}

    def loss(values: dict[str, Tensor], x: Tensor) -> Tensor:
        return functional_call(layer, values, (x,))[0].square().sum()

    leaf = x.clone().requires_grad_()
    loss(dict(layer.named_parameters()), leaf).backward()
    gradients = torch.func.grad(loss)(values, x)
    for name, parameter in layer.named_parameters():
        if parameter.grad is not None:
            torch.testing.assert_close(gradients[name], parameter.grad, rtol=1e-9, atol=1e-9)
    v = torch.randn_like(x)
    _, tangent = torch.func.jvp(lambda x: loss(values, x), (x,), (v,))
    assert leaf.grad is not None
    torch.testing.assert_close(tangent, (leaf.grad * v).sum(), rtol=1e-9, atol=1e-9)


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # torch.func.jvp's own
@faster_backends
def test_a_backend_without_a_rule_for_transforms_says_so(case: Case, backend: str | None) -> None:
    layer = case.layer(backend=backend)
    with pytest.raises(RuntimeError, match=r"no rule for torch\.func"):
        torch.func.jvp(lambda x: layer(x)[0], (inputs(T, B, M),), (inputs(T, B, M),))


def offset_by_one(value: Any) -> Any:
    """The same numbers, from the second place of their memory on, as those of parameters cut out of one vector."""
    if isinstance(value, tuple):
        return tuple(map(offset_by_one, value))
    return torch.cat([value.new_zeros(1), value.flatten()])[1:].view(value.shape)


@case_and_backend
def test_odd_strides_change_nothing(case: Case, backend: str | None) -> None:
    layer = case.layer(**on(backend))
    x = inputs(T, B, M)
    expected = layer(x)[0]
    flat = torch.full((1 + 3 * x.numel(),), float("nan"), dtype=x.dtype)
    views = {
        "transposed": x.transpose(0, 2).contiguous().transpose(0, 2),
        "every second": torch.stack([x, x + 1], -1).flatten(-2)[..., ::2],
        "offset by one": flat[1 : 1 + x.numel()].view_as(x).copy_(x),
        "negative bit": torch._neg_view(-x),
    }
    for name, view in views.items():
        torch.testing.assert_close(layer(view)[0], expected, msg=name)
    one = x[:1, :1].expand(T, B, M)
    torch.testing.assert_close(layer(one)[0], layer(one.contiguous())[0])
    state = with_state(layer, x, requires_grad=False)
    expected = layer(x, state)[0]
    torch.testing.assert_close(layer(x, offset_by_one(state))[0], expected)
    moved = {name: offset_by_one(p.detach()) for name, p in layer.named_parameters()}
    torch.testing.assert_close(functional_call(layer, moved, (x, state))[0], expected)


@case_and_backend
def test_nan_stays_in_its_sample(case: Case, backend: str | None) -> None:
    layer = case.layer(num_layers=2, bidirectional=True, **on(backend))
    x = inputs(T, 3, M)
    clean, _ = layer(x)
    x[2, 1] = float("nan")
    x.requires_grad_()
    output, _ = layer(x)
    assert torch.equal(output[:, [0, 2]], clean[:, [0, 2]])
    assert output[:, 1].isnan().any()
    output.sum().backward()
    assert x.grad is not None
    assert x.grad[:, [0, 2]].isfinite().all()


@faster_backends
@pytest.mark.parametrize("step", [0, T - 1])
@pytest.mark.parametrize("packed", [False, True])
def test_backends_agree_where_a_sample_holds_nan(case: Case, backend: str | None, step: int, packed: bool) -> None:
    found, x = [], inputs(T, 3, M)
    x[step, 0] = float("nan")
    for name in ("naive", backend):
        layer, leaf = case.layer(backend=name), x.clone().requires_grad_()
        output, h_n = layer(pack_padded_sequence(leaf, torch.tensor([T, 4, 1])) if packed else leaf)
        output, h_n = output.data if packed else output, torch.cat(h_n) if isinstance(h_n, tuple) else h_n
        weights = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view_as(output)
        ((output * weights).sum() + h_n.sum()).backward()
        found.append([output, h_n, leaf.grad, *(p.grad for p in layer.parameters() if p.grad is not None)])
    for ours, expected in zip(*reversed(found), strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-9, atol=1e-9, equal_nan=True)


@case_and_backend
def test_second_derivative(case: Case, backend: str | None) -> None:
    layer = case.layer(**on(backend))
    x = inputs(3, B, M).requires_grad_()
    names, weights = zip(*((name, p) for name, p in layer.named_parameters() if p.requires_grad), strict=True)

    def gradient(x: Tensor, *weights: Tensor) -> Tensor:
        output = torch.func.functional_call(layer, dict(zip(names, weights, strict=True)), (x,))[0]
        (g,) = torch.autograd.grad(output.square().sum(), x, create_graph=True)
        return g

    assert torch.autograd.gradcheck(gradient, (x, *weights), fast_mode=True)


@case_and_backend
def test_a_gradient_of_the_weights_can_be_differentiated(case: Case, backend: str | None) -> None:
    """As a penalty on the gradient asks for it."""
    layer = case.layer(**on(backend))
    weights = [p for p in layer.parameters() if p.requires_grad and p.numel()]
    gradients = torch.autograd.grad(layer(inputs(3, B, M))[0].square().sum(), weights, create_graph=True)
    norm = torch.stack([g.square().sum() for g in gradients]).sum()
    norm.backward()
    assert all(p.grad is not None for p in weights)


@case_and_backend
def test_batched_gradients(case: Case, backend: str | None) -> None:
    layer = case.layer(**on(backend))
    x = inputs(3, B, M).requires_grad_()
    output = layer(x)[0]
    g = torch.randn(2, *output.shape, dtype=output.dtype)
    expected = torch.stack([torch.autograd.grad(output, x, one, retain_graph=True)[0] for one in g])
    together = torch.autograd.grad(output, x, g, is_grads_batched=True, retain_graph=True)[0]
    torch.testing.assert_close(together, expected, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(torch.autograd.grad(output, x, g[0])[0], expected[0])  # and nothing is spoilt


def twins_agree(layer: Any, twin: Any, x: Tensor | None = None) -> None:
    x = inputs(T, B, M) if x is None else x
    torch.testing.assert_close(layer(x)[0], twin(x)[0], rtol=0, atol=0)


@cases
def test_copies(case: Case) -> None:
    layer = case.layer(num_layers=2)
    layer(inputs(T, B, M))
    twins_agree(layer, copy.deepcopy(layer))
    twins_agree(layer, pickle.loads(pickle.dumps(layer)))
    buffer = io.BytesIO()
    torch.save(layer, buffer)
    buffer.seek(0)
    twins_agree(layer, torch.load(buffer, weights_only=False))


@cases
def test_state_dict_round_trip(case: Case) -> None:
    layer = case.layer(num_layers=2, bidirectional=True)
    torch.manual_seed(99)
    twin = KINDS[case.model](M, N, num_layers=2, bidirectional=True, dtype=torch.float64, **case.options)
    assert not torch.equal(layer(inputs(T, B, M))[0], twin(inputs(T, B, M))[0])
    twin.load_state_dict(layer.state_dict())
    twins_agree(layer, twin)


@cases
def test_meta_device(case: Case) -> None:
    layer = case.layer()
    meta = KINDS[case.model](M, N, device="meta", dtype=torch.float64, **case.options)
    assert all(p.is_meta for p in meta.parameters())
    meta.to_empty(device="cpu")
    meta.load_state_dict(layer.state_dict())
    twins_agree(layer, meta)


@cases
def test_reset_parameters_fills_everything(case: Case) -> None:
    """As programs do that build on the meta device and draw the weights afterwards."""
    layer = KINDS[case.model](M, N, device="meta", **case.options).to_empty(device="cpu")
    with torch.no_grad():
        for tensor in (*layer.parameters(), *layer.buffers()):
            tensor.fill_(torch.nan if tensor.is_floating_point() else -7)
    layer.reset_parameters()
    assert all(bool((t.isfinite() & (t > -7)).all()) for t in layer.state_dict().values())
    assert layer(inputs(T, B, M, dtype=torch.float32))[0].isfinite().all()


@cases
def test_every_change_shows_in_the_next_forward(case: Case) -> None:
    layer = case.layer()
    x = inputs(T, B, M)
    changed = next(p for n, p in layer.named_parameters() if not n.startswith(("weight_ih", "bias")) and p.numel())
    for mode in (torch.no_grad, torch.enable_grad, torch.inference_mode):
        with mode():
            before = layer(x)[0].clone()
        changed.data.mul_(0.9).add_(0.01)
        with mode():
            assert not torch.equal(before, layer(x)[0])


@cases
def test_functional_call(case: Case) -> None:
    layer, x = case.layer(), inputs(T, B, M)
    before = layer(x)[0]
    other = {name: p.detach() * 0.5 for name, p in layer.named_parameters()}
    assert not torch.equal(functional_call(layer, other, (x,))[0], before)
    torch.testing.assert_close(layer(x)[0], before, rtol=0, atol=0)


@cases
def test_dtypes(case: Case) -> None:
    layer = case.layer(dtype=torch.float32)
    x = inputs(T, B, M, dtype=torch.float32)
    single = layer(x)[0]
    double = copy.deepcopy(layer).double()(x.double())[0]
    assert double.dtype == torch.float64
    torch.testing.assert_close(single.double(), double, rtol=1e-4, atol=1e-5)
    half = copy.deepcopy(layer).bfloat16()(x.bfloat16())[0]
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), single, rtol=0.2, atol=0.1)


@cases
def test_autocast(case: Case) -> None:
    layer = case.layer(dtype=torch.float32)
    x = inputs(T, B, M, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = layer(x)[0]
        assert layer(x.bfloat16())[0].dtype == torch.float32
    torch.testing.assert_close(output.float(), layer(x)[0], rtol=0.2, atol=0.1)
    output.float().sum().backward()


@pytest.mark.parametrize("backend", ["naive", "manual"])
def test_autocast_leaves_the_recurrence_alone_on_every_rung(backend: str) -> None:
    layer = scornn.ScoRNN(M, 17, input_scale=1.0, backend=backend)
    x = torch.randn(T, B, M)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = layer(x)[0]
    assert torch.equal(output, layer(x)[0])
    output.sum().backward()


@pytest.mark.parametrize(
    ("case", "backend"), [(c, b) for c in CASES for b in backends(c)[-1:]] + [(CASES[0], "naive")], ids=str
)
def test_compile_in_one_graph(case: Case, backend: str | None) -> None:
    layer = case.layer(**on(backend))
    torch.compiler.reset()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    x = inputs(T, B, M).requires_grad_()
    output = compiled(x)[0]
    torch.testing.assert_close(output, layer(x)[0])
    output.square().sum().backward()
    ours = x.grad
    x.grad = None
    layer(x)[0].square().sum().backward()
    torch.testing.assert_close(ours, x.grad)


BAD_INPUTS = {
    "wrong input size": ((T, B, M + 1), None, torch.float64),
    "one dimension": ((M,), None, torch.float64),
    "four dimensions": ((1, T, B, M), None, torch.float64),
    "other dtype": ((T, B, M), None, torch.float32),
    "integers": ((T, B, M), None, torch.int64),
    "no steps": ((0, B, M), None, torch.float64),
    "state of another batch": ((T, B, M), (1, B + 1, -1), torch.float64),
    "state of another size": ((T, B, M), (1, B, 1), torch.float64),
    "state without batch": ((T, B, M), (1, -1), torch.float64),
    "state with batch for unbatched": ((T, M), (1, 1, -1), torch.float64),
}


@cases
@pytest.mark.parametrize("kind", BAD_INPUTS)
def test_refuses_what_torch_rnn_refuses(case: Case, kind: str) -> None:
    shape, state_shape, dtype = BAD_INPUTS[kind]
    layer = case.layer()
    size = layer.state_size
    twin = nn.RNN(M, size, dtype=torch.float64)
    x = torch.ones(shape, dtype=dtype)
    hx = (
        None if state_shape is None else torch.zeros([size if s == -1 else s for s in state_shape], dtype=torch.float64)
    )
    with pytest.raises((ValueError, RuntimeError)) as theirs:
        twin(x, hx)
    if hx is not None and len(layer.state_sizes()) == 2:
        hx = (hx, hx)
    with pytest.raises((type(theirs.value), ValueError)) as ours:
        layer(x, hx)
    assert len(str(ours.value)) > 20


@cases
@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"hidden_size": 0}, ValueError),
        ({"hidden_size": 2.0}, TypeError),
        ({"num_layers": 0}, ValueError),
        ({"dropout": 1.5}, ValueError),
    ],
    ids=str,
)
def test_constructor_refuses(case: Case, change: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        KINDS[case.model](**({"input_size": M, "hidden_size": N} | case.options | change))


@cases
def test_dropout_between_layers(case: Case) -> None:
    layer = case.layer(num_layers=2, dropout=0.5)
    x = inputs(T, B, M)
    assert not torch.equal(layer(x)[0], layer(x)[0])
    layer.eval()
    assert torch.equal(layer(x)[0], layer(x)[0])
    with pytest.warns(UserWarning, match="num_layers greater than 1"):
        case.layer(num_layers=1, dropout=0.5)


@cases
def test_the_recurrent_parameters_are_trained(case: Case) -> None:
    """A loss on output and last state moves every parameter (a parametrised torch.nn.RNN moves none)."""
    layer = case.layer()
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    before = {name: p.detach().clone() for name, p in layer.named_parameters() if p.requires_grad and p.numel()}
    result = layer(inputs(T, B, M))
    (state_of(result).square().sum() + result[0].square().sum()).backward()
    optimizer.step()
    for name, p in layer.named_parameters():
        if name in before:
            assert not torch.equal(p, before[name]), name


MADE: list[tuple[type[matrices.Matrix], dict[str, Any]]] = [
    *(
        (kind, {})
        for kind in (getattr(matrices, name) for name in matrices.__all__)
        if kind not in (matrices.Matrix, matrices.Constant, matrices.cached)
    ),
    (matrices.ScaledCayley, {"rho": 1, "bandwidth": 1}),
    (matrices.Exponential, {"start": "cayley"}),
    (matrices.Rotations, {"complex": False, "capacity": 3}),
    (matrices.Householder, {"reflections": 4}),
    (Symmetric, {"gain": 0.5}),
    (Cycle, {}),
]
made = pytest.mark.parametrize(("kind", "options"), MADE, ids=str)


@made
def test_a_matrix_parametrizes_a_module_of_torch(kind: type[matrices.Matrix], options: dict[str, Any]) -> None:
    matrix = kind(N, **options)
    linear: Any = nn.Linear(matrix.size, matrix.size, dtype=torch.float64)
    nn.utils.parametrize.register_parametrization(linear, "weight", matrix)
    W, x = linear.weight.detach().clone(), inputs(B, matrix.size)
    assert matrix.like.dtype == W.dtype == torch.float64
    assert matrix.error() is None or matrix.error() < 1e-5
    twin: Any = nn.Linear(matrix.size, matrix.size, dtype=torch.float64)
    nn.utils.parametrize.register_parametrization(twin, "weight", kind(N, **options))
    twin.load_state_dict(linear.state_dict())
    twins_agree(lambda x: (linear(x),), lambda x: (twin(x),), x)
    names, values = parameters_as_arguments(linear)
    run = lambda *values: functional_call(linear, dict(zip(names, values, strict=True)), (x,))  # noqa: E731
    assert torch.autograd.gradcheck(run, values, fast_mode=True)
    linear(x).square().sum().backward()
    torch.optim.SGD(linear.parameters(), lr=0.1).step()
    assert not torch.equal(linear.weight, W)
    if kind in (matrices.ScaledCayley, matrices.Free):
        linear.weight = W
        torch.testing.assert_close(linear.weight.detach(), W, rtol=0, atol=1e-5)
    else:
        with pytest.raises(AttributeError, match="cannot be assigned to"):
            linear.weight = W
    expected = linear.float().weight.detach()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(linear.weight, expected)
    nn.utils.parametrize.remove_parametrizations(linear, "weight")
    assert isinstance(linear.weight, nn.Parameter)


@made
def test_a_matrix_makes_a_cell(kind: type[matrices.Matrix], options: dict[str, Any]) -> None:
    matrix = kind(N, dtype=torch.float64, **options)
    cell = Cell(M, matrix, activation="complex_modrelu" if matrix.complex else "tanh", learn_h0=True)
    nn.init.normal_(cell.weight_ih)
    names, values = parameters_as_arguments(cell)
    x, h = inputs(B, M), inputs(B, matrix.size)
    run = lambda *values: functional_call(cell, dict(zip(names, values, strict=True)), (x, h))  # noqa: E731
    assert torch.autograd.gradcheck(run, values, fast_mode=True)
    twin = copy.deepcopy(cell)
    twin.reset_parameters()
    twin.load_state_dict(cell.state_dict())
    assert torch.equal(twin(x), cell(x))
    assert "weight_ih" in cell.state_dict()
    assert all(key.endswith("_hh") for key in cell.state_dict() if key not in ("weight_ih", "h0"))
