"""A layer with constant weights: what export and streaming run."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_linear_bn_eval

from scornn.functional import full_precision
from scornn.matrices import Bank, Constant
from scornn.matrices.base import Head
from scornn.nn.layer import RecurrentLayer
from scornn.ops import gated
from scornn.ops.activations import ACTIVATIONS
from scornn.ops.bank import turned
from scornn.ops.rung import CELLS, Operands, choose, run
from scornn.torch_internals import scan

OWN_BIAS = ("modrelu", "complex_modrelu")
"""Activations that add b to |z|, not to z."""


class Recurrence(NamedTuple):
    """One layer in one direction as constants: operands of :mod:`scornn.ops.gated` where ``kind`` is ``lstm``,
    ``gru`` or ``goru``, and of :func:`scornn.ops.recurrence` with an activation of that name. Of a ``bank`` W is what
    ``turn()`` of :class:`scornn.ops.bank.Bank` gives.
    """

    kind: str
    W: Tensor
    U: Tensor
    b: Tensor | None


DENSE = (*ACTIVATIONS, "bank")
"""Kinds whose recurrence is one matrix."""


class FrozenLayer(RecurrentLayer):
    """The forward of a layer as it is now, with W, U, b and h_0 as buffers: ``layer.frozen()``.

    No matrix is made in its forward and nothing is trained. Its W is ``weight_hh_l{k}``, of the real form for complex
    models, and with the gates above it for those that have some. Of a linear memory it has the angles and signs, and
    turns by them.

    Args:
        layer: of one matrix, a linear memory, an LSTM without projection, a GRU or a GORU.
        plain: run on torch's own operators, in a loop that ``torch.export`` takes with a free number of steps.

    Example:
        >>> layer, x = scornn.ScoRNN(3, 8), torch.randn(5, 2, 3)
        >>> torch.equal(FrozenLayer(layer)(x)[0], layer(x)[0])
        True
    """

    kind: str

    @torch.no_grad()
    def __init__(self, layer: RecurrentLayer, *, plain: bool = False) -> None:
        name = type(layer).__name__
        if layer.kind is None:
            raise TypeError(f"a {name} cannot be frozen: its recurrence is no matrix, LSTM or GRU")
        layer.require_described(f"a {name} cannot be frozen")
        if len(set(layer.state_sizes())) > 1:
            raise TypeError(f"an {name} with proj_size has no frozen form: its h is not what its gates make")
        super().__init__(**{**layer.settings(), "dropout": layer.dropout if layer.num_layers > 1 else 0.0})
        self.kind, self.backend, self.learn_h0 = layer.kind, layer.backend, layer.learn_h0
        self.activation = "identity" if self.kind == "bank" else self.kind
        self.readout_stride, self.plain = layer.readout_stride, plain
        described: Any = layer  # one with a kind has operands
        for suffix in layer.suffixes():
            W, U, b = described.operands(suffix)
            matrix = layer.matrix(suffix).frozen() if self.kind in DENSE else Constant(W.clone())
            self.add_module(f"hh{suffix}", matrix)
            made = {"weight_ih": U, "bias": b, "h0": getattr(layer, f"h0{suffix}") if self.learn_h0 else None}
            for name, value in made.items():
                if value is not None:  # torch.export miscounts buffers that are None
                    self.register_buffer(f"{name}{suffix}", value.detach().clone())
        self.train(layer.training)

    @property
    def state_size(self) -> int:
        return self.matrix("_l0").size

    def state_sizes(self) -> tuple[int, ...]:
        return (self.state_size,) * (2 if self.kind == "lstm" else 1)

    def operands(self, suffix: str) -> tuple[Tensor, Tensor, Tensor | None]:
        return self.matrix(suffix).W(), getattr(self, f"weight_ih{suffix}"), self._buffers.get(f"bias{suffix}")

    def recurrence(self, suffix: str) -> Recurrence:
        W, U, b = self.operands(suffix)
        matrix = self.matrix(suffix)
        return Recurrence(self.kind, matrix.parts().turn() if isinstance(matrix, Bank) else W, U, b)

    def run_and_read(
        self, suffix: str, x: Tensor, h0: Any, batch_sizes: Tensor | None, reverse: bool, head: Head
    ) -> tuple[Tensor, Any]:
        if self.plain or self.readout_stride > 1 or self.kind not in DENSE:
            return super().run_and_read(suffix, x, h0, batch_sizes, reverse, head)
        return self._on_operator(suffix, x, h0, batch_sizes, reverse, head)

    def _on_operator(self, suffix: str, x: Tensor, h0: Tensor, sizes: Tensor | None, reverse: bool, head: Any) -> Any:
        settings: dict[str, Any] = {"activation": self.activation, "backend": self.backend, "reverse": reverse}
        others = self.operands(suffix)[1:]
        return self.matrix(suffix).recurrence(x, h0, *others, head, batch_sizes=sizes, **settings)

    def run(self, suffix: str, x: Tensor, h0: Any, batch_sizes: Tensor | None, reverse: bool) -> tuple[Tensor, Any]:
        # For one frame a small product costs less than a call of the kernel.
        one = x.shape[0] == 1 and batch_sizes is None and self.backend == "auto" and not torch.compiler.is_compiling()
        if not one and not self.plain and self.kind in DENSE:
            return self._on_operator(suffix, x, h0, batch_sizes, reverse, None)
        with full_precision(x):
            return self._run(suffix, x, h0, batch_sizes, reverse, one)

    def _run(
        self, suffix: str, x: Tensor, h0: Any, batch_sizes: Tensor | None, reverse: bool, one: bool
    ) -> tuple[Tensor, Any]:
        """One frame, a layer with gates, or a loop of torch's operators."""
        state, of = h0 if isinstance(h0, tuple) else (h0,), self.recurrence(suffix)
        if one:
            last = list(_step(of, *_added(of, x[0]), state))
            return last[0].unsqueeze(0), last[0] if len(last) == 1 else tuple(last)
        operands = Operands(x, state[0], *of[1:], self.kind, batch_sizes, reverse, *state[1:])
        if not self.plain and (not torch.compiler.is_compiling() or choose(operands, self.backend).name == "native"):
            output, *last = run(operands, self.backend)
        elif batch_sizes is not None:
            raise RuntimeError("a frozen layer on torch's operators takes no PackedSequence; give padded sequences")
        else:
            output, *last = _scan(of, x, state, reverse)
        return output, last[0] if len(last) == 1 else tuple(last)


def _scan(of: Recurrence, x: Tensor, state: tuple[Tensor, ...], reverse: bool) -> tuple[Tensor, ...]:
    """The loop as one operator of torch: the states and the last ones."""
    added, own = _added(of, x)

    # One array of carried states: an operator of several results would leave their order to the exporter.
    def combine(carried: Tensor, here: Tensor) -> tuple[Tensor, Tensor]:
        after = torch.cat(_step(of, here, own, carried.chunk(len(state), -1)), -1)
        return after, after.chunk(len(state), -1)[0].clone()

    carried, output = scan(combine, torch.cat(state, -1), added, reverse)
    return output, *carried.chunk(len(state), -1)


def _added(of: Recurrence, x: Tensor) -> tuple[Tensor, Tensor | None]:
    """What the inputs add to Wh, and the bias where it is not in it."""
    added = x @ of.U.mT
    if of.b is None or of.kind in OWN_BIAS or CELLS[of.kind].gates == 3:
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
