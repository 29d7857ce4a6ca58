"""The layer at its edges: W made in forward, the scope that keeps it, meta and fake tensors, and what is refused."""

from __future__ import annotations

import os
import pickle
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call, vmap
from torch.nn.utils import parametrize, prune
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence, pad_packed_sequence

import scornn
from scornn.nn import MODELS, RNN, SequenceModel, build
from scornn.nn.spectral import soft_orthogonality

F64 = torch.float64
names = pytest.mark.parametrize("name", MODELS)


class Counter:
    """How often a layer made its W."""

    def __init__(self, layer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made = 0
        for matrix in layer.matrices():
            monkeypatch.setattr(matrix, "forward", lambda make=matrix.forward: self._count(make()))

    def _count(self, W: Tensor) -> Tensor:
        self.made += 1
        return W


class TestCached:
    def test_streaming_makes_W_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        layer, x = scornn.ScoRNN(3, 8, num_layers=2), torch.randn(6, 2, 3)
        count, whole = Counter(layer, monkeypatch), layer(x)[0]
        assert count.made == 2
        h = None
        with torch.no_grad(), scornn.cached():
            for t in range(6):
                output, h = layer(x[t : t + 1], h)
                torch.testing.assert_close(output[0], whole[t])
            assert count.made == 4
            with scornn.cached():  # one inside another shares
                layer(x)
            thread = threading.Thread(target=layer, args=(x,))  # and a thread has its own
            thread.start()
            thread.join()
            assert count.made == 6
        with torch.no_grad():
            layer(x)
        assert count.made == 8

    @names
    def test_every_model_gives_the_same_inside(self, name: str) -> None:
        layer, x = build(name, 3, 8), torch.randn(5, 2, 3)
        layer.eval()
        expected = layer(x)[0]
        with scornn.cached():
            assert torch.equal(layer(x)[0], expected)
            assert torch.equal(layer(x)[0], expected)

    def test_modes_and_replaced_numbers_have_their_own_W(self) -> None:
        layer, x = scornn.ScoRNN(3, 8), torch.randn(5, 2, 3)
        nn.init.normal_(layer.weight_ih_l0)
        with scornn.cached():
            with torch.inference_mode():
                before = layer(x)[0].clone()
            with torch.no_grad():
                assert not layer(x)[0].requires_grad
                assert not torch.equal(functional_call(layer, {"hh_l0.skew": torch.zeros(28)}, (x,))[0], before)
                layer.weight_hh_l0.zero_()  # what it gives is fresh
                assert torch.equal(layer(x)[0], before)
            layer(x)[0].sum().backward()
        assert layer.skew_hh_l0.grad is not None

    @pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # torch.func.jvp's own
    def test_transforms_neither_use_it_nor_leave_anything(self) -> None:
        layer = scornn.ScoRNN(3, 8, dtype=torch.float64)
        nn.init.normal_(layer.weight_ih_l0)
        x = torch.randn(5, 2, 3, dtype=torch.float64)
        v = torch.randn(2, 28, dtype=torch.float64)

        def loss(v: Tensor) -> Tensor:
            total: Tensor = functional_call(layer, {"hh_l0.skew": v}, (x,))[0].square().sum()
            return total

        (gradient,) = torch.autograd.grad(loss(layer.skew_hh_l0), layer.skew_hh_l0)
        with torch.no_grad(), scornn.cached():
            before = layer(x)[0]
            both = vmap(loss)(v)
            torch.testing.assert_close(both, torch.stack([loss(v[0]), loss(v[1])]))
            _, tangent = torch.func.jvp(loss, (layer.skew_hh_l0.detach(),), (v[0],))
            torch.testing.assert_close(tangent, (gradient * v[0]).sum())
            assert torch.equal(layer(x)[0], before)
        assert torch.equal(layer(x)[0], before)


class TestWithoutNumbers:
    @names
    def test_meta_and_fake_leave_nothing_behind(self, name: str) -> None:
        with torch.device("meta"):
            layer: Any = build(name, 3, 32)
            assert layer(torch.empty(4, 2, 3))[0].is_meta
            real: Any = build(name, 3, 32, device="cpu")
        assert layer.like.is_meta
        repr(layer)
        with FakeTensorMode():
            fake = build(name, 3, 32)
            fake(torch.randn(4, 2, 3))[0].sum().backward()
        for each in (real, build(name, 3, 32)):
            assert type(each(torch.randn(4, 2, 3))[0]) is Tensor

    def test_cell(self) -> None:
        cell = scornn.ScoRNNCell(3, 5, device="meta")
        assert cell(torch.empty(2, 3, device="meta")).shape == (2, 5)


TRANSFORMED: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in MODELS),
    ("lstm", {"proj_size": 2, "num_layers": 2}),
    ("gru", {"bidirectional": True}),
]


