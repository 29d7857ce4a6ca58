"""The linear memory: what it is to a scoRNN, its starts, and the last state without a loop."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence

import scornn
from scornn.nn import LinearMemory, MemoryBlocks, ScoRNN, SequenceModel, SpectralRNN
from scornn.nn.linear_memory import RANGE, convolution_pays, schur

F64 = torch.float64


def close(a: Tensor, b: Tensor, tolerance: float = 1e-12) -> None:
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("n", [1, 2, 3, 6, 17])
@pytest.mark.parametrize("rho", [0, 1])
def test_the_matrix_is_orthogonal_with_the_determinant_of_rho(n: int, rho: int) -> None:
    layer = LinearMemory(2, n, rho=rho, start="cayley", dtype=F64)
    error = layer.orthogonality_error()
    assert error is not None
    assert error < 1e-14
    close(torch.linalg.det(layer.weight_hh_l0), torch.tensor((-1.0) ** rho, dtype=F64))
    assert layer.recurrent_parameter_names() == ["angle_hh_l0"]


def test_the_paper_start_gives_the_paper_spectrum() -> None:
    layer = LinearMemory(1, 200, rho=40, start="cayley", dtype=F64)
    angles = torch.linalg.eigvals(layer.weight_hh_l0).angle().abs()
    assert int((angles > torch.pi / 2).sum()) == 40
    uniform = LinearMemory(1, 200, dtype=F64).angle_hh_l0.detach()
    assert 0 <= float(uniform.min()) < 0.3
    assert 2.8 < float(uniform.max()) <= torch.pi


@pytest.mark.parametrize("n", [1, 2, 3, 8, 17])
@pytest.mark.parametrize("rho", [0, 1, None])
def test_a_linear_scornn_is_a_bank_of_rotations(n: int, rho: int | None) -> None:
    layer = ScoRNN(
        3, n, 2, "identity", bidirectional=True, dtype=F64, rho=rho, learn_h0=True, input_scale=0.5, bias_start=0.1
    )
    with torch.no_grad():
        for suffix in layer.suffixes():  # a W that is no start: dense
            layer.tensor(f"skew_hh{suffix}").normal_()
            layer.tensor(f"h0{suffix}").normal_()
    memory, Q = LinearMemory.from_scornn(layer)
    x = torch.randn(31, 2, 3, dtype=F64)
    expected, h_n = layer(x)
    output, memory_h_n = memory(x)
    close(output @ torch.block_diag(*Q[-2:]).mT, expected)
    close(memory_h_n @ Q.mT, h_n)
    close(memory.to_scornn()(x)[0], output)


@pytest.mark.parametrize(
    "W",
    [torch.eye(4), -torch.eye(5), torch.eye(6)[[1, 2, 3, 4, 5, 0]], torch.diag(torch.tensor([1.0, -1, 1, -1, -1, -1]))],
    ids=["identity", "minus identity", "a cycle", "signs"],
)
def test_schur_form_of_repeated_and_real_eigenvalues(W: Tensor) -> None:
    bank, Q = schur(W.double())
    assert bank.sign.numel() <= 2
    close(Q @ bank.matrix() @ Q.mT, W.double())


def test_only_a_linear_scornn_converts() -> None:
    with pytest.raises(ValueError, match="nonlinearity is modrelu"):
        LinearMemory.from_scornn(ScoRNN(2, 4))
    for layer in (scornn.nn.RNN(2, 4, nonlinearity="identity"), SpectralRNN(2, 4, nonlinearity="identity")):
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.add_(torch.rand_like(parameter))
        with pytest.raises(ValueError, match="from_scornn: W is not orthogonal"):
            LinearMemory.from_scornn(layer)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"rho": 2.0}, TypeError, "rho should be of type int, got: float"),
        ({"rho": 5}, ValueError, r"0\.\.4, the size of W; got 5"),
        ({"rho": True}, TypeError, "bool"),
        ({"rho": [1, 2]}, ValueError, "each of the 1 layers"),
        ({"start": "haar"}, ValueError, "unknown start 'haar'"),
        ({"backend": "cuda"}, ValueError, "unknown backend 'cuda'"),
        ({"input_scale": 0}, ValueError, "input_scale"),
    ],
    ids=str,
)
def test_refusals(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        LinearMemory(2, 4, **options)


@pytest.mark.parametrize("steps", [1, 2, 7, 31])
@pytest.mark.parametrize("kind", ["padded", "packed", "stacked", "reversed and packed"])
def test_the_last_state_alone(steps: int, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scornn.ops.bank_last.BLOCK", 5 * 3 * 7)  # blocks of five steps
    options: dict[str, Any] = {"num_layers": 2} if kind == "stacked" else {"bidirectional": kind.startswith("reversed")}
    layer = LinearMemory(3, 7, bias=True, dtype=F64, rho=1, input_scale=0.5, learn_h0=True, **options)
    torch.nn.init.normal_(layer.tensor("bias_l0"))
    x = torch.randn(steps, 3, 3, dtype=F64, requires_grad=True)
    h0 = torch.randn(len(layer.suffixes()), 3, 7, dtype=F64, requires_grad=True)
    lengths = torch.tensor([steps, max(steps - 3, 1), 1])
    weights = torch.randn(h0.shape, dtype=F64)
    layer.learn_h0 = False  # h0 is given
    wanted = [layer.tensor(name) for name, _ in layer.named_parameters() if not name.startswith("h0")] + [x, h0]
    results = []
    for backend, need_output in (("naive", True), ("auto", False)):
        layer.backend = backend
        source: Any = pack_padded_sequence(x, lengths) if "packed" in kind else x
        output, h_n = layer(source, h0, need_output=need_output)
        assert (output is None) != need_output
        results.append([h_n, *torch.autograd.grad((h_n * weights).sum(), wanted)])
    for ours, expected in zip(results[1], results[0], strict=True):
        close(ours, expected, 1e-10)


def test_a_network_that_reads_the_last_state_makes_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = LinearMemory(1, 8)
    model = SequenceModel(layer, 3, read="last")
    x = torch.randn(20, 2, 1)
    expected = model.head(layer(x)[0][-1])
    monkeypatch.delattr(LinearMemory, "run")
    torch.testing.assert_close(model(x), expected, rtol=1e-4, atol=1e-5)


def test_a_head_on_every_state_is_a_convolution_where_that_costs_less(monkeypatch: pytest.MonkeyPatch) -> None:
    assert convolution_pays(1000, 20, 10, 190, 9)
    assert not convolution_pays(300, 20, 129, 224, 129)
    model = SequenceModel(LinearMemory(2, 6, dtype=F64), 3).double()
    x, h0 = torch.randn(50, 4, 2, dtype=F64), torch.randn(1, 4, 6, dtype=F64)
    head = (model.head.weight, model.head.bias)
    expected = [model(x), *model.layer(x, h0, head=head)]
    monkeypatch.setattr("scornn.nn.linear_memory.convolution_pays", lambda *sizes: True)
    for ours, theirs in zip([model(x), *model.layer(x, h0, head=head)], expected, strict=True):
        close(ours, theirs, 1e-11)


@pytest.mark.parametrize("bias", [False, True])
def test_the_last_state_compiles_in_one_graph_at_any_length(bias: bool) -> None:
    network = SequenceModel(LinearMemory(3, 16, bias=bias, dtype=F64), 2, "last").double()
    torch.compiler.reset()
    compiled = torch.compile(network, fullgraph=True, backend="aot_eager")
    for steps in (50, 77, 64, 1, 130, 1000):
        x = torch.randn(steps, 4, 3, dtype=F64)
        close(compiled(x), network(x))


def test_memory_of_the_last_state_has_no_states_in_it() -> None:
    """Autograd keeps the inputs, K and a state for each block: nothing of the size of all states."""
    steps, batch, n = 500, 64, 32
    layer, x = LinearMemory(1, n), torch.randn(steps, batch, 1)
    kept: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):
        layer(x, need_output=False)[1].sum().backward()
    assert max(kept) <= max(steps * n, steps * batch)
    assert sum(kept) < steps * batch * n / 4


def test_it_is_named_as_beyond_the_paper() -> None:
    assert "beyond the paper" in scornn.nn.MODELS["linear-memory"].source
    assert str(LinearMemory(3, 8)) == "LinearMemory(3, 8, rho=4)"


def test_what_is_not_finite_stays_in_its_step_and_after() -> None:
    """Also where a head would be read by a convolution, which transforms all steps at once."""
    layer, x = LinearMemory(1, 256), torch.randn(2000, 8, 1)
    head = (torch.randn(1, 256), torch.zeros(1))
    assert convolution_pays(2000, 8, 1, 256, 1)
    x[1990, 0] = float("nan")
    y, _ = layer(x, head=head)
    assert y[:1990].isfinite().all()
    assert y[:, 1:].isfinite().all()
    assert y[1990:, 0].isnan().all()


@pytest.mark.parametrize("before", ["inputs", "state"])
@pytest.mark.parametrize("scale", [1e2, 1e5, 1e8])
def test_a_large_step_leaves_the_outputs_before_it(scale: float, before: str) -> None:
    """A transform's rounding is that of the largest step: such a sequence is read after the scan."""
    layer, head = LinearMemory(1, 256), (torch.randn(1, 256), torch.zeros(1))
    assert convolution_pays(800, 32, 1, 256, 1)
    x, h0 = torch.randn(800, 32, 1), torch.zeros(1, 32, 256)
    if before == "state":
        x[:600, 3], h0[:, 3] = 0, torch.randn(256) / 10
    x[600, 3] = scale
    y, h_n = layer(x, h0, head=head)
    y[:500].square().mean().backward()
    exact = LinearMemory(1, 256, backend="manual", dtype=F64)
    exact.load_state_dict(layer.state_dict())
    expected, last = exact(x.double(), h0.double(), head=(head[0].double(), head[1].double()))
    expected[:500].square().mean().backward()
    error = (y[:500] - expected[:500]).norm(dim=0) / expected[:500].norm(dim=0)
    # Only the smallest is within RANGE and read by a convolution, whose error may be so much larger than the scan's.
    assert error.max() < (2 * RANGE * torch.finfo(torch.float32).eps if scale == 1e2 else 5e-6)
    assert (h_n - last).norm() < 1e-5 * last.norm()
    for found, wanted in zip(layer.parameters(), exact.parameters(), strict=True):
        assert (found.grad - wanted.grad).norm() < 2e-5 * wanted.grad.norm()


