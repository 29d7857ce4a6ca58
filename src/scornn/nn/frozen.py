"""A layer with constant weights: what export and streaming run."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_linear_bn_eval

from scornn.functional import full_precision
from scornn.nn.base import DenseRecurrentLayer
from scornn.nn.layer import RecurrentLayer
from scornn.ops import gated
from scornn.ops.activations import ACTIVATIONS
from scornn.ops.bank import Bank, turned
from scornn.ops.bank_scan import every_state
from scornn.ops.rung import choose

OWN_BIAS = ("modrelu", "complex_modrelu")
"""Activations that add b to |z|, not to z."""


class Recurrence(NamedTuple):
    """One layer in one direction as constants: operands of :mod:`scornn.ops.gated` where ``kind`` is ``lstm``,
    ``gru`` or ``goru``, and of :func:`scornn.ops.recurrence` with an activation of that name. Of a ``bank`` W is what
    :meth:`scornn.ops.bank.Bank.turn` gives.
    """

    kind: str
    W: Tensor
    U: Tensor
    b: Tensor | None


class FrozenLayer(DenseRecurrentLayer):
    """The forward of a layer as it is now, with U, W, b and h_0 as buffers: ``layer.frozen()``.

    No matrix is made in its forward and nothing is trained. Its W is ``weight_hh_l{k}``, of the real form for complex
    models, and with the gates above it for those that have some. Of a linear memory it has the angles and signs,
    ``bank_hh_l{k}``, and turns by them.

    Args:
        layer: of a dense matrix, a linear memory, an LSTM without projection, a GRU or a GORU.
        plain: run on torch's own operators, in a loop that ``torch.export`` takes with a free number of steps.

    Example:
        >>> layer, x = scornn.ScoRNN(3, 8), torch.randn(5, 2, 3)
        >>> torch.equal(FrozenLayer(layer)(x)[0], layer(x)[0])
        True
    """

    kind: str = ""

    @torch.no_grad()
    def __init__(self, layer: RecurrentLayer, *, plain: bool = False) -> None:
        name = type(layer).__name__
        if layer.kind is None:
            raise TypeError(f"a {name} cannot be frozen: its recurrence is no dense matrix, LSTM or GRU")
        layer.require_described(f"a {name} cannot be frozen")
        if len(set(layer.state_sizes())) > 1:
            raise TypeError(f"an {name} with proj_size has no frozen form: its h is not what its gates make")
        super().__init__(**{**layer.settings(), "dropout": layer.dropout if layer.num_layers > 1 else 0.0})
        self.kind, self.backend, self.learn_h0 = layer.kind, layer.backend, layer.learn_h0
        self.activation = "identity" if self.kind == "bank" else self.kind
        self.made_of = "bank_hh" if self.kind == "bank" else "weight_hh"
        self.units_per_state, self.readout_stride, self.plain = layer.units_per_state, layer.readout_stride, plain
        for suffix in layer.suffixes():
            W, U, b = layer.operands(suffix)
            made = {self.made_of: W, "weight_ih": U, "bias": b}
            if self.learn_h0:
                made["h0"] = layer.tensor(f"h0{suffix}")
            for name, value in made.items():
                if value is not None:  # torch.export miscounts buffers that are None
                    self.register_buffer(f"{name}{suffix}", value.detach().clone())
        self.train(layer.training)

    def operands(self, suffix: str) -> tuple[Tensor, Tensor, Tensor | None]:
        return self.tensor(f"{self.made_of}{suffix}"), self.input_matrix(suffix), self.bias_vector(suffix)

    def recurrence(self, suffix: str) -> Recurrence:
        W, U, b = self.operands(suffix)
        return Recurrence(self.kind, self._bank(suffix).turn() if self.kind == "bank" else W, U, b)

    def _bank(self, suffix: str) -> Bank:
        both = self.tensor(f"bank_hh{suffix}")
        return Bank(*both.split([planes := self.state_size - len(both), len(both) - planes]))

    def state_sizes(self) -> tuple[int, ...]:
        return (self.state_size,) * (2 if self.kind == "lstm" else 1)

    def recurrent_shapes(self) -> dict[str, tuple[int, ...]]:
        return {self.made_of: (self.state_size, self.state_size)}

    def recurrent_matrix(self, suffix: str) -> Tensor:
        return self._bank(suffix).matrix() if self.kind == "bank" else self.tensor(f"weight_hh{suffix}")

    def reads_in_one_pass(self) -> bool:
        return super().reads_in_one_pass() and not self.plain

    def run(self, suffix: str, x: Tensor, h0: Any, batch_sizes: Tensor | None, reverse: bool) -> tuple[Tensor, Any]:
        # For one frame a small product costs less than a call of the kernel.
        one = x.shape[0] == 1 and batch_sizes is None and self.backend == "auto" and not torch.compiler.is_compiling()
        if not one and not self.plain and self.kind in ACTIVATIONS:
            return super().run(suffix, x, h0, batch_sizes, reverse)
        with full_precision(x):
            if self.kind == "bank" and not one and not self.plain:
                _, U, b = self.operands(suffix)
                return every_state(x, h0, self._bank(suffix), U, b, batch_sizes, reverse, self.backend)
            return self._run(suffix, x, h0, batch_sizes, reverse, one)

    def _run(
        self, suffix: str, x: Tensor, h0: Any, batch_sizes: Tensor | None, reverse: bool, one: bool
    ) -> tuple[Tensor, Any]:
        """One frame, a layer with gates, or a loop of torch's operators."""
        state, of = h0 if isinstance(h0, tuple) else (h0,), self.recurrence(suffix)
        if one:
            last = list(_step(of, *_added(of, x[0]), state))
            return last[0].unsqueeze(0), last[0] if len(last) == 1 else tuple(last)
        rung = None if self.plain else choose(gated.RUNGS, "naive" if self.backend == "manual" else self.backend, x)
        if rung is not None and (rung.opaque or not torch.compiler.is_compiling()):
            c0 = state[1] if self.kind == "lstm" else None
            output, *last = rung.run(x, state[0], *of[1:], self.kind, batch_sizes, reverse, c0=c0)
        elif batch_sizes is not None:
            raise RuntimeError("a frozen layer on torch's operators takes no PackedSequence; give padded sequences")
        else:
            output, *last = _scan(of, x, state, reverse)
        return output, last[0] if len(last) == 1 else tuple(last)