@pytest.mark.parametrize(("name", "options"), TRANSFORMED)
class TestTransforms:
    """vmap, for which neither the kernel nor torch's own LSTM has a rule."""

    @pytest.mark.filterwarnings("ignore:There is a performance drop")  # where torch has no rule for an operator of ours
    def test_vmap_over_inputs_and_over_parameters(self, name: str, options: dict[str, Any]) -> None:
        layer, x = build(name, 3, 4, dtype=F64, **options).eval(), torch.randn(2, 5, 2, 3, dtype=F64)
        torch.testing.assert_close(vmap(lambda x: layer(x)[0])(x), torch.stack([layer(x[0])[0], layer(x[1])[0]]))
        values = {key: torch.stack([p.detach(), 0.9 * p.detach()]) for key, p in layer.named_parameters()}
        both = vmap(lambda values: functional_call(layer, values, (x[0],))[0])(values)
        for k in range(2):
            one = functional_call(layer, {key: value[k] for key, value in values.items()}, (x[0],))[0]
            torch.testing.assert_close(both[k], one)


class TestAsTorchRNN:
    def test_flatten_parameters_and_all_weights(self) -> None:
        layer = scornn.ScoRNN(3, 5, num_layers=2, bidirectional=True)
        layer.flatten_parameters()
        assert [len(weights) for weights in layer.all_weights] == [3] * 4
        assert layer.all_weights[1][0] is layer.weight_ih_l0_reverse
        twin = nn.LSTM(3, 5)
        ours = [p.shape for p in build("lstm", 3, 5).all_weights[0]]
        assert ours == [p.shape for p in twin.all_weights[0]]

    @pytest.mark.parametrize("name", ["lstm", "gru"])
    def test_a_state_dict_of_torch_loads(self, name: str) -> None:
        theirs = {"lstm": nn.LSTM, "gru": nn.GRU}[name](3, 5, 2, bidirectional=True)
        ours = build(name, 3, 5, num_layers=2, bidirectional=True)
        ours.load_state_dict(theirs.state_dict())
        assert list(ours.state_dict()) == list(theirs.state_dict())
        x = torch.randn(6, 2, 3)
        torch.testing.assert_close(ours(x)[0], theirs(x)[0])

    def test_writing_into_the_output_before_backward_fails_in_autograds_words(self) -> None:
        layer, x = scornn.ScoRNN(3, 5), torch.randn(4, 2, 3)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            layer(x)[0].mul_(2).sum().backward()
        layer(x)[0].clone().mul_(2).sum().backward()

    def test_cell_under_autocast(self) -> None:
        cell = scornn.ScoRNNCell(3, 5)
        nn.init.normal_(cell.weight_ih)
        x, h = torch.randn(2, 3), torch.randn(2, 5)
        expected = cell(x, h)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert torch.equal(cell(x, h), expected)
            assert cell(x.bfloat16(), h.bfloat16()).dtype == torch.float32
        with pytest.raises(ValueError, match="dtype"):
            cell(x.double())

    def test_one_state(self) -> None:
        h = torch.zeros(1, 2, 5)
        with pytest.raises(RuntimeError, match=r"ScoRNN has one hidden state.*give h alone"):
            scornn.ScoRNN(3, 5)(torch.randn(4, 2, 3), (h, h))
        with pytest.raises(RuntimeError, match="one hidden state"):
            scornn.ScoRNNCell(3, 5)(torch.randn(2, 3), (h[0], h[0]))  # type: ignore[arg-type]
        with pytest.raises(RuntimeError, match=r"two hidden states.*got one tensor"):
            build("lstm", 3, 5)(torch.randn(4, 2, 3), h)

    def test_the_state_dict_of_a_torch_rnn_is_explained(self) -> None:
        for layer, theirs in ((scornn.ScoRNN(3, 5), nn.RNN(3, 5)), (scornn.ScoRNNCell(3, 5), nn.RNNCell(3, 5))):
            before = {name: value.clone() for name, value in layer.state_dict().items()}
            explained = pytest.warns(UserWarning, match=r"names of a torch\.nn\.RNN.* = left @ right of .*svd\(W\)")
            with explained, pytest.raises(RuntimeError, match="Missing key"):
                layer.load_state_dict(theirs.state_dict())
            assert set(before) == set(layer.state_dict())
        explained = pytest.warns(UserWarning, match=r"bias_ih_l\{k\} \+ bias_hh_l\{k\}")
        with explained, pytest.raises(RuntimeError, match="Missing key"):
            build("rnn", 3, 5).load_state_dict(nn.RNN(3, 5).state_dict())

    def test_what_fits_of_a_torch_rnn_loads_where_not_all_must(self) -> None:
        model, theirs = nn.Sequential(scornn.ScoRNN(3, 5)), nn.Sequential(nn.RNN(3, 5))
        with pytest.warns(
            UserWarning, match=r"0\.weight_hh_l0, 0\.bias_ih_l0: these are the names of a torch\.nn\.RNN"
        ):
            missing, unexpected = model.load_state_dict(theirs.state_dict(), strict=False)
        assert (missing, len(unexpected)) == (["0.bias_l0", "0.skew_hh_l0", "0.sign_hh_l0"], 3)
        assert torch.equal(model[0].weight_ih_l0, theirs[0].weight_ih_l0)

    def test_bandwidth_is_a_number(self) -> None:
        with pytest.raises(ValueError, match="bandwidth must be an integer"):
            scornn.ScoRNN(3, 5, bandwidth=True)

    def test_rho_in_the_repr_is_counted(self) -> None:
        layer = scornn.ScoRNN(3, 4, num_layers=2, rho=1)
        assert repr(layer) == "ScoRNN(3, 4, num_layers=2, rho=1)"
        layer.weight_hh_l1 = -torch.eye(4)
        assert repr(layer) == "ScoRNN(3, 4, num_layers=2, rho=(1, 4))"
        layer.load_state_dict(scornn.ScoRNN(3, 4, num_layers=2, rho=3).state_dict())
        assert repr(layer) == "ScoRNN(3, 4, num_layers=2, rho=3)"
        assert repr(scornn.ScoRNN(3, 4, device="meta", rho=1)) == "ScoRNN(3, 4, rho=1)"


