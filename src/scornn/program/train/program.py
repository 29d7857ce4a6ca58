"""Start a run, resume one, evaluate one: the loop with everything that stands around it."""

import logging
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import msgspec
import torch

from scornn.errors import CheckpointError, DataError, RunInUseError, ScornnError, StorageError, UsageError
from scornn.program import durable, tasks
from scornn.program import plugins as plugin_files
from scornn.program.progress import RunLog, log, run_log, run_messages
from scornn.program.tasks.contract import fingerprint
from scornn.program.train import board, checkpoint, distributed, provenance, watch
from scornn.program.train.begin import begin_with, find_start
from scornn.program.train.config import Config, build, to_json, to_table
from scornn.program.train.engine import Engine, make_task
from scornn.program.train.figures import Weights
from scornn.program.train.identity import differences, in_words
from scornn.program.train.loop import Trainer
from scornn.program.train.progress import Figures, Shown, Silent
from scornn.program.train.run import Run, has_results, is_finished, newest_step, place, read_config, with_plugins
from scornn.program.train.weights import Stored
from scornn.program.train.weights import find as find_weights

Display = Callable[[Figures], Silent]
"""What shows a run's progress; where none is given, the one that suits the terminal, or silence if ``quiet``."""


@dataclass(frozen=True)
class Result:
    """How a run ended. ``signal`` is 0, or the one that stopped it; ``first`` marks the process that speaks."""

    path: Path
    signal: int
    summary: dict[str, Any]
    first: bool = True

    @property
    def exit_code(self) -> int:
        return 128 + self.signal if self.signal else 0


def start(
    config: Config,
    out: Path | None = None,
    *,
    start_from: Path | None = None,
    start_weights: Weights = "raw",
    widen: bool = True,
    quiet: bool = False,
    tensorboard: bool | None = None,
    display: Display | None = None,
) -> Result:
    """Train a config in a new run directory, from its seed or from the newest weights of another run.

    ``widen``: whether these may be of a scoRNN of fewer units.
    Under torchrun a run of the same config is taken up where it stands, so that a restarted job goes on by
    itself.
    """
    write_board = board.wanted(tensorboard)
    config, stored = find_start(start_from, config, start_weights, widen=widen)
    check_device(config)
    with closing(distributed.start(config.device)) as world, _messages(world, quiet or display) as messages:
        trainer = Trainer(config, _task(config), world)  # refuses data, sizes and options before a directory is made
        if stored is not None:
            begin_with(stored, config, trainer.engine)
        path = Path(world.from_first(lambda: place(config, out, join=world.launched)))
        return _train(trainer, path, display or (Silent if quiet else Shown), write_board, messages)


def resume(
    path: Path,
    *,
    steps: int | None = None,
    epochs: int | None = None,
    data: Path | None = None,
    device: Literal["cpu", "cuda"] | None = None,
    plugins: Sequence[str] = (),
    quiet: bool = False,
    tensorboard: bool | None = None,
    display: Display | None = None,
) -> Result:
    """Go on with a run from its newest good checkpoint, or from its seed where it has none.

    ``steps`` or ``epochs`` give the run a new end, ``data`` and ``plugins`` other places of its files. On another
    ``device`` it goes on with a warning: the last bits may differ.
    """
    write_board = board.wanted(tensorboard)
    config = read_config(path, plugins)
    if config.start is not None and not checkpoint.steps(path / "checkpoints") and not has_results(path):
        raise CheckpointError(
            f"{path} ended before the weights of {config.start}, which it starts from, were saved in it; "
            "train it again with --start-from, into another --out"
        )
    table = to_table(config)
    if steps is not None or epochs is not None:
        table |= {"steps": steps, "epochs": epochs, "stop_when": {}}
    given = {"data": str(data) if data else None, "device": device}
    config = build(table | {key: value for key, value in given.items() if value is not None})
    check_device(config)
    with closing(distributed.start(config.device)) as world, _messages(world, quiet or display) as messages:
        trainer = Trainer(config, _task(config), world)
        return _train(trainer, path, display or (Silent if quiet else Shown), write_board, messages)