def test_many_steps_after_a_faint_one_leave_its_output() -> None:
    """A transform's rounding is that of all steps together: none of these is 256 times the first, but 4,000 are."""
    layer, head = LinearMemory(1, 256), (torch.randn(1, 256), torch.zeros(1))
    x = torch.ones(4000, 8, 1)
    x[:10] = 1 / 200
    assert convolution_pays(4000, 8, 1, 256, 1)
    expected, _ = deepcopy(layer).double()(x.double(), head=(head[0].double(), head[1].double()))
    error = (layer(x, head=head)[0] - expected)[:10].norm() / expected[:10].norm()
    assert error < 5e-6


def test_within_range_the_rounding_is_a_part_of_what_the_first_step_can_give() -> None:
    """Of single outputs, which may be small by cancellation; ``docs/linear.md``."""
    layer, x = LinearMemory(1, 256), torch.ones(784, 16, 1)
    x[0] = 28 / (0.98 * RANGE)
    for _ in range(4):
        V = torch.randn(1, 256)
        expected, _ = deepcopy(layer).double()(x.double(), head=(V.double(), torch.zeros(1, dtype=F64)))
        y, _ = layer(x, head=(V, torch.zeros(1)))
        most = V.norm() * layer.weight_ih_l0.norm() * x[0].abs().max()
        assert 1e-7 * most < (y - expected)[0].abs().max() < 1e-3 * most