@pytest.mark.parametrize("name", ["scornn", "exprnn", "scurnn", "eurnn", "goru"])
def test_orthogonality_of_a_rounded_matrix(name: str) -> None:
    layer: Any = build(name, 3, 64)
    exact = layer.orthogonality_error()
    W = layer.bfloat16().weight_hh_l0.detach().double()
    rounded = float((W.mT @ W - torch.eye(len(W))).norm())
    scale = 2**0.5 if name in ("scurnn", "eurnn") else 1  # the norm of the real form, of a complex W
    assert exact < 1e-4 < layer.orthogonality_error()
    assert layer.orthogonality_error() == pytest.approx(rounded / scale, rel=1e-3)


def test_after_fully_shard(tmp_path: Path) -> None:
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import init_device_mesh

    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    try:
        layer: Any = scornn.ScoRNN(3, 5)
        x = torch.randn(4, 2, 3)
        expected, W = layer(x)[0].detach(), layer.weight_hh_l0.detach()
        fully_shard(layer, mesh=init_device_mesh("cpu", (1,)))
        assert layer.orthogonality_error() < 1e-5
        torch.testing.assert_close(layer.weight_hh_l0.detach(), W)
        torch.testing.assert_close(layer(x)[0].detach(), expected)
        layer.reshard()
        with pytest.raises(RuntimeError, match="pruned or sharded"):
            layer.weight_hh_l0 = torch.eye(5)
        assert "skew_hh_l0" in scornn.optim.recurrent_parameters(layer)
    finally:
        dist.destroy_process_group()


