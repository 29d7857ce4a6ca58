"""Everything that a checkpoint holds of a running process, and putting it back.

Optimizer state goes by parameter name, not by position; generators are restored last, because building
things may draw from them.
"""

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scornn.errors import CheckpointError
from scornn.matrices import Matrix
from scornn.optim import named_parameters
from scornn.program.train.distributed import World
from scornn.program.train.engine import Engine

_OPTIMIZER, _RANDOM, _AVERAGE = "optimizer/", "random/", "average/"


def capture(engine: Engine) -> tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Any]]:
    """(model tensors, training tensors, plain values): what :func:`restore` takes."""
    training = _generators(engine.world)
    plain: dict[str, Any] = {"optimizer": {}, "random": _python_generators()}
    names = {id(parameter): name for name, parameter in named_parameters(engine.model).items()}
    for group, optimizer in engine.optimizers.items():
        for parameter, state in optimizer.state.items():
            for key, value in state.items():
                full = f"{group}/{names[id(parameter)]}/{key}"
                if isinstance(value, Tensor):
                    training[_OPTIMIZER + full] = value
                else:
                    plain["optimizer"][full] = value
    if engine.average is not None:
        training |= {_AVERAGE + name: value for name, value in engine.average.module.state_dict().items()}
        plain["averaged"] = int(engine.average.n_averaged)
    return engine.model.state_dict(), training, plain


def restore(
    engine: Engine, model: Mapping[str, Tensor], training: Mapping[str, Tensor], plain: Mapping[str, Any]
) -> None:
    """Put an engine of the same config into the captured state, generators last."""
    restore_model(engine.model, model)
    parameters = named_parameters(engine.model)
    states = {key.removeprefix(_OPTIMIZER): t for key, t in training.items() if key.startswith(_OPTIMIZER)}
    for full, value in {**states, **plain["optimizer"]}.items():
        group, name, key = full.split("/")
        parameter, optimizer = parameters[name], engine.optimizers[group]
        if isinstance(value, Tensor):
            value = placed(key, value, parameter, optimizer.param_groups[0])
        optimizer.state[parameter][key] = value
    if engine.average is not None:
        restore_model(engine.average.module, average_of(training))
        engine.average.n_averaged.fill_(plain["averaged"])
    restore_generators(training, plain, engine.world)


def placed(key: str, value: Tensor, parameter: Tensor, group: Mapping[str, Any]) -> Tensor:
    """Optimizer state on the device of its parameter; but torch's count of steps only where its rule wants it there."""
    stays = key == "step" and not (group.get("fused") or group.get("capturable"))
    return value if stays else value.to(parameter.device)


def average_of(training: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The averaged weights among the training tensors of a checkpoint; empty where none were kept."""
    return {key.removeprefix(_AVERAGE): value for key, value in training.items() if key.startswith(_AVERAGE)}


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """A refusal of what is restored here says where it lies."""
    try:
        yield
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from None


def restore_model(model: torch.nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Load weights; names, shapes or signs that do not fit are a :class:`CheckpointError`."""
    try:
        model.load_state_dict(dict(tensors))
    except RuntimeError as error:
        why = _misfit(model.state_dict(), tensors) or error
        raise CheckpointError(f"the weights do not fit the model of this config: {why}") from None
    for name in sign_names(model):  # W is orthogonal only with these, whatever the digest says
        wrong = tensors[name][tensors[name].abs() != 1].flatten().tolist()
        if wrong:
            raise CheckpointError(
                f"the weights do not fit the model of this config: {name} holds {wrong[0]:g}; expected 1 and -1 alone"
            )


def _misfit(expected: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> str:
    """The first tensor that is missing, too many or of another shape, and how many more; empty where none is."""
    wrong = [
        f"{name} has {f'shape {tuple(found[name].shape)}' if name in found else 'no values'}, "
        f"expected {f'shape {tuple(expected[name].shape)}' if name in expected else 'none of this name'}"
        for name in {**expected, **found}
        if name not in found or name not in expected or found[name].shape != expected[name].shape
    ]
    return f"{wrong[0]}{f'; {len(wrong) - 1} more do not fit either' if len(wrong) > 1 else ''}" if wrong else ""


def sign_names(model: torch.nn.Module) -> list[str]:
    """The buffers of a network that its matrices call their signs."""
    matrices = [module for module in model.modules() if isinstance(module, Matrix)]
    signs = {id(matrix.get_buffer(name)) for matrix in matrices for name in matrix.signs}
    return [key for key, tensor in model.state_dict(keep_vars=True).items() if id(tensor) in signs]


def _generators(world: World) -> dict[str, Tensor]:
    """torch's global generators: of the first process without a number, of each other one with its rank."""
    states = world.gather(torch.get_rng_state())
    found = {f"{_RANDOM}torch{f'/{rank}' if rank else ''}": state for rank, state in enumerate(states)}
    if torch.cuda.is_available():
        alone = world.size == 1 or not world.device.startswith("cuda")
        every = torch.cuda.get_rng_state_all() if alone else world.gather(torch.cuda.get_rng_state())
        found |= {f"{_RANDOM}cuda{i}": state for i, state in enumerate(every)}
    return found


def restore_generators(training: Mapping[str, Tensor], plain: Mapping[str, Any], world: World) -> None:
    """Put back python's, numpy's and torch's global generators, each process its own."""
    version, words, gauss = plain["random"]["python"]
    random.setstate((version, tuple(words), gauss))
    kind, keys, position, has_gauss, cached = plain["random"]["numpy"]
    np.random.set_state((kind, np.array(keys, dtype=np.uint32), position, has_gauss, cached))  # noqa: NPY002
    first = training[f"{_RANDOM}torch"]
    torch.set_rng_state(training.get(f"{_RANDOM}torch/{world.rank}", first))
    if torch.cuda.is_available():
        found = cuda_states(training)
        if world.size > 1 and world.device.startswith("cuda") and world.rank < len(found):
            torch.cuda.set_rng_state(found[world.rank])
        else:
            for index, state in enumerate(found[: torch.cuda.device_count()]):
                torch.cuda.set_rng_state(state, index)


def cuda_states(training: Mapping[str, Tensor]) -> list[Tensor]:
    """The generators of the GPUs in the order of their numbers: the tenth comes after the second."""
    prefix = f"{_RANDOM}cuda"
    keys = [key for key in training if key.startswith(prefix)]
    return [training[key] for key in sorted(keys, key=lambda key: int(key.removeprefix(prefix)))]


def _python_generators() -> dict[str, Any]:
    version, words, gauss = random.getstate()
    kind, keys, position, has_gauss, cached = np.random.get_state(legacy=True)  # noqa: NPY002
    return {
        "python": [version, list(words), gauss],
        "numpy": [kind, [int(key) for key in keys], int(position), int(has_gauss), float(cached)],
    }
