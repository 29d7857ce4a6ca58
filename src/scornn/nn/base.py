"""The bases of the models. Most models are a recurrent matrix made from free parameters: they derive from
:class:`DenseRecurrentLayer` and only say what W, U and b are.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import parametrize

from scornn import ops
from scornn.functional import full_precision, orthogonality_error
from scornn.nn.caching import once
from scornn.nn.checks import is_sharded, precise
from scornn.nn.layer import Head, RecurrentLayer
from scornn.nn.recurrent import Recurrent
from scornn.ops.activations import ACTIVATIONS


class RecurrentMatrix(Recurrent):
    """A module whose recurrence is one dense real matrix W, made from free parameters.

    A model says which numbers make W (:meth:`recurrent_shapes`) and what W they make (:meth:`recurrent_matrix`).
    ``weight_hh{suffix}`` gives W, a fresh tensor.
    """

    activation: str

    def recurrent_shapes(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of each parameter that makes W."""
        raise NotImplementedError

    def recurrent_matrix(self, suffix: str) -> Tensor:
        """W ``(state_size, state_size)``, differentiable with respect to the free parameters."""
        raise NotImplementedError

    def bias_name(self, suffix: str) -> str:
        return f"bias{suffix}"

    def parameter_shapes(self, input_size: int) -> dict[str, tuple[int, ...]]:
        bias: dict[str, tuple[int, ...]] = {self.bias_name(""): (self.hidden_size,)} if self.bias else {}
        return {"weight_ih": (self.state_size, input_size), **self.recurrent_shapes(), **bias}

    def recurrent_parameter_names(self) -> list[str]:
        names = [f"{name}{suffix}" for suffix in self.suffixes() for name in self.recurrent_shapes()]
        return [trained for name in names for trained in self._trained(name)]

    def _trained(self, name: str) -> list[str]:
        """The parameter ``name``, or those that torch.nn.utils.parametrize or prune has put in its place."""
        if name in self._parameters:
            return [name]
        if parametrize.is_parametrized(self, name):
            inside = f"parametrizations.{name}"
            return [f"{inside}.{part}" for part, _ in self.get_submodule(inside).named_parameters()]
        return [f"{name}{end}" for end in ("_orig", "_g", "_v") if f"{name}{end}" in self._parameters]

    def recurrent_bias_names(self) -> list[str]:
        names = [self.bias_name(suffix) for suffix in self.suffixes()] if self.bias else []
        return [trained for name in names for trained in self._trained(name)]

    def _suffix_of(self, name: str) -> str | None:
        """The suffix, if ``name`` is that of a W that is made."""
        suffix = name.removeprefix("weight_hh")
        made = name.startswith("weight_hh") and suffix in self.suffixes()
        return suffix if made and "weight_hh" not in self.recurrent_shapes() else None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("weight_hh") and (suffix := self._suffix_of(name)) is not None:
            with full_precision(self.like):
                return self.recurrent_matrix(suffix)
        return super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("weight_hh") and (suffix := self._suffix_of(name)) is not None:
            advice = "Assign first and parametrize or prune afterwards", "Assign before fully_shard"
            self._require_own_parameters(suffix, f"{name} cannot be assigned to", *advice)
            self.set_recurrent_matrix(suffix, value)
        else:
            super().__setattr__(name, value)

    def set_recurrent_matrix(self, suffix: str, W: Tensor) -> None:
        """Make W the recurrent matrix: what an assignment to ``weight_hh{suffix}`` does, where a model can."""
        names = ", ".join(f"{name}{suffix}" for name in self.recurrent_shapes())
        raise AttributeError(
            f"weight_hh{suffix} of {type(self).__name__} is made from {names}, and cannot be assigned to; "
            "change those, or take scornn.ScoRNN, which takes any orthogonal matrix"
        )

    def _require_own_parameters(self, suffix: str, what: str, parametrized: str, sharded: str) -> None:
        """Refuse where what would be set is itself made from something else, and would not stay; and say what to do."""
        managed = vars(self).get("_is_fsdp_managed_module", False)  # its parameters come and go with each forward
        for name in (f"{name}{suffix}" for name in self.recurrent_shapes()):
            if name not in self._parameters:
                raise RuntimeError(f"{what}: {name} is parametrized or pruned, so it would not stay. {parametrized}")
            if managed or is_sharded(self._parameters[name]):
                raise RuntimeError(f"{what}: {name} is sharded over processes. {sharded}")

    def input_matrix(self, suffix: str) -> Tensor:
        """U ``(state_size, input_size)``."""
        return self.tensor(f"weight_ih{suffix}")

    def bias_vector(self, suffix: str) -> Tensor | None:
        return self.tensor(self.bias_name(suffix)) if self.bias else None

    def operands(self, suffix: str) -> tuple[Tensor, Tensor, Tensor | None]:
        """W, U and b as they are now."""
        with full_precision(self.like):
            W = once(self, suffix, self.recurrent_matrix)
        return W, self.input_matrix(suffix), self.bias_vector(suffix)

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, local_metadata: Any, strict: bool, *others: Any
    ) -> None:
        foreign = [f"{name}{s}" for s in self.suffixes() for name in ("weight_hh", "bias_ih")]
        own = (*self._parameters, *self._buffers)
        found = [name for name in foreign if prefix + name in state_dict and name not in own]
        if found:  # a warning: an error would be one also for load_state_dict(strict=False)
            kind, made = type(self).__name__, "weight_hh" not in self.recurrent_shapes()
            warnings.warn(
                f"{', '.join(prefix + name for name in found)}: these are the names of a torch.nn.RNN, not of {kind}. "
                "To convert one: copy weight_ih_l{k}"
                + ("; assign weight_hh_l{k} = left @ right of left, _, right = torch.linalg.svd(W)" * made)
                + (", the nearest orthogonal matrix, where a model takes it, as ScoRNN does" * made)
                + "; copy bias_ih_l{k} + bias_hh_l{k} to bias_l{k} (modReLU adds it to |z|, other nonlinearities to z)",
                stacklevel=2,
            )
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, *others)