class Halved(nn.Module):
    def forward(self, v: Tensor) -> Tensor:
        return v / 2

    def right_inverse(self, v: Tensor) -> Tensor:
        return v * 2


@pytest.mark.parametrize("kind", ["parametrized", "pruned"])
def test_the_numbers_of_a_matrix_parametrized_or_pruned(kind: str) -> None:
    layer: Any = scornn.ScoRNN(3, 6, dtype=torch.float64)
    nn.init.normal_(layer.skew_hh_l0)
    nn.init.normal_(layer.weight_ih_l0)
    matrix = layer.matrix("_l0")
    if kind == "parametrized":
        parametrize.register_parametrization(matrix, "skew", Halved())
    else:
        prune.random_unstructured(matrix, "skew", amount=5)
    W = scornn.functional.scaled_cayley(scornn.functional.skew(layer.skew_hh_l0, 6), layer.sign_hh_l0)
    torch.testing.assert_close(layer.weight_hh_l0, W)
    groups = scornn.optim.parameter_groups(SequenceModel(layer, 2), lr=1e-3, recurrent_lr=1e-4)
    found = next(group for group in groups if group["name"] == "recurrent")["params"]
    original = matrix.parametrizations.skew.original if kind == "parametrized" else matrix.skew_orig
    assert [id(p) for p in found] == [id(original)]
    layer(torch.randn(4, 2, 3, dtype=torch.float64))[0].sum().backward()
    assert original.grad is not None
    with pytest.raises(RuntimeError, match="skew is parametrized, pruned or sharded"):
        layer.weight_hh_l0 = torch.eye(6)


def test_an_option_that_nobody_takes_is_named() -> None:
    with pytest.raises(TypeError, match="ExpRNN takes no strat, nor does its matrix, Exponential"):
        build("exprnn", 3, 6, strat="cayley")
    layer = RNN(3, 6, matrix=lambda n, **where: scornn.ScaledCayley(n, 1, **where))
    twin = pickle.loads(pickle.dumps(layer))
    assert (layer.rho, twin.rho) == (1, 1)


def test_a_matrix_that_takes_no_other_says_so() -> None:
    with pytest.raises(TypeError, match=r"cannot assign .* as parameter 'weight'"):  # as torch.nn.RNN does
        functional_call(build("rnn", 3, 6), {"weight_hh_l0": torch.eye(6)}, (torch.randn(4, 2, 3),))
    layer: Any = build("exprnn", 3, 6)
    with pytest.raises(AttributeError, match=r"weight_hh_l0: Exponential makes its matrix from skew"):
        layer.weight_hh_l0 = torch.eye(6)


class TestSequenceModel:
    def test_batch_first_is_refused(self) -> None:
        with pytest.raises(ValueError, match="batch_first=True"):
            SequenceModel(scornn.ScoRNN(3, 5, batch_first=True), 2)

    def test_a_layer_of_torch_is_refused(self) -> None:
        with pytest.raises(TypeError, match=r"scornn\.nn\.RecurrentLayer; got RNN"):
            SequenceModel(nn.RNN(3, 5), 2)  # type: ignore[arg-type]

    @pytest.mark.parametrize("name", ["scornn", "lstm", "gru"])
    def test_packed_inputs(self, name: str) -> None:
        layer, x, lengths = build(name, 3, 5), torch.randn(6, 3, 3), torch.tensor([4, 6, 1])
        packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
        every, last = SequenceModel(layer, 2), SequenceModel(layer, 2, read="last")
        output = every(packed)
        assert isinstance(output, PackedSequence)
        torch.testing.assert_close(pad_packed_sequence(output)[0], every(x, lengths))
        torch.testing.assert_close(last(packed), last(x, lengths))
        with pytest.raises(ValueError, match="its own lengths"):
            every(packed, lengths)


