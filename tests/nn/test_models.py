"""Each model's mathematics against its definition, written out with explicit matrices in float64."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import scornn
from scornn.functional import modrelu, orthogonality_error
from scornn.matrices.complex import real_form
from scornn.matrices.householder import householder_product
from scornn.nn import MODELS, RNN, SequenceModel, build
from scornn.nn.catalogue import model as enter
from scornn.nn.eurnn import EURNN
from scornn.nn.spectral import soft_orthogonality
from scornn.ops.activations import ACTIVATIONS

F64 = torch.float64
C128 = torch.complex128
QUICK = ("test_schema", "test_faketensor", "test_autograd_registration")  # compiling is in the shared battery


def close(a: Tensor, b: Tensor, tolerance: float = 1e-12) -> None:
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=F64)


@pytest.mark.parametrize("name", [name for name in MODELS if name not in ("lstm", "gru", "goru", "memory-blocks")])
def test_one_step_is_the_activation_of_W_h(name: str) -> None:
    """Fails if W is transposed."""
    layer: Any = build(name, 3, 6, dtype=F64, **({"reflections": 3} if name == "ornn" else {}))
    h = draw(1, 2, layer.state_size)
    output, _ = layer(torch.zeros(1, 2, 3, dtype=F64), h)
    b = getattr(layer, "bias_l0", None)
    expected = ACTIVATIONS[layer.activation].value(h[0] @ layer.weight_hh_l0.T, b)
    close(output[0], expected)
    wrong = ACTIVATIONS[layer.activation].value(h[0] @ layer.weight_hh_l0, b)
    assert name == "irnn" or not torch.allclose(wrong, expected)


def test_real_form_acts_on_pairs_as_the_matrix_does() -> None:
    M, z = torch.randn(4, 3, dtype=C128), torch.randn(3, dtype=C128)
    pairs = real_form(M) @ torch.view_as_real(z).flatten()
    close(torch.view_as_complex(pairs.view(4, 2)), M @ z)


@pytest.mark.parametrize("n", [1, 2, 3, 17])
def test_urnn_is_the_explicit_product(n: int) -> None:
    layer: Any = build("urnn", 2, n, dtype=F64)
    theta, permutation = layer.phase_hh_l0, layer.permutation_hh_l0
    v = torch.view_as_complex(layer.reflection_hh_l0.detach())
    D = [torch.diag(torch.exp(1j * t)) for t in theta]
    R = [torch.eye(n, dtype=C128) - 2 * torch.outer(u.conj(), u) / u.abs().square().sum() for u in v]
    j = torch.arange(n, dtype=F64)
    F = torch.exp(-2j * math.pi * torch.outer(j, j) / n) / math.sqrt(n)
    P = torch.eye(n, dtype=C128)[permutation]
    close(layer.matrix("_l0").complex_form(), D[2] @ R[1] @ F.mH @ D[1] @ P @ R[0] @ F @ D[0])


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("model", "n", "options"),
    [
        ("urnn", 1, {}),
        ("urnn", 5, {}),
        ("urnn", 16, {}),
        ("eurnn", 1, {}),
        ("eurnn", 7, {"capacity": 3}),
        ("eurnn", 6, {"capacity": 4, "complex": False}),
        ("eurnn", 8, {"style": "fft"}),
        ("eurnn", 8, {"style": "fft", "complex": False}),
    ],
)
def test_product_and_dense_form_are_equal(model: str, n: int, options: dict[str, Any], bias: bool) -> None:
    product = "fft" if model == "urnn" else "product"
    same: Any = {"dtype": F64, "bias": bias, "bidirectional": True, **options}
    dense: Any = build(model, 2, n, form="dense", **same)
    other: Any = build(model, 2, n, form=product, **same)
    assert other.matrix("_l0").runs_as_product()
    other.load_state_dict(dense.state_dict())
    x = draw(7, 3, 2)
    results = []
    for layer in (dense, other):
        leaf = x.clone().requires_grad_()
        output, h_n = layer(leaf)
        (output.sin().sum() + h_n.square().sum()).backward()
        results.append([output, h_n, leaf.grad, *(p.grad for p in layer.parameters())])
    for ours, expected in zip(*results, strict=True):
        close(ours, expected, 1e-9)


def test_urnn_factor_gradients_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    layer: Any = build("urnn", 2, 6, dtype=F64, form="fft")
    x = draw(9, 3, 2)
    gradients = []
    for chunk in (1 << 22, 48):
        monkeypatch.setattr("scornn.ops.product.CHUNK", chunk)
        layer.zero_grad()
        layer(x)[0].sin().sum().backward()
        gradients.append([p.grad.clone() for p in layer.parameters()])
    for whole, parts in zip(*gradients, strict=True):
        close(whole, parts)


def givens(layer: EURNN) -> Tensor:
    """The product of EURNN's rotations, one n × n matrix for each pair."""
    n = layer.hidden_size
    W, k = torch.eye(n, dtype=C128), 0
    angle = layer.angle_hh_l0
    depth = layer.capacity if layer.style == "tunable" else n.bit_length() - 1
    for i in range(depth):
        if layer.style == "tunable":
            pairs = [(a, a + 1) for a in range(i % 2, n - 1, 2)]
        else:
            stride = n // 2 ** (i + 1)
            pairs = [(a, a + stride) for a in range(n) if a // stride % 2 == 0]
        for a, b in pairs:
            phase = torch.exp(1j * layer.phase_hh_l0[k]) if layer.complex else torch.ones((), dtype=C128)
            R = torch.eye(n, dtype=C128)
            R[a, a], R[a, b] = angle[k].cos(), -phase * angle[k].sin()
            R[b, a], R[b, b] = angle[k].sin(), phase * angle[k].cos()
            W, k = R @ W, k + 1
    assert k == angle.numel()
    return torch.exp(1j * layer.turn_hh_l0).unsqueeze(-1) * W if layer.complex else W


@pytest.mark.parametrize("complex", [True, False])
@pytest.mark.parametrize(
    ("n", "style", "capacity"), [(2, "tunable", 2), (6, "tunable", 4), (7, "tunable", 5), (8, "fft", 1), (1, "fft", 1)]
)
def test_eurnn_is_the_explicit_product_of_rotations(n: int, style: str, capacity: int, complex: bool) -> None:
    layer = EURNN(2, n, complex=complex, style=style, capacity=capacity, dtype=F64)
    W = layer.matrix("_l0").complex_form()
    close(W.to(C128), givens(layer))
    assert W.is_complex() == complex


def test_eurnn_head_reads_the_real_part() -> None:
    layer = EURNN(2, 4, dtype=F64)
    model = SequenceModel(layer, 3)
    x = draw(5, 2, 2)
    close(model(x), model.head(layer(x)[0][..., ::2]))
    assert model.head.in_features == 4


def test_eurnn_refuses_fft_of_another_size() -> None:
    with pytest.raises(ValueError, match="power of two, got 6"):
        EURNN(2, 6, style="fft")
    with pytest.raises(ValueError, match="unknown style 'wide'"):
        EURNN(2, 6, style="wide")
    with pytest.raises(ValueError, match="capacity"):
        EURNN(2, 6, capacity=0)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_ornn_is_the_explicit_product_of_reflections(n: int) -> None:
    for k in range(1, n + 1):
        layer: Any = build("ornn", 2, n, reflections=k, dtype=F64)
        row, column = torch.tril_indices(n, k)
        U = torch.zeros(n, k, dtype=F64)
        U[row, column] = layer.reflection_hh_l0.detach()
        W = torch.eye(n, dtype=F64)
        for j in range(k):
            u = U[:, j]
            H = torch.eye(n, dtype=F64) - 2 * torch.outer(u, u) / (u @ u)
            if j == n - 1:
                H = torch.eye(n, dtype=F64)
                H[-1, -1] = u[-1].sign()
            W = W @ H
        close(layer.weight_hh_l0, W)


def test_ornn_reaches_both_determinants_at_full_rank() -> None:
    layer: Any = build("ornn", 2, 4, reflections=4, dtype=F64)
    signs = []
    for number in (0.3, -0.3):
        with torch.no_grad():
            layer.reflection_hh_l0[-1] = number
        signs.append(round(float(torch.linalg.det(layer.weight_hh_l0.detach()))))
    assert signs == [-1, 1]
    with pytest.raises(ValueError, match=r"reflections must be an integer in 1\.\.4"):
        build("ornn", 2, 4, reflections=5)


def test_wy_form_with_many_reflections() -> None:
    U = torch.nn.functional.normalize(draw(40, 40), dim=0)
    product = torch.eye(40, dtype=F64)
    for u in U.T:
        product = product - 2 * torch.outer(product @ u, u)
    close(householder_product(U), product, 1e-11)


@pytest.mark.parametrize("scale", [0.0, 1e-9, 1.0, 30.0])
def test_skew_exponential_equals_the_general_one(scale: float) -> None:
    n = 7
    v = (scale * draw(n * (n - 1) // 2)).requires_grad_()
    G = draw(n, n)
    A = scornn.functional.skew(v, n)
    ours, theirs = scornn.ops.exponential.skew_exponential(A), torch.linalg.matrix_exp(A)
    close(ours, theirs, 1e-10)
    (expected,) = torch.autograd.grad(theirs, v, G, retain_graph=True)
    (gradient,) = torch.autograd.grad(ours, v, G)
    close(gradient, expected, 1e-9)


def test_skew_exponential_operator() -> None:
    A = scornn.functional.skew(draw(6), 4).requires_grad_()
    torch.library.opcheck(torch.ops.scornn.skew_exponential_forward.default, (A,), test_utils=QUICK)


def test_scurnn_with_phases_zero_and_pi_is_scornn() -> None:
    n, rho = 6, 2
    real: Any = build("scornn", 2, n, rho=rho, dtype=F64)
    layer: Any = build("scurnn", 2, n, dtype=F64)
    with torch.no_grad():
        layer.skew_hh_l0.copy_(real.skew_hh_l0)
        layer.symmetric_hh_l0.zero_()
        layer.phase_hh_l0.copy_((1 - real.sign_hh_l0) * math.pi / 2)
    close(layer.matrix("_l0").complex_form(), real.weight_hh_l0.to(C128))


def test_scurnn_is_the_cayley_transform() -> None:
    layer: Any = build("scurnn", 2, 5, dtype=F64)
    with torch.no_grad():
        for p in (layer.skew_hh_l0, layer.symmetric_hh_l0):
            p.copy_(torch.randn_like(p))
    W, D = layer.matrix("_l0").complex_form(), torch.diag(torch.exp(1j * layer.phase_hh_l0))
    Z = W @ D.mH
    I = torch.eye(5, dtype=C128)
    A = torch.linalg.solve(I + Z, I - Z)
    close(A, -A.mH, 1e-10)
    close(A.real[torch.triu(torch.ones(5, 5), 1) > 0], layer.skew_hh_l0, 1e-10)
    close(A.imag[torch.triu(torch.ones(5, 5)) > 0], layer.symmetric_hh_l0, 1e-10)


@pytest.mark.parametrize("margin", [0.0, 0.01, 1.0])
def test_spectral_keeps_its_margin_whatever_the_parameters(margin: float) -> None:
    layer: Any = build("spectral", 2, 6, margin=margin, dtype=F64)
    close(torch.linalg.svdvals(layer.weight_hh_l0), torch.ones(6, dtype=F64))
    with torch.no_grad():
        for p in layer.matrix("_l0").parameters():
            p.add_(3 * torch.randn_like(p))
    apart = (torch.linalg.svdvals(layer.weight_hh_l0) - 1).abs().max()
    assert apart <= margin + 1e-12
    assert margin == 0 or apart > margin / 10
    with pytest.raises(ValueError, match=r"margin.*0\.\.1"):
        build("spectral", 2, 6, margin=1.5)


def test_soft_orthogonality() -> None:
    layer: Any = build("rnn", 2, 4, num_layers=2, soft_orthogonality=0.5, dtype=F64)
    expected = sum(orthogonality_error(W).square() for W in (layer.weight_hh_l0, layer.weight_hh_l1))
    close(soft_orthogonality(SequenceModel(layer, 3)), expected)
    penalty = layer.penalty()
    close(penalty, 0.5 * expected)
    penalty.backward()
    assert layer.weight_hh_l1.grad.abs().sum() > 0
    assert build("rnn", 2, 4).penalty() is None
    with pytest.raises(ValueError, match="no layer with a recurrent matrix"):
        soft_orthogonality(build("lstm", 2, 4))


def test_starts() -> None:
    assert torch.equal(build("irnn", 2, 5).weight_hh_l0, torch.eye(5))
    W: Any = build("henaff", 2, 5, dtype=F64).weight_hh_l0
    assert orthogonality_error(W) < 1e-12
    block = W[:2, :2]
    close(block, torch.stack([torch.stack([block[0, 0], block[0, 1]]), torch.stack([-block[0, 1], block[0, 0]])]))
    assert W[2:4, :2].abs().max() == 0
    assert W[4, 4] == 1


def test_glorot_counts_what_a_unit_reads() -> None:
    layer: Any = build("lstm", 10, 128, proj_size=8)
    limit = (6 / (10 + 8 + 4 * 128)) ** 0.5
    for weight in (layer.weight_ih_l0, layer.weight_hh_l0):
        assert 0.98 * limit < weight.abs().max() <= limit


@pytest.mark.parametrize("name", ["lstm", "gru"])
@pytest.mark.parametrize("forget_bias", [-4.0, 1.0, 4.0])
def test_forget_bias_stands_in_its_gate_and_the_second_bias_stays_zero(name: str, forget_bias: float) -> None:
    layer: Any = build(name, 3, 5, num_layers=2, forget_bias=forget_bias)
    for k in range(2):
        bias = getattr(layer, f"bias_ih_l{k}")
        assert (bias[5:10] == forget_bias).all()
        assert bias.count_nonzero() == 5
        frozen = getattr(layer, f"bias_hh_l{k}")
        assert not frozen.requires_grad
        assert not frozen.any()


def test_forget_bias_makes_a_gru_keep_its_state() -> None:
    x, h = torch.zeros(1, 1, 3), torch.ones(1, 1, 5)
    kept, lost = (build("gru", 3, 5, forget_bias=b)(x, h)[1] for b in (20.0, -20.0))
    torch.testing.assert_close(kept, h)
    assert (lost < 0.99).all()


@pytest.mark.parametrize("n", [1, 4, 8])
@pytest.mark.parametrize("bias", [True, False])
def test_goru_is_its_equations(n: int, bias: bool) -> None:
    layer: Any = build("goru", 3, n, bias=bias, dtype=F64)
    with torch.no_grad():
        for p in layer.parameters():
            p.add_(0.5 * torch.randn_like(p))
    x = draw(6, 2, 3)
    U_r, U_g, U_c = layer.weight_ih_l0.chunk(3)
    W_r, W_g = layer.weight_gates_l0.chunk(2)
    b_r, b_g, b_c = layer.bias_l0.chunk(3) if bias else (torch.zeros(n, dtype=F64),) * 3
    h = torch.zeros(2, n, dtype=F64)
    expected = []
    for x_t in x:
        r = torch.sigmoid(x_t @ U_r.T + h @ W_r.T + b_r)
        g = torch.sigmoid(x_t @ U_g.T + h @ W_g.T + b_g)
        c = modrelu(r * (h @ layer.weight_hh_l0.T) + x_t @ U_c.T, b_c)
        h = g * h + (1 - g) * c
        expected.append(h)
    close(layer(x)[0], torch.stack(expected))


def test_goru_operator() -> None:
    x, h0, W, U, b = draw(4, 3, 2), draw(3, 5), draw(15, 5), draw(15, 2), draw(20)
    arguments = [t.requires_grad_() for t in (x, h0, W, U, b)]
    torch.library.opcheck(torch.ops.scornn.goru_forward.default, (*arguments, "goru", None, False), test_utils=QUICK)


@pytest.mark.parametrize("name", ["urnn", "ornn", "scurnn"])
def test_learned_initial_state_is_used_and_trained(name: str) -> None:
    layer: Any = build(name, 2, 4, dtype=F64, num_layers=2, bidirectional=True)
    x = draw(3, 2, 2)
    h0 = torch.stack([getattr(layer, f"h0{suffix}").detach() for suffix in layer.suffixes()])
    given = layer(x, h0.unsqueeze(1).expand(-1, 2, -1))
    learned = layer(x)
    close(learned[0], given[0])
    learned[0].sum().backward()
    assert all(getattr(layer, f"h0{suffix}").grad.abs().sum() > 0 for suffix in layer.suffixes())


@pytest.mark.parametrize("name", MODELS)
def test_unknown_choices_are_refused(name: str) -> None:
    if issubclass(MODELS[name].layer, RNN) and name != "linear-memory":  # it has none to choose
        with pytest.raises(ValueError, match="sigmoid"):
            build(name, 2, 4, nonlinearity="sigmoid")


def test_a_model_is_a_layer_of_this_package() -> None:
    with pytest.raises(TypeError, match=r"the model 'mine' is .*RNN.*; expected a class derived from"):
        enter("mine")(torch.nn.RNN)  # type: ignore[type-var]
    assert "mine" not in MODELS


def test_unknown_model() -> None:
    with pytest.raises(ValueError, match="unknown model 'expnn'; did you mean exprnn"):
        build("expnn", 2, 4)