def _scan(of: Recurrence, x: Tensor, state: tuple[Tensor, ...], reverse: bool) -> tuple[Tensor, ...]:
    """The loop as one operator of torch: the states and the last ones."""
    from torch._higher_order_ops.scan import scan

    added, own = _added(of, x)

    # One array of carried states: an operator of several results would leave their order to the exporter.
    def combine(carried: Tensor, here: Tensor) -> tuple[Tensor, Tensor]:
        after = torch.cat(_step(of, here, own, carried.chunk(len(state), -1)), -1)
        return after, after.chunk(len(state), -1)[0].clone()

    carried, output = scan(combine, torch.cat(state, -1), added, reverse=reverse)
    return output, *carried.chunk(len(state), -1)


def _added(of: Recurrence, x: Tensor) -> tuple[Tensor, Tensor | None]:
    """What the inputs add to Wh, and the bias where it is not in it."""
    added = x @ of.U.mT
    if of.b is None or of.kind in (*OWN_BIAS, "gru", "goru"):
        return added, of.b
    return added + of.b, None


def _step(of: Recurrence, added: Tensor, b: Tensor | None, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    if of.kind == "lstm":
        h, c = state
        return gated.lstm_step(added, h, c, of.W)
    if of.kind in ACTIVATIONS:
        return (ACTIVATIONS[of.kind].value(added + state[0] @ of.W.mT, b),)
    if of.kind == "bank":
        return ((added + turned(state[0], of.W)).to(added.dtype),)
    return (gated.step(added, state[0], of.W, b, of.kind),)


def plain_head(head: nn.Module) -> list[nn.Module]:
    """The linear layers and GELUs of a head as it is in evaluation, with copies of its weights."""
    made: list[nn.Module] = []
    for module in head if isinstance(head, nn.Sequential) else [head]:
        if isinstance(module, nn.Linear):
            V, c = module.weight.detach(), module.bias
            linear = nn.utils.skip_init(nn.Linear, *reversed(V.shape), device=V.device, dtype=V.dtype)
            linear.load_state_dict({"weight": V, "bias": V.new_zeros(len(V)) if c is None else c.detach()})
            made.append(linear)
        elif isinstance(module, nn.BatchNorm1d):  # in evaluation a scale and a shift of the sums before it
            before = made[-1]
            assert isinstance(before, nn.Linear)
            made[-1] = fuse_linear_bn_eval(before.eval(), deepcopy(module).eval())
        elif isinstance(module, nn.GELU) and module.approximate == "none":
            made.append(nn.GELU())
        elif not isinstance(module, nn.Dropout):
            raise TypeError(f"a head with {module} cannot be frozen: it is not one that a run makes")
    return made