class TestLastStateAlone:
    @pytest.fixture(autouse=True)
    def small_pieces(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("scornn.nn.layer.HELD", 2**14)

    @names
    def test_is_that_of_the_whole_forward(self, name: str) -> None:
        layer, x = build(name, 3, 8, dtype=torch.float64, num_layers=2), torch.randn(270, 3, 3, dtype=torch.float64)
        packed = pack_padded_sequence(x, torch.tensor([1, 270, 140]), enforce_sorted=False)
        state = layer(x[:5])[1]
        for given in ((x,), (x[:, 0],), (packed,), (packed, state), (x, state)):
            expected = layer(*given)[1]
            for mode in (torch.enable_grad, torch.no_grad, torch.inference_mode):
                with mode():
                    output, last = layer(*given, need_output=False)
                assert output is None
                torch.testing.assert_close(last, expected)

    @names
    def test_holds_few_states(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        layer, x = build(name, 3, 8), torch.randn(700, 2, 3)
        longest: list[int] = []
        run = layer.run
        monkeypatch.setattr(layer, "run", lambda *args, **named: longest.append(len(args[1])) or run(*args, **named))
        with torch.no_grad():
            layer(x, need_output=False)
        assert max(longest, default=0) * 2 * sum(layer.state_sizes()) * x.element_size() <= 2**14

    def test_W_is_made_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        layer = scornn.ScoRNN(3, 8)
        count = Counter(layer, monkeypatch)
        with torch.no_grad():
            layer(torch.randn(700, 2, 3), need_output=False)
        assert count.made == 1

    def test_gradients_and_batch_first_and_both_directions(self) -> None:
        layer, x = scornn.ScoRNN(3, 5, batch_first=True, bidirectional=True), torch.randn(2, 150, 3)
        layer(x, need_output=False)[1].sum().backward()
        gradient = layer.skew_hh_l0.grad
        layer.zero_grad()
        layer(x)[1].sum().backward()
        assert torch.equal(gradient, layer.skew_hh_l0.grad)
        with torch.no_grad():
            torch.testing.assert_close(layer(x, need_output=False)[1], layer(x)[1])

    def test_a_head_needs_the_output(self) -> None:
        head = torch.randn(2, 5), torch.zeros(2)
        with pytest.raises(ValueError, match="need_output=True"):
            scornn.ScoRNN(3, 5)(torch.randn(4, 2, 3), head=head, need_output=False)

    def test_a_sequence_model_asks_for_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        model = SequenceModel(scornn.ScoRNN(3, 5), 2, read="last")
        seen: list[Any] = []
        forward = scornn.ScoRNN.forward

        def watched(*args: Any, **named: Any) -> Any:
            seen.append(named["need_output"])
            return forward(*args, **named)

        monkeypatch.setattr(scornn.ScoRNN, "forward", watched)
        x = torch.randn(4, 2, 3)
        expected = model(x)
        model.layer.register_forward_hook(lambda module, args, result: None)
        assert torch.equal(model(x), expected)
        assert seen == ["last", True]


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")  # of the matrix, whose forward has no inputs
@pytest.mark.parametrize("kind", ["forward", "forward_pre", "full_backward", "full_backward_pre"])
def test_hooks_of_all_modules_see_the_head(kind: str) -> None:
    model, x = SequenceModel(scornn.ScoRNN(3, 8), 4), torch.randn(5, 2, 3, requires_grad=True)
    seen: list[nn.Module] = []
    register = getattr(torch.nn.modules.module, f"register_module_{kind}_hook")
    handle = register(lambda module, *_: seen.append(module))
    try:
        model(x).sum().backward()
    finally:
        handle.remove()
    assert {model.layer, model.head} <= set(seen)


@names
@pytest.mark.parametrize("batch", [2, 4])
def test_packed_inputs_refuse_a_state_of_another_batch(name: str, batch: int) -> None:
    """Sorting by length would pick three rows of four without a word."""
    layer = build(name, 3, 8)
    sequences = pack_sequence([torch.randn(length, 3) for length in (4, 2, 5)], enforce_sorted=False)
    _, state = layer(torch.randn(4, batch, 3))
    with pytest.raises(RuntimeError, match=rf"Expected hidden.* size \(1, 3, \d+\), got \[1, {batch}, \d+\]"):
        layer(sequences, state)


@pytest.mark.parametrize("wrong", [[[0.0]], "abc", None])
def test_what_is_no_tensor_is_named(wrong: Any) -> None:
    with pytest.raises(TypeError, match=rf"input is a tensor or a PackedSequence, got {type(wrong).__name__}"):
        scornn.ScoRNN(3, 8)(wrong)


@names
def test_complex_parameters_are_refused(name: str) -> None:
    with pytest.raises(TypeError, match=r"dtype must be a real floating point type, got torch\.complex64"):
        build(name, 3, 8, dtype=torch.complex64)


def test_a_cell_refuses_a_state_of_another_form() -> None:
    """As many numbers in another form are another state: nothing is reshaped."""
    cell, x = scornn.ScoRNNCell(3, 8), torch.randn(2, 3)
    for state in (torch.zeros(4, 4), torch.zeros(1, 16)):
        with pytest.raises(RuntimeError, match=f"hidden has inconsistent hidden_size: expected 8, got {len(state[0])}"):
            cell(x, state)
    with pytest.raises(ValueError, match=r"hx is torch\.float64, but input is torch\.float32"):
        cell(x, torch.zeros(2, 8, dtype=F64))


@pytest.mark.parametrize("wrong", [1, 0, None, "first", torch.tensor(True)], ids=str)
def test_need_output_is_one_of_three(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r'need_output must be True, False or "last", got'):
        scornn.ScoRNN(1, 2)(torch.zeros(2, 1, 1), need_output=wrong)


@names
def test_autocast_changes_neither_what_weight_hh_gives_nor_its_error(name: str) -> None:
    layer: Any = build(name, 3, 16)
    W, error = layer.weight_hh_l0, layer.orthogonality_error()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(layer.weight_hh_l0, W)
        assert layer.orthogonality_error() == error
        penalty = soft_orthogonality(layer) if isinstance(layer, RNN) else None
    assert penalty is None or torch.equal(penalty, soft_orthogonality(layer))


@pytest.mark.parametrize("read", ["all", "last", "mean"])
def test_an_empty_batch_has_no_lengths(read: Any) -> None:
    model = SequenceModel(scornn.ScoRNN(2, 4), 3, read=read)
    for lengths in ([], torch.zeros(0, dtype=torch.long)):
        assert model(torch.zeros(5, 0, 2), lengths).shape == ((5, 0, 3) if read == "all" else (0, 3))


def test_what_a_sequence_model_does_not_take_is_named() -> None:
    layer, x = scornn.ScoRNN(2, 4), torch.zeros(5, 2, 2)
    for options, name in (({"width": 0}, "width"), ({"width": 2.5}, "width"), ({"width": 4, "depth": 0}, "depth")):
        with pytest.raises((TypeError, ValueError), match=name):
            SequenceModel(layer, 3, **options)
    model = SequenceModel(layer, 3)
    for lengths in ([True, True], [1.0, 2.0], torch.tensor([1 + 0j, 2])):
        with pytest.raises(TypeError, match="lengths must be integers"):
            model(x, lengths)
    with pytest.raises(RuntimeError, match=r"lengths are for inputs \(T, B, m\), got 2-D"):
        model(x[:, 0], [3, 4])


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("scornn", "input_scale"),
        ("scornn", "bias_start"),
        ("linear-memory", "input_scale"),
        ("lstm", "forget_bias"),
        ("gru", "forget_bias"),
        ("rnn", "soft_orthogonality"),
        ("spectral", "margin"),
        ("memory-blocks", "gate_dropout"),
        ("memory-blocks", "closed"),
    ],
)
@pytest.mark.parametrize("wrong", ["0.1", float("nan"), True, None])
def test_an_option_that_is_no_number_is_named(name: str, option: str, wrong: Any) -> None:
    with pytest.raises(ValueError, match=option):
        build(name, 3, 8, **{option: wrong})