def evaluate(
    path: Path,
    *,
    best: bool = False,
    weights: Weights = "raw",
    data: Path | None = None,
    plugins: Sequence[str] = (),
    audio: Path | None = None,
    quiet: bool = True,
) -> dict[str, Any]:
    """Every metric of every split but the training one, with the newest or the best weights of a run, raw or averaged.

    ``audio`` is a folder for rebuilt speech; its scores are then part of the result.
    """
    task, engine, saved = load(path, best=best, weights=weights, data=data, plugins=plugins)
    if audio is not None and not isinstance(task, tasks.Speech):
        raise UsageError(f"--audio rebuilds speech, but {path} is a run of {task.name}")
    if saved.data and (other := differences(saved.data, fingerprint(task))):
        log.warning(f"evaluated on other data than {path} was trained on: {'; '.join(in_words(other))}")
    if saved.plugins not in (None, code := plugin_files.digest(saved.config.get("plugins") or ())):
        log.warning(f"evaluated with other code than {path} was trained with: {code} instead of {saved.plugins}")
    result: dict[str, Any] = {
        "run": str(path),
        "step": saved.step,
        "weights": saved.weights,
        "parameters": engine.parameter_count(),
        "orthogonality": engine.orthogonality(),
        "splits": {split: engine.evaluate(split) for split in task.splits if split != "train"},
    }
    if audio is not None and isinstance(task, tasks.Speech):
        from scornn.program.metrics.reconstruct import evaluate_audio

        result["audio"] = evaluate_audio(engine.model, task, audio, progress=not quiet)
    return result


def load(
    path: Path,
    *,
    best: bool = False,
    weights: Weights = "raw",
    data: Path | None = None,
    plugins: Sequence[str] = (),
) -> tuple[tasks.Task, Engine, Stored]:
    """A run's task and its network with the newest (or best) weights, raw or averaged. Nothing is written or locked.

    ``path`` may also be what else holds weights: a recorded result, a checkpoint, a file of `scornn export`.
    """
    found = find_weights(path, best=best, weights=weights)
    config = build(with_plugins(found.config, plugins))
    if data is not None:
        config = msgspec.structs.replace(config, data=str(data))
    if _lacks_device(config):
        log.warning(f"{path} was trained on cuda, and PyTorch finds no GPU here: on the cpu the last digits may differ")
        config = msgspec.structs.replace(config, device="cpu")
    task = _task(config)
    if found.task is not None:
        form = tasks.TaskForm.of(found.task.name, task)
        was, now = (
            {key: value for key, value in msgspec.to_builtins(form).items() if key != "ragged"}  # younger than others
            for form in (found.task, form)
        )
        if other := differences(was, now):
            here = f"{config.data} has data" if config.data else "the task is"
            raise DataError(f"{here} of another kind than {path} was trained on: {', '.join(in_words(other))}")
    engine = Engine(config, task)
    found.put_into(engine.model)
    return task, engine, replace(found, config=to_table(config))


def _task(config: Config) -> tasks.Task:
    torch.set_num_threads(config.threads)
    if config.device == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True, warn_only=True)
    return make_task(config)


def check_device(config: Config) -> None:
    """Refuse a config for a device that is not here."""
    if _lacks_device(config):
        raise UsageError(
            "device = cuda: PyTorch finds no GPU here; expected --device cpu, or a PyTorch and a driver with CUDA"
        )


def _lacks_device(config: Config) -> bool:
    return config.device == "cuda" and not torch.cuda.is_available()


def _messages(world: distributed.World, quiet: object) -> AbstractContextManager[RunLog]:
    """The messages of a run; the first process alone shows them, and of a quiet run the warnings alone."""
    return run_messages(logging.CRITICAL if not world.first else logging.WARNING if quiet else logging.INFO)