def test_sparse_and_faint_inputs_are_still_read_by_a_convolution(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, head = LinearMemory(1, 256), (torch.randn(1, 256), torch.zeros(1))
    x = torch.zeros(2000, 8, 1)
    x[1500, 1], x[:, 2], x[700:, 3], x[0, 4], x[30, 4] = 1e8, 1, 1, 1 / 255, 1
    assert convolution_pays(2000, 8, 1, 256, 1)
    monkeypatch.setattr("scornn.nn.linear_memory.every_state", None)
    assert layer(x, head=head)[0].isfinite().all()


def test_a_start_on_another_device_than_the_default_one() -> None:
    with torch.device("meta"):
        layer = LinearMemory(1, 8, start="spaced", device="cpu")
    assert layer.angle_hh_l0.isfinite().all()


@pytest.mark.parametrize("width", [8, 512])  # a head after the scan, and one that is a convolution elsewhere
def test_where_nobody_can_look_at_the_numbers_a_head_reads_after_the_scan(width: int) -> None:
    model = SequenceModel(LinearMemory(1, width), 1).eval()
    steps, batch = (256, 64) if width == 512 else (5, 2)
    x = torch.full((steps, batch, 1), 1e-3)
    x[steps // 2] = 1e5
    with torch.no_grad():
        exact = deepcopy(model).double()(x.double())
        limit = 1e-4 * exact[0].abs().max()
        for y in (
            model(x),
            torch.func.vmap(model)(x[None])[0],
            torch.compile(model, backend="eager", fullgraph=True)(x),
        ):
            assert (y[0] - exact[0]).abs().max() < limit
        assert torch.export.export(model, (x,), strict=False).module()(x).shape == exact.shape
        assert SequenceModel(LinearMemory(1, width, device="meta"), 1)(x.to("meta")).shape == exact.shape


def test_one_precision_under_autocast() -> None:
    model = SequenceModel(LinearMemory(1, 512), 1).eval()
    even, large = torch.ones(256, 64, 1), torch.ones(256, 64, 1)
    large[10, :32] = 1e6
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
        assert [model(x).dtype for x in (even, large, even[:3])] == [torch.bfloat16] * 3


@pytest.mark.parametrize("batch", [1, 2])
def test_gradients_of_states_at_odd_places(batch: int) -> None:
    """n is odd, and so the second of two states begins where no complex number may."""
    layers = [LinearMemory(1, 33, num_layers=2), LinearMemory(1, 33, bidirectional=True, learn_h0=True)]
    for layer in (*layers, MemoryBlocks(1, 33, num_layers=2, width=4)):
        h0 = torch.randn(2, batch, 33, requires_grad=True)
        found = torch.autograd.grad(layer(torch.ones(6, batch, 1), h0, need_output=False)[1].square().sum(), h0)
        expected = torch.autograd.grad(layer(torch.ones(6, batch, 1), h0)[1].square().sum(), h0)
        torch.testing.assert_close(found, expected)