def test_a_parametrization_on_the_meta_device() -> None:
    linear: Any = scornn.parametrizations.scaled_cayley(nn.Linear(4, 4, device="meta"), rho=1)
    assert linear.weight.is_meta
    assert linear.parametrizations.weight[0].skew.shape == (6,)
    loaded: Any = scornn.parametrizations.scaled_cayley(nn.Linear(4, 4), rho=3)
    linear.load_state_dict(loaded.state_dict(), assign=True)
    assert torch.equal(linear.weight, loaded.weight)


@pytest.mark.parametrize("rho", [True, 2.5, "3"])
def test_rho_of_a_parametrization_is_an_integer(rho: Any) -> None:
    with pytest.raises(TypeError, match="rho should be of type int"):
        scornn.parametrizations.scaled_cayley(nn.Linear(4, 4), rho=rho)


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("name", [name for name in MODELS if MODELS[name].layer.kind is not None])
def test_a_frozen_layer_keeps_its_precision_under_autocast(name: str, steps: int, plain: bool) -> None:
    """As every layer: a state of many frames, each rounded to bfloat16, is lost."""
    x, frozen = torch.randn(steps, 2, 3), build(name, 3, 8).frozen(plain=plain)
    expected = frozen(x)[0]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(frozen(x)[0], expected)


