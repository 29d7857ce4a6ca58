"""The loop of the restricted-capacity uRNN with its W applied as a product, never as a matrix.

W = D₃ R₂ F⁻¹ D₂ Π R₁ F D₁ costs O(n log n) a step where a dense matrix costs O(n²). States are adjacent pairs
(Re, Im), as everywhere. Two rungs: naive (autograd), and a hand-written backward that walks back through the states
with W* and then takes the gradients of all factors over all time steps at once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from scornn.ops.activations import ACTIVATIONS
from scornn.ops.layout import Layout

CHUNK = 1 << 22  # complex numbers held at a time by the gradient of the factors

# Conjugates are taken by conj_physical: inside an operator that torch.compile runs, the lazy conjugate bit is lost.


class Factors(NamedTuple):
    """D_j = diag(phases[j]), R_j reflects along reflections[j], Π is the permutation."""

    phases: Tensor  # (3, n), complex, of modulus 1
    reflections: Tensor  # (2, n), complex
    permutation: Tensor  # (n,)

    @classmethod
    def of(cls, theta: Tensor, v: Tensor, permutation: Tensor) -> Factors:
        """From angles ``(3, n)`` and vectors as pairs ``(2, n, 2)``."""
        return cls(torch.complex(theta.cos(), theta.sin()), torch.view_as_complex(v.contiguous()), permutation)


def reflect(h: Tensor, v: Tensor) -> Tensor:
    """h − 2 (h·v) v̄ / |v|² over the last dimension, h·v without a conjugate: unitary, and its own inverse."""
    return h - (2 / v.abs().square().sum()) * (h @ v).unsqueeze(-1) * v.conj_physical()


def product(h: Tensor, factors: Factors) -> Tensor:
    """W h over the last dimension of a complex h."""
    phases, v, permutation = factors
    h = torch.fft.fft(h * phases[0], norm="ortho")
    h = reflect(h, v[0])[..., permutation] * phases[1]
    return reflect(torch.fft.ifft(h, norm="ortho"), v[1]) * phases[2]


def adjoint(g: Tensor, factors: Factors, back: Tensor) -> Tensor:
    """W* g over the last dimension of a complex g; ``back`` undoes the permutation."""
    phases, v, _ = factors
    g = torch.fft.fft(reflect(g * phases[2].conj_physical(), v[1]), norm="ortho")
    g = reflect((g * phases[1].conj_physical())[..., back], v[0])
    h: Tensor = torch.fft.ifft(g, norm="ortho") * phases[0].conj_physical()
    return h


def _reflection_gradient(g: Tensor, h: Tensor, v: Tensor) -> Tensor:
    """dL/dv of reflect(h, v), summed over rows. With s = h·v, t = ḡ·v̄ and c = 2/|v|²."""
    length = v.abs().square().sum()
    s, t = h @ v, (g @ v).conj_physical()
    turn = 4 * (s * t).real.sum() / length**2
    return turn * v - (2 / length) * ((h.mT @ t).conj_physical() + g.conj_physical().mT @ s)


def factor_gradients(g: Tensor, h: Tensor, factors: Factors, back: Tensor) -> tuple[Tensor, Tensor]:
    """dL/dθ ``(3, n)`` and dL/dv ``(2, n)`` of W h, where g = dL/d(W h); both summed over rows."""
    phases, v, permutation = factors
    f1 = torch.fft.fft(h * phases[0], norm="ortho")
    a2 = reflect(f1, v[0])[:, permutation] * phases[1]
    f2 = torch.fft.ifft(a2, norm="ortho")
    out = reflect(f2, v[1]) * phases[2]
    theta3 = (g * out.conj_physical()).imag.sum(0)  # d(a e^{iθ}) = i a e^{iθ} dθ
    g = g * phases[2].conj_physical()
    v2 = _reflection_gradient(g, f2, v[1])
    g = torch.fft.fft(reflect(g, v[1]), norm="ortho")
    theta2 = (g * a2.conj_physical()).imag.sum(0)
    g = (g * phases[1].conj_physical())[:, back]
    v1 = _reflection_gradient(g, f1, v[0])
    g = torch.fft.ifft(reflect(g, v[0]), norm="ortho")
    theta1 = (g * (h * phases[0]).conj_physical()).imag.sum(0)
    return torch.stack([theta1, theta2, theta3]), torch.stack([v1, v2])


def _complex(h: Tensor) -> Tensor:
    return torch.view_as_complex(h.contiguous().unflatten(-1, (-1, 2)))


def _pairs(h: Tensor) -> Tensor:
    return torch.view_as_real(h).flatten(-2)


def naive(
    x: Tensor,
    h0: Tensor,
    theta: Tensor,
    v: Tensor,
    permutation: Tensor,
    U: Tensor,
    b: Tensor | None,
    activation: str,
    batch_sizes: Tensor | None,
    reverse: bool,
) -> tuple[Tensor, Tensor]:
    act = ACTIVATIONS[activation].value
    layout, factors = Layout.of(x, batch_sizes, reverse), Factors.of(theta, v, permutation)
    inputs = (x.flatten(0, 1) if batch_sizes is None else x) @ U.mT
    h, states = h0[:0], []
    for step in layout:
        h = h[: step.size] if step.carried == step.size else torch.cat([h, h0[step.carried : step.size]])
        h = act(inputs[step.rows] + _pairs(product(_complex(h), factors)), b)
        states.append(h)
    output = torch.cat(states[::-1] if reverse else states)
    h_n = output.index_select(0, layout.last_rows(output.device))
    return output.unflatten(0, x.shape[:2]) if batch_sizes is None else output, h_n


@torch.library.custom_op("scornn::fourier_forward", mutates_args=())
def manual(
    x: Tensor,
    h0: Tensor,
    theta: Tensor,
    v: Tensor,
    permutation: Tensor,
    U: Tensor,
    b: Tensor | None,
    activation: str,
    batch_sizes: Tensor | None,
    reverse: bool,
) -> tuple[Tensor, Tensor]:
    return naive(x, h0, theta, v, permutation, U, b, activation, batch_sizes, reverse)


@manual.register_fake
def _(
    x: Tensor,
    h0: Tensor,
    theta: Tensor,
    v: Tensor,
    permutation: Tensor,
    U: Tensor,
    b: Tensor | None,
    activation: str,
    batch_sizes: Tensor | None,
    reverse: bool,
) -> tuple[Tensor, Tensor]:
    return x.new_empty(*x.shape[:-1], h0.shape[-1]), h0.new_empty(h0.shape)


@torch.library.custom_op("scornn::fourier_backward", mutates_args=())
def _backward(
    grad_output: Tensor | None,
    grad_h_n: Tensor | None,
    x: Tensor,
    h0: Tensor,
    theta: Tensor,
    v: Tensor,
    permutation: Tensor,
    U: Tensor,
    b: Tensor | None,
    output: Tensor,
    activation: str,
    batch_sizes: Tensor | None,
    reverse: bool,
) -> list[Tensor]:
    """Gradients of x, h0, θ, v, U and b."""
    layout, factors = Layout.of(x, batch_sizes, reverse), Factors.of(theta, v, permutation)
    back = torch.argsort(permutation)
    rows = x.flatten(0, 1) if batch_sizes is None else x
    output = output.flatten(0, 1) if batch_sizes is None else output
    dz = torch.zeros_like(output) if grad_output is None else grad_output.reshape(output.shape).clone()
    if grad_h_n is not None:
        dz.index_add_(0, layout.last_rows(dz.device), grad_h_n)
    dh0, db = torch.zeros_like(h0), x.new_zeros(0) if b is None else torch.zeros_like(b)
    pullback = ACTIVATIONS[activation].pullback
    for step in reversed(layout):
        here = dz[step.rows]
        here_dz, here_db = pullback(here, output[step.rows], b)
        here.copy_(here_dz)
        if b is not None:
            db += here_db.sum(0)
        dh = _pairs(adjoint(_complex(here), factors, back))
        dz[step.before : step.before + step.carried] += dh[: step.carried]
        dh0[step.carried : step.size] += dh[step.carried :]
    h = layout.states_before(output, h0)
    dtheta, dv = torch.zeros_like(theta), torch.zeros_like(factors.reflections)
    size = max(CHUNK // theta.shape[1], 1)
    for start in range(0, h.shape[0], size):
        part = slice(start, start + size)
        part_theta, part_v = factor_gradients(_complex(dz[part]), _complex(h[part]), factors, back)
        dtheta += part_theta
        dv += part_v
    dx = (dz @ U).view(x.shape)
    return [dx, dh0, dtheta, torch.view_as_real(dv).clone(), dz.mT @ rows, db]


@_backward.register_fake
def _(
    grad_output: Tensor | None,
    grad_h_n: Tensor | None,
    x: Tensor,
    h0: Tensor,
    theta: Tensor,
    v: Tensor,
    permutation: Tensor,
    U: Tensor,
    b: Tensor | None,
    output: Tensor,
    activation: str,
    batch_sizes: Tensor | None,
    reverse: bool,
) -> list[Tensor]:
    return [x.new_empty(0) if t is None else t.new_empty(t.shape) for t in (x, h0, theta, v, U, b)]


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.activation, batch_sizes, ctx.reverse = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*tensors, output[0], batch_sizes)


def _autograd(ctx: Any, grad_output: Tensor | None, grad_h_n: Tensor | None) -> tuple[Tensor | None, ...]:
    if grad_output is None and grad_h_n is None:
        return (None,) * 10
    *tensors, output, batch_sizes = ctx.saved_tensors
    dx, dh0, dtheta, dv, dU, db = _backward(
        grad_output, grad_h_n, *tensors, output, ctx.activation, batch_sizes, ctx.reverse
    )
    return dx, dh0, dtheta, dv, None, dU, None if tensors[-1] is None else db, None, None, None


def _no_second_derivative(ctx: Any, *grads: Any) -> None:
    raise RuntimeError(
        "The product form of the restricted uRNN has no second derivative here. "
        'Build the layer with backend="naive" to differentiate a gradient.'
    )


manual.register_autograd(_autograd, setup_context=_setup)
_backward.register_autograd(_no_second_derivative, setup_context=lambda ctx, inputs, output: None)
