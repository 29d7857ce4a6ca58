"""What layers and cells share: their matrices, under the names of torch.nn.RNN."""

from __future__ import annotations

import re
import warnings
from typing import Any

import torch
from torch import Tensor, nn

from scornn.matrices import Matrix
from scornn.matrices.caching import tensors_of

_OF_MATRIX = re.compile(r"(?!bias_)(\w+?)_(hh(?:_l\d+(?:_reverse)?)?)")
_IN_MATRIX = re.compile(r"\b(hh(?:_l\d+(?:_reverse)?)?)\.(\w+)$")


class Recurrent(nn.Module):
    """What a layer and a cell share. The matrix of each suffix is the child ``hh{suffix}``.

    Its number ``skew`` is the attribute ``skew_hh{suffix}``, and so it is called in a ``state_dict``, as it was before
    matrices were modules; ``weight_hh{suffix}`` is W, and what is assigned to it goes to the matrix. The names of
    ``named_parameters()``, which ``torch.func.functional_call`` takes, are torch's: ``hh{suffix}.skew``.
    """

    def matrix(self, suffix: str) -> Any:
        """The :class:`~scornn.matrices.Matrix` of one layer in one direction."""
        return self._modules[f"hh{suffix}"]

    def matrices(self) -> list[Matrix]:
        """The recurrent matrices in it."""
        return [module for module in self.modules() if isinstance(module, Matrix)]

    @property
    def like(self) -> Tensor:
        """Any parameter or buffer, for its dtype and device."""
        return next(tensors_of(self))

    @property
    def averages(self) -> bool:
        """Whether an average of its parameters over training means anything."""
        return all(matrix.averages for matrix in self.matrices())

    def orthogonality_error(self) -> float | None:
        """Largest ‖WᵀW − I‖_F over layers and directions; None where W is not constrained."""
        return max((e for matrix in self.matrices() if (e := matrix.error()) is not None), default=None)

    def penalty(self) -> Tensor | None:
        """What the training loss should add for this layer, or None."""
        terms = [term for matrix in self.matrices() if (term := matrix.penalty()) is not None]
        return torch.stack(terms).sum() if terms else None

    def retract_(self) -> None:
        """Put matrices that were averaged back to where they belong."""
        for matrix in self.matrices():
            matrix.retract_()

    def after_step(self) -> None:
        """What a training loop calls after each step of the optimizer; a dtriv counts them."""
        for matrix in self.matrices():
            matrix.after_step()

    def _ends(self) -> list[str]:
        """What comes after ``hh`` in the names of the matrices."""
        return [name.removeprefix("hh") for name in self._modules if name.startswith("hh")]

    def _found(self, name: str) -> tuple[Matrix, str] | None:
        """The matrix that an attribute belongs to, and its name there."""
        found = _OF_MATRIX.fullmatch(name)
        matrix = self.__dict__.get("_modules", {}).get(found[2]) if found else None
        return None if found is None or matrix is None else (matrix, found[1])

    def __getattr__(self, name: str) -> Any:
        found = self._found(name)
        if found is not None and hasattr(*found):
            return getattr(*found)
        if found is not None and found[1] == "weight":
            return found[0].fresh()
        return super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        found = self._found(name)
        if found is None:
            super().__setattr__(name, value)
        elif found[1] == "weight" and not hasattr(*found):
            try:
                found[0].assign(value)
            except (AttributeError, ValueError) as error:
                raise type(error)(f"{name}: {error}") from None
        else:
            setattr(*found, value)

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """As every module's, with ``skew_hh{suffix}`` in the place of ``hh{suffix}.skew``."""
        tensors, prefix = super().state_dict(*args, **kwargs), kwargs.get("prefix", "")
        for key in [key for key in tensors if key.startswith(f"{prefix}hh")]:
            child, _, own = key[len(prefix) :].rpartition(".")
            if child in self._modules:
                tensors[f"{prefix}{own}_{child}"] = tensors.pop(key)
        return tensors

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        for key in [key for key in state_dict if key.startswith(prefix)]:
            name = key[len(prefix) :]
            found = self._found(name)
            if found is not None and hasattr(*found):
                state_dict[f"{prefix}{name.removeprefix(f'{found[1]}_')}.{found[1]}"] = state_dict.pop(key)
        foreign = [f"{prefix}{name}{s}" for s in self._ends() for name in ("weight_hh", "bias_ih")]
        foreign = [key for key in foreign if key in state_dict]
        if foreign:  # a warning: an error would be one also for load_state_dict(strict=False)
            made = any(key.startswith(f"{prefix}weight_hh") for key in foreign)
            warnings.warn(
                f"{', '.join(foreign)}: these are the names of a torch.nn.RNN, not of {type(self).__name__}. "
                "To convert one: copy weight_ih_l{k}"
                + ("; assign weight_hh_l{k} = left @ right of left, _, right = torch.linalg.svd(W)" * made)
                + (", the nearest orthogonal matrix, where a model takes it, as ScoRNN does" * made)
                + "; copy bias_ih_l{k} + bias_hh_l{k} to bias_l{k} (modReLU adds it to |z|, other nonlinearities to z)",
                stacklevel=2,
            )
        super()._load_from_state_dict(state_dict, prefix, *others)


def name_missing(module: nn.Module, keys: Any) -> None:
    """A hook of ``load_state_dict``: what is missing is called as it would be in the file."""
    keys.missing_keys[:] = [_IN_MATRIX.sub(r"\2_\1", key) for key in keys.missing_keys]
