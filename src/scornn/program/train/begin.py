"""Beginning with the weights of another run in place of freshly drawn ones: ``--start-from``."""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import msgspec
import torch

from scornn.errors import UsageError
from scornn.nn.widen import widen
from scornn.program.progress import log
from scornn.program.train import state
from scornn.program.train.config import Config
from scornn.program.train.engine import Engine, build_model
from scornn.program.train.figures import Weights
from scornn.program.train.identity import Start
from scornn.program.train.weights import Stored, find


def find_start(
    source: Path | None, config: Config, weights: Weights, *, widen: bool = True
) -> tuple[Config, Stored | None]:
    """The newest weights of another run, and the config that names them; nothing where no source is given.

    ``widen``: whether they may be of fewer units than the config's.
    """
    if source is None:
        if config.start is not None:
            raise UsageError(f"start = {config.start}: expected --start-from with the run that has these weights")
        if weights != "raw":
            raise UsageError(f"--start-weights {weights}: expected --start-from with the run that has them")
        return config, None
    stored = find(source, weights=weights)
    if (there := stored.model.name) != config.model.name:
        raise UsageError(f"--start-from {source}: a network of {there}; expected one of {config.model.name}")
    n, expected = stored.model.hidden, config.model.hidden
    grows = config.model.name == "scornn"
    if n > expected or (n < expected and not (grows and widen)):
        fits = f"--hidden {n}{', or more to widen it' * grows}"
        raise UsageError(f"--start-from {source}: a network of n = {n}; expected {expected}, or {fits}")
    options = [model.options for model in (stored.model, config.model)]
    follows = {"rho"} if n < expected else set()  # D keeps the signs that it has and gets those that are missing
    keys = (options[0].keys() | options[1].keys()) - follows
    if other := sorted(key for key in keys if options[0].get(key) != options[1].get(key)):
        log.warning(f"--start-from {source} was trained with another model.options.{', model.options.'.join(other)}")
    found = label(source, stored)
    if config.start not in (None, found):
        raise UsageError(f"start = {config.start}, but --start-from {source} has {found}; --set start=null takes them")
    return msgspec.structs.replace(config, start=found), stored


def label(source: Path, stored: Stored) -> str:
    """What a config calls such a start: run, step, which weights, and their digest."""
    digest = hashlib.sha256()
    for name, tensor in sorted(stored.tensors.items()):
        digest.update(name.encode() + tensor.contiguous().numpy().tobytes())
    return str(Start(source.resolve().name, stored.step, stored.weights == "average", digest.hexdigest()[:16]))


def begin_with(stored: Stored, config: Config, engine: Engine) -> None:
    """Give a new network the weights of another run, of fewer units where it is a scoRNN.

    Its D has the rho of its config, and training cannot change it.
    """
    model = engine.model
    signs = model.state_dict()
    asked = {name: int((signs[name] < 0).sum()) for name in state.sign_names(model)}
    if stored.model.hidden < config.model.hidden:
        stored = _widened(stored, config, engine, asked)
    stored.put_into(model)
    if engine.average is not None:  # begun as a copy of the network before
        state.restore_model(engine.average.module, model.state_dict())
    for name, count in asked.items():
        if (there := int((stored.tensors[name] < 0).sum())) != count:
            raise UsageError(
                f"model.options.rho: D has {count} entries −1 by this config and {there} in {stored.path}; training "
                f"does not change them, so that the network would have a rho that its config does not name"
            )


def _widened(stored: Stored, config: Config, engine: Engine, signs: Mapping[str, int]) -> Stored:
    """The weights of a network of more units with the same outputs; the new ones are drawn from the seed."""
    options = {**config.model.options, "rho": 0}  # D comes with the weights
    narrow = msgspec.structs.replace(config.model, hidden=stored.model.hidden, options=options)
    with torch.random.fork_rng(devices=()):
        network = build_model(narrow, engine.task, config.backend)
        stored.put_into(network)
        torch.manual_seed(config.seed)
        try:
            wide = widen(network, config.model.hidden, rho=next(iter(signs.values())))
        except ValueError as error:
            raise UsageError(f"model.options.{error} when {stored.path} is widened") from None
    return replace(stored, tensors=wide.state_dict())
