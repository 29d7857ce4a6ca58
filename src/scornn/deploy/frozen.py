"""A network as constants: every recurrent matrix made once, the state an input and an output.

What is exported and what streams is this one form. Each layer in each direction is a :class:`Recurrence`; a model has
one if its recurrence is a dense matrix (W is made from the free parameters and kept), an LSTM or a GRU.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_linear_bn_eval

from scornn import ops
from scornn.errors import UsageError
from scornn.nn import GORU, DenseRecurrentLayer, SequenceModel
from scornn.ops import gated, native
from scornn.ops.activations import ACTIVATIONS

_TENSORS = ("W", "U", "b", "h0", "b_hh")
_OWN_BIAS = ("modrelu", "complex_modrelu")  # b is added to |z|, not to z


@dataclass(frozen=True)
class Recurrence:
    """One layer in one direction. ``kind`` is an activation of :func:`scornn.ops.recurrence`, ``lstm`` or ``gru``.

    W, U and b are as in :mod:`scornn.ops`, gates one above the other in torch's order. ``b_hh`` is the GRU's second
    bias, inside its reset gate. ``h0`` ``(state_size,)`` is the state before the first step: zero, or what was learned.
    """

    kind: str
    reverse: bool
    W: Tensor
    U: Tensor
    b: Tensor | None
    h0: Tensor
    b_hh: Tensor | None = None


class Frozen(nn.Module):
    """A network whose weights are constants.

    ``y, *state = frozen(x, *state)`` takes ``x (T, B, m)`` and the state, and gives outputs as the network does and
    the state after the last step: ``h (layers · directions, B, n)``, and for an LSTM ``c``. Without a state it starts
    from the network's own. Run over a sequence in pieces, it gives what it gives for the whole.

    Args:
        network: the network, on the CPU or elsewhere.
        plain: run on torch's own operators, not on scornn's.

    Example:
        >>> from scornn.nn import ScoRNN, SequenceModel
        >>> frozen = Frozen(SequenceModel(ScoRNN(3, 8), 2))
        >>> x = torch.randn(10, 1, 3)
        >>> whole, _ = frozen(x)
        >>> first, h = frozen(x[:4])
        >>> rest, h = frozen(x[4:], h)
        >>> torch.allclose(torch.cat([first, rest]), whole, atol=1e-5)
        True
    """

    def __init__(self, network: SequenceModel, *, plain: bool = False) -> None:
        super().__init__()
        layer = network.layer
        if network.read == "mean":
            raise UsageError("a network that reads the mean over its steps cannot be frozen: a state does not hold it")
        self.plain, self.read = plain, network.read
        self.num_layers, self.num_directions = int(layer.num_layers), 2 if layer.bidirectional else 1
        self.input_size = int(layer.input_size)
        self.stride = int(getattr(layer, "output_size", 1)) // int(getattr(layer, "readout_size", 1))
        self._made = recurrences(layer)
        self.state_names = ("h", "c") if self._made[0].kind == "lstm" else ("h",)
        for index, made in enumerate(self._made):
            for name in _TENSORS:
                if (tensor := getattr(made, name)) is not None:  # torch.export miscounts buffers that are None
                    self.register_buffer(f"{name}_{index}", tensor.detach().clone())
        self.head = nn.Sequential(*_copied(network.head))
        self.requires_grad_(False).eval()

    def recurrence(self, index: int) -> Recurrence:
        """Layer ``index // directions`` in direction ``index % directions``, with its tensors where they are now."""
        made = self._made[index]
        tensors: dict[str, Any] = {name: getattr(self, f"{name}_{index}", None) for name in _TENSORS}
        return Recurrence(made.kind, made.reverse, **tensors)

    def initial_state(self, batch: int) -> tuple[Tensor, ...]:
        """The state before the first step of ``batch`` sequences."""
        h0 = torch.stack([self.recurrence(index).h0 for index in range(len(self._made))])
        h = h0.unsqueeze(1).expand(-1, batch, -1).contiguous()
        return (h, torch.zeros_like(h))[: len(self.state_names)]

    def forward(self, x: Tensor, h0: Tensor | None = None, c0: Tensor | None = None) -> tuple[Tensor, ...]:
        given = tuple(s for s in (h0, c0) if s is not None)
        state = given or self.initial_state(x.shape[1])
        if len(state) != len(self.state_names):
            raise ValueError(f"expected the state {', '.join(self.state_names)}; got {len(state)} tensors")
        last: list[tuple[Tensor, ...]] = []
        for _ in range(self.num_layers):
            outputs = []
            for _ in range(self.num_directions):
                index = len(last)
                output, *after = self._run(self.recurrence(index), x, tuple(s[index] for s in state))
                outputs.append(output)
                last.append(tuple(after))
            x = outputs[0] if len(outputs) == 1 else torch.cat(outputs, -1)
        if self.read == "last":
            x = torch.cat([state[0] for state in last[-self.num_directions :]], -1)
        y = self.head(x if self.stride == 1 else x[..., :: self.stride])
        return (y, *(torch.stack(parts) for parts in zip(*last, strict=True)))

    def _run(self, of: Recurrence, x: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        if not self.plain and of.kind in ACTIVATIONS:
            return ops.recurrence(x, state[0], of.W, of.U, of.b, activation=of.kind, reverse=of.reverse)
        if not self.plain and of.kind == "lstm" and native.unavailable() is None and x.device.type == "cpu":
            h, c = state
            return gated.kernel(x, h, of.W, of.U, of.b, "lstm", None, of.reverse, c0=c)
        from torch._higher_order_ops.scan import scan

        # One array of carried states: an operator of several results would leave their order to the exporter.
        def combine(carried: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
            after = torch.cat(_step(of, z, carried.chunk(len(state), -1)), -1)
            return after, after.chunk(len(state), -1)[0].clone()

        projected = x @ of.U.mT
        if of.b is not None and of.kind not in _OWN_BIAS:
            projected = projected + of.b
        carried, output = scan(combine, torch.cat(state, -1), projected, reverse=of.reverse)
        return output, *carried.chunk(len(state), -1)


def _step(of: Recurrence, z: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """One step from z = U x + b, b left out where an activation takes it, and the state before it."""
    h = state[0]
    if of.kind == "lstm":
        i, f, g, o = (z + h @ of.W.mT).chunk(4, -1)
        c = torch.sigmoid(f) * state[1] + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c
    if of.kind == "gru":
        r, u, n = z.chunk(3, -1)
        r_h, u_h, n_h = (F.linear(h, of.W, of.b_hh)).chunk(3, -1)
        u = torch.sigmoid(u + u_h)
        return ((1 - u) * torch.tanh(n + torch.sigmoid(r + r_h) * n_h) + u * h,)
    own = of.b if of.kind in _OWN_BIAS else None
    return (ACTIVATIONS[of.kind].value(z + h @ of.W.mT, own),)


def has_form(network: SequenceModel) -> bool:
    """Whether a network can be frozen."""
    dense = isinstance(network.layer, DenseRecurrentLayer) and not isinstance(network.layer, GORU)
    return network.read != "mean" and (dense or _gates(network.layer) is not None)


@torch.no_grad()
def recurrences(layer: Any) -> list[Recurrence]:
    """Every layer and direction of a recurrent layer as constants, in the order of ``h_n``.

    A model without such a form is a :class:`~scornn.errors.UsageError` that says which and why.
    """
    directions = ("", "_reverse")[: 2 if layer.bidirectional else 1]
    suffixes = [(f"_l{k}{direction}", bool(direction)) for k in range(layer.num_layers) for direction in directions]
    gates = _gates(layer)
    if gates is not None:
        return [_gated(layer, gates, *suffix) for suffix in suffixes]
    if not isinstance(layer, DenseRecurrentLayer) or isinstance(layer, GORU):
        raise UsageError(f"a {type(layer).__name__} cannot be frozen: its recurrence is no dense matrix, LSTM or GRU")
    made = []
    for suffix, reverse in suffixes:
        W, U, b = layer.recurrent_matrix(suffix), layer.input_matrix(suffix), layer.bias_vector(suffix)
        h0 = layer.initial_state(suffix, 1, U)[0]
        made.append(Recurrence(layer.activation, reverse, W, U, b, h0))
    return made


def _gates(layer: Any) -> Literal["lstm", "gru"] | None:
    names = {base.__name__ for base in type(layer).__mro__}
    projected: int = getattr(layer, "proj_size", 0)  # an LSTM whose h is not what its gates make
    if projected:
        return None
    return "lstm" if "LSTM" in names else "gru" if "GRU" in names else None


def _gated(layer: Any, kind: str, suffix: str, reverse: bool) -> Recurrence:
    W, U = getattr(layer, f"weight_hh{suffix}"), getattr(layer, f"weight_ih{suffix}")
    b, b_hh = (getattr(layer, f"{name}{suffix}") if layer.bias else None for name in ("bias_ih", "bias_hh"))
    h0 = U.new_zeros(layer.hidden_size)
    if kind == "gru":
        return Recurrence(kind, reverse, W, U, b, h0, b_hh)
    return Recurrence(kind, reverse, W, U, None if b is None or b_hh is None else b + b_hh, h0)


def _copied(head: nn.Module) -> list[nn.Module]:
    """The head's layers, with parameters of their own; dropout does nothing in evaluation."""
    made: list[nn.Module] = []
    for module in head if isinstance(head, nn.Sequential) else [head]:
        if isinstance(module, nn.Linear):
            linear = nn.Linear(module.in_features, module.out_features, device=module.weight.device)
            linear.to(module.weight.dtype).load_state_dict(module.state_dict())
            made.append(linear)
        elif isinstance(module, nn.BatchNorm1d):  # in evaluation a scale and a shift of the sums before it
            before = made[-1]
            assert isinstance(before, nn.Linear)
            made[-1] = fuse_linear_bn_eval(before.eval(), deepcopy(module).eval())
        elif isinstance(module, nn.GELU):
            made.append(nn.GELU())
        elif not isinstance(module, nn.Dropout):
            raise UsageError(f"a head with a {type(module).__name__} cannot be frozen: it is not one that a run makes")
    return made
