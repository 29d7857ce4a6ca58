"""The bases of the models. Most models are a recurrent matrix made from free parameters: they derive from
:class:`DenseRecurrentLayer` and only say what W, U and b are.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from scornn import ops
from scornn.functional import orthogonality_error
from scornn.nn.checks import check_choice, check_sizes, full_precision, precise
from scornn.nn.layer import Head, Recurrent, RecurrentLayer

__all__ = [
    "DenseRecurrentLayer",
    "Head",
    "OrthogonalMatrix",
    "OrthogonalRecurrentLayer",
    "RecurrentLayer",
    "RecurrentMatrix",
    "check_choice",
    "check_sizes",
    "full_precision",
    "precise",
]


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

    def make_parameters(
        self, suffix: str, input_size: int, device: torch.device | str | None, dtype: torch.dtype | None
    ) -> None:
        shapes: dict[str, tuple[int, ...]] = {f"weight_ih{suffix}": (self.state_size, input_size)}
        shapes |= {f"{name}{suffix}": shape for name, shape in self.recurrent_shapes().items()}
        if self.bias:
            shapes[self.bias_name(suffix)] = (self.hidden_size,)
        for name, shape in shapes.items():
            self.register_parameter(name, nn.Parameter(torch.empty(shape, device=device, dtype=dtype)))

    def recurrent_parameter_names(self) -> list[str]:
        return [f"{name}{suffix}" for suffix in self.suffixes() for name in self.recurrent_shapes()]

    def recurrent_bias_names(self) -> list[str]:
        return [self.bias_name(suffix) for suffix in self.suffixes()] if self.bias else []

    def _suffix_of(self, name: str) -> str | None:
        """The suffix, if ``name`` is that of a W that is made."""
        suffix = name.removeprefix("weight_hh")
        made = name.startswith("weight_hh") and suffix in self.suffixes()
        return suffix if made and "weight_hh" not in self.recurrent_shapes() else None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("weight_hh") and (suffix := self._suffix_of(name)) is not None:
            return self.recurrent_matrix(suffix)
        return super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("weight_hh") and (suffix := self._suffix_of(name)) is not None:
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

    def input_matrix(self, suffix: str) -> Tensor:
        """U ``(state_size, input_size)``."""
        return self.tensor(f"weight_ih{suffix}")

    def bias_vector(self, suffix: str) -> Tensor | None:
        return self.tensor(self.bias_name(suffix)) if self.bias else None

    def operands(self, suffix: str, x: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """W, U and b for an input such as x."""
        with full_precision(x):
            W = self.recurrent_matrix(suffix)
        return W, self.input_matrix(suffix), self.bias_vector(suffix)


class OrthogonalMatrix(RecurrentMatrix):
    """One whose W is orthogonal (unitary, in its real form) by construction."""

    @torch.no_grad()
    def orthogonality_error(self) -> float | None:
        return max(float(orthogonality_error(self.recurrent_matrix(suffix))) for suffix in self.suffixes())


class DenseRecurrentLayer(RecurrentMatrix, RecurrentLayer):
    """A layer whose recurrence is one dense real matrix: h_t = act(U x_t + W h_{t−1}), on the sequence operator.

    A model says what :class:`RecurrentMatrix` asks for, and how its numbers start (:meth:`reset`).
    """

    def run(
        self, suffix: str, x: Tensor, h0: Tensor, batch_sizes: Tensor | None, reverse: bool
    ) -> tuple[Tensor, Tensor]:
        weights, settings = self.operands(suffix, x), self._settings_of(batch_sizes, reverse)
        return ops.recurrence(x, h0, *weights, **settings)

    def run_and_read(
        self, suffix: str, x: Tensor, h0: Tensor, batch_sizes: Tensor | None, reverse: bool, head: Head
    ) -> tuple[Tensor, Tensor]:
        if not self.reads_in_one_pass():
            return super().run_and_read(suffix, x, h0, batch_sizes, reverse, head)
        weights, settings = self.operands(suffix, x), self._settings_of(batch_sizes, reverse)
        return ops.readout(x, h0, *weights, *head, **settings)

    def reads_in_one_pass(self) -> bool:
        """Whether :meth:`run` is the sequence operator, and a head reads the states as they are."""
        return self.readout_stride == 1

    def _settings_of(self, batch_sizes: Tensor | None, reverse: bool) -> dict[str, Any]:
        order = {"batch_sizes": batch_sizes, "reverse": reverse}
        return {"activation": self.activation, "backend": self.backend, **order}


class OrthogonalRecurrentLayer(OrthogonalMatrix, DenseRecurrentLayer):
    """A dense layer whose W is orthogonal (unitary, in its real form) by construction."""