def _train(trainer: Trainer, path: Path, display: Display, write_board: bool, messages: RunLog) -> Result:
    """Go on from the newest checkpoint, or begin. All that may be refused comes before the directory is held."""
    world, before = trainer.world, checkpoint.steps(path / "checkpoints")
    step = world.from_first(lambda: newest_step(path, run_log.warning))
    saved = None if step is None else checkpoint.load(path / "checkpoints" / f"step-{step}")
    if saved is not None:
        trainer.resume(saved)
    if trainer.finished and world.from_first(lambda: is_finished(path, step)):
        if world.first:
            run_log.info(f"{trainer.engine.parameter_count():,} parameters, at step {step:,}, in {path}")
            run_log.info("nothing is left to do; --iterations or --epochs give the run a later end")
        return Result(path, 0, trainer.summary(), world.first)
    with ExitStack() as stack:
        run = world.on_first(lambda: _hold(stack, path, before, saved))
        if run is not None:
            trainer.attach(run, display)
            messages.write_to(run.log)
            _introduce(trainer, path, saved is None)
        if saved is None and trainer.config.start is not None:
            trainer.save()  # the run no longer needs the other one
        if run is not None:
            durable.write_text(path / "config.json", to_json(trainer.config))
            if saved is None:
                run.write_summary(trainer.summary())  # readers learn metric, goal and baseline before the first figure
            watchers = dict(watch.WATCHERS)
            if write_board:
                watchers["TensorBoard"] = lambda path, _: board.opened(path / "tensorboard", trainer.ledger.step)
            trainer.viewers += watch.opened(watchers, path, to_table(trainer.config), stack, run_log.warning)
            run.log(f"training from step {trainer.ledger.step}, code {provenance.code_version()}")
        try:
            number = trainer.run()
        except (ScornnError, OSError) as error:
            if run is not None:
                with suppress(StorageError):
                    run.log(f"{type(error).__name__}: {error}")
            raise
        except RuntimeError as error:
            if world.size > 1 and distributed.lost_peer(error):
                raise ScornnError(f"another process of this job has gone: {error}") from error
            raise
        summary = trainer.summary()
        if run is not None:
            if not number:
                run.write_summary(summary)
            run.log(f"stopped by {signal.Signals(number).name}" if number else "finished")
        return Result(path, number, summary, world.first)


def _hold(stack: ExitStack, path: Path, before: list[int], saved: checkpoint.Checkpoint | None) -> Run:
    """The run directory with nothing in it that is newer than the checkpoint, which was found among ``before``."""
    run = stack.enter_context(Run(path))
    if checkpoint.steps(run.checkpoints) != before:
        raise RunInUseError(f"another process has just trained in {path}; try again, or choose another --out")
    run.truncate_metrics(saved.state["metrics_bytes"] if saved else 0)
    if saved is not None:
        # Newer ones are damaged, and their steps will be made again.
        checkpoint.prune(run.checkpoints, {step for step in before if step <= saved.step})
    return run


def _introduce(trainer: Trainer, path: Path, begins: bool) -> None:
    """Say what is trained, and what in it looks like a mistake."""
    if trainer.task.in_words:
        run_log.info(trainer.task.in_words)
    begun = f", from the weights of {trainer.config.start}" if trainer.config.start else ""
    on = f", going on from step {trainer.ledger.step:,}" if trainer.ledger.step else begun
    run_log.info(f"{trainer.engine.parameter_count():,} parameters, {trainer.total:,} steps{on}, in {path}")
    if begins:
        for doubt in trainer.task.doubts:
            run_log.warning(doubt)
        if (key := trainer.engine.unused_rule) is not None:
            model = trainer.config.model.name
            run_log.warning(f"{key} changes nothing: it is for what makes a recurrent matrix, and {model} has none")