@names
def test_an_unknown_backend_is_refused_when_a_layer_is_built(name: str) -> None:
    with pytest.raises(ValueError, match="unknown backend 'nativ'; expected one of"):
        build(name, 3, 4, backend="nativ")


@names
def test_packed_sequences_have_a_shape_on_the_meta_device(name: str) -> None:
    layer = build(name, 3, 4, device="meta")
    x = pack_sequence([torch.empty(length, 3, device="meta") for length in (5, 3)])
    output, _ = layer(x)
    last, _ = layer(x, need_output="last")
    assert output.data.shape == (8, layer.output_size)
    assert last.shape == (2, layer.output_size)


@pytest.mark.parametrize("given", [{"depth": 2}, {"norm": True}, {"dropout": 0.5}])
def test_what_only_a_head_with_hidden_layers_has(given: Any) -> None:
    with pytest.raises(ValueError, match="depth, norm and dropout are of a head with hidden layers: give its width"):
        SequenceModel(scornn.ScoRNN(1, 4), 2, read="last", **given)


@pytest.mark.parametrize(
    ("name", "read", "options"),
    [("scornn", "mean", {}), ("scornn", "last", {"nonlinearity": "identity"}), ("linear-memory", "all", {})],
)
def test_a_network_is_exported_with_any_number_of_steps(name: str, read: Any, options: dict[str, Any]) -> None:
    model = SequenceModel(build(name, 1, 32, **options), 2, read=read).eval()
    steps = {"inputs": {0: torch.export.Dim("T", min=2, max=2000)}}
    program = torch.export.export(model, (torch.randn(600, 64, 1),), dynamic_shapes=steps).module()
    for x in (torch.randn(5, 64, 1), torch.randn(700, 64, 1)):
        torch.testing.assert_close(program(x), model(x), atol=1e-4, rtol=1e-4)