class OrthogonalMatrix(RecurrentMatrix):
    """One whose W is orthogonal (unitary, in its real form) by construction."""

    @torch.no_grad()
    def orthogonality_error(self) -> float | None:
        """Largest ‖WᵀW − I‖_F over layers and directions, of W as it is used, in float32 or better."""
        return max(float(orthogonality_error(precise(getattr(self, f"weight_hh{s}")))) for s in self.suffixes())


class DenseRecurrentLayer(RecurrentMatrix, RecurrentLayer):
    """A layer whose recurrence is one dense real matrix: h_t = act(U x_t + W h_{t−1}), on the sequence operator.

    A model says what :class:`RecurrentMatrix` asks for, and how its numbers start (:meth:`reset`).
    """

    def run(
        self, suffix: str, x: Tensor, h0: Tensor, batch_sizes: Tensor | None, reverse: bool
    ) -> tuple[Tensor, Tensor]:
        weights, settings = self.operands(suffix), self._settings_of(batch_sizes, reverse)
        return ops.recurrence(x, h0, *weights, **settings)

    def run_and_read(
        self, suffix: str, x: Tensor, h0: Tensor, batch_sizes: Tensor | None, reverse: bool, head: Head
    ) -> tuple[Tensor, Tensor]:
        if not self.reads_in_one_pass():
            return super().run_and_read(suffix, x, h0, batch_sizes, reverse, head)
        weights, settings = self.operands(suffix), self._settings_of(batch_sizes, reverse)
        return ops.readout(x, h0, *weights, *head, **settings)

    @property
    def kind(self) -> str:  # type: ignore[override]
        return self.activation

    def reads_in_one_pass(self) -> bool:
        """Whether :meth:`run` is the sequence operator, and a head reads the states as they are."""
        return self.runs_as_described and self.kind in ACTIVATIONS and self.readout_stride == 1

    def _settings_of(self, batch_sizes: Tensor | None, reverse: bool) -> dict[str, Any]:
        order = {"batch_sizes": batch_sizes, "reverse": reverse}
        return {"activation": self.activation, "backend": self.backend, **order}


class OrthogonalRecurrentLayer(OrthogonalMatrix, DenseRecurrentLayer):
    """A dense layer whose W is orthogonal (unitary, in its real form) by construction."""
