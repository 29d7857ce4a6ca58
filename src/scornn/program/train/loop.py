"""The loop: steps, evaluations, checkpoints, and an end at a step boundary.

All that the loop knows besides the engine is a :class:`~scornn.train.ledger.Ledger` of plain values; a checkpoint is
the engine's state and the ledger, and a run that goes on from it cannot be told from one that never stopped.
"""

import math
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import msgspec

from scornn import ops
from scornn.errors import CheckpointError, DivergedError, UsageError
from scornn.program import plugins
from scornn.program.progress import run_log
from scornn.program.tasks import Task, TaskForm, check
from scornn.program.tasks.catalogue import name_of
from scornn.program.tasks.contract import fingerprint
from scornn.program.train import checkpoint, provenance, state
from scornn.program.train.config import Config, to_table
from scornn.program.train.distributed import World
from scornn.program.train.engine import Engine
from scornn.program.train.figures import Metrics, Weights, figures
from scornn.program.train.identity import Identity, differences, in_words
from scornn.program.train.ledger import Ledger
from scornn.program.train.progress import Figures, Silent
from scornn.program.train.run import Run, label
from scornn.program.train.signals import StopRequest

_NOT_ORTHOGONAL = 1e-3
"""‖WᵀW − I‖_F of a constrained float32 W is about n·eps; past this something is wrong."""


def check_belongs(saved: checkpoint.Checkpoint, config: Config | Mapping[str, Any]) -> None:
    """Refuse a checkpoint of another course of training."""
    changed = Identity.of(config).differences(Identity.of(saved.state["config"]), "course")
    changed.pop("device", None)  # a run may move to another one: a warning says so, with the rest of the numerics
    if changed:
        said = ", ".join(in_words(changed))
        raise CheckpointError(f"{saved.path} belongs to another config: {said}; restore config.json or start a new run")


class Trainer:
    """Trains one config. :meth:`attach` gives it a run directory; without one it leaves no trace."""

    def __init__(self, config: Config, task: Task, world: World) -> None:
        self.config, self.task, self.world = config, task, world
        check(task)
        self.engine = Engine(config, task, world)
        _ = self.engine.optimizers  # a rule that does not fit is refused before anything is written
        self.ledger = Ledger()
        self.steps_per_epoch = task.num_batches("train")
        self.total = config.length(self.steps_per_epoch)
        self.splits = [split for split in task.splits if split != "train"]
        self.run_directory: Run | None = None
        self.display = Silent(Figures(self.total, task.baseline, task.headline))
        self.viewers: list[Callable[[Mapping[str, Any]], None]] = []
        """Each gets every line of the metrics."""
        self._data = fingerprint(task)
        self._form = msgspec.to_builtins(TaskForm.of(name_of(config.task), task))
        self._best_before: set[int] = set()
        for name in config.stop_when.keys() - {"loss", task.headline}:
            raise UsageError(f"stop_when.{name}: {task.name} stops on loss or {task.headline}, not on {name}")
        self.engine.check_batches()

    def attach(self, run: Run, display: Callable[[Figures], Silent] = Silent) -> None:
        """Write in this run directory from now on, and show progress on this display."""
        self.run_directory = run
        self.display = display(self.display.figures)

    def resume(self, saved: checkpoint.Checkpoint) -> None:
        """Go on from a checkpoint of the same config and data. Nothing is written."""
        check_belongs(saved, self.config)
        data = differences(saved.state["data"], self._data)
        task = differences(saved.state.get("task") or self._form, self._form)  # earlier versions kept none
        if data or task:
            said = f"{'on other data' if data else 'for another task'}: {'; '.join(in_words(task | data))}"
            raise CheckpointError(f"{saved.path} was trained {said}; start a new run")
        with state.naming(saved.path):
            state.restore(self.engine, saved.model, saved.training, saved.state)
        self.ledger = Ledger.from_table(saved.state["ledger"])
        self._best_before = self._best_steps()
        self.ledger.reached &= bool(self.config.stop_when)
        self._check_end(saved.state["config"])
        if not self.finished and (changed := differences(saved.state["numerics"], self._numerics())):
            run_log.warning(f"may not resume bit for bit: {', '.join(in_words(changed))}")

    def _check_end(self, before: Mapping[str, Any]) -> None:
        """Refuse a new end that the run has passed, and say what a later one means for the rates."""
        schedule, step = self.config.optimizer.schedule, self.ledger.step
        end = before["steps"] or (before["epochs"] or 0) * self.steps_per_epoch
        if end == self.total:
            return
        if self.total <= step:
            raise UsageError(f"the new end is step {self.total:,}, but the run stands at step {step:,} already")
        if schedule is not None and schedule.looks_at_the_end:
            run_log.warning(
                f"the rates fall to zero at the end of the run ({schedule.kind}), which moves from step {end:,} "
                f"to {self.total:,}: from step {step:,} on they are those of a run of that length"
            )

    @property
    def weights(self) -> tuple[Weights, ...]:
        """The kinds of weights that are evaluated."""
        return ("raw",) if self.engine.average is None else ("raw", "average")

    @property
    def finished(self) -> bool:
        """True when nothing is left to do."""
        return not self.ledger.evaluate and (self.ledger.reached or self.ledger.step >= self.total)

    def run(self) -> int:
        """Train to the end, or to the boundary after SIGINT or SIGTERM. Returns the signal, 0 at the end."""
        self.display.begin(self.ledger.step)
        started, before = time.perf_counter(), self.ledger.elapsed
        with StopRequest() as stop:
            try:
                agreed = False  # every process must leave at the same step
                while not self.finished:
                    if agreed or (self.world.size == 1 and stop):
                        self.save()
                        return stop.signal or signal.SIGTERM
                    if self.ledger.evaluate:
                        improved = self._evaluate(stop)
                        due = improved or self.finished
                    else:
                        agreed = self._step(bool(stop))
                        due = False
                    self.ledger.elapsed = before + time.perf_counter() - started
                    at_boundary = self.ledger.step % self.config.checkpoint_every == 0
                    leaving = agreed if self.world.size > 1 else bool(stop)  # the checkpoint comes at once
                    if due or (at_boundary and not self.ledger.evaluate and not leaving):
                        self.save()
                if self.config.stop_when and not self.ledger.reached:
                    goals = ", ".join(f"{name}={value:g}" for name, value in self.config.stop_when.items())
                    run_log.info(f"not reached in {self.total} steps: {goals}")
            finally:
                self.display.close()
        return 0

    def _step(self, stop: bool) -> bool:
        ledger, begun = self.ledger, time.perf_counter()
        epoch, number = divmod(ledger.step, self.steps_per_epoch)
        try:
            outcome = self.engine.step(epoch, number, stop)
        except DivergedError as error:
            raise DivergedError(
                f"not finite at step {ledger.step + 1}: {error}; the update was not applied. It would be so again: "
                f"{self._what_helps()}"
            ) from None
        ledger.step += 1
        ledger.window = [ledger.window[0] + outcome.loss, ledger.window[1] + 1]
        took = time.perf_counter() - begun
        ledger.seconds += took
        if ledger.step % self.config.log_every == 0:
            self._record_window()
        due = ledger.step % (self.config.eval_every or self.steps_per_epoch) == 0
        ledger.evaluate = due or ledger.step == self.total
        self.display.stepped(ledger.step, outcome.loss, took)
        return outcome.stop

    def _what_helps(self) -> str:
        saved = self.run_directory and checkpoint.steps(self.run_directory.checkpoints)
        begin = "begin with the weights of the last checkpoint (--start-from) and" if saved else "begin with"
        clip = ", or clip the gradient (--set optimizer.clip_norm=1)" if not self.config.optimizer.clip_norm else ""
        return f"{begin} a lower --recurrent-lr or --lr{clip}" + ("" if saved else ", and with data of size about one")

    def _evaluate(self, stop: StopRequest) -> bool:
        """Measure every split, with each kind of weights; True where one of them became better than ever.

        Nothing is noted before all of it is there: an evaluation that is interrupted is made again.
        """
        found: dict[Weights, dict[str, Metrics]] = {}
        for weights in self.weights:
            results = self._measure(stop, weights)
            if results is None:
                return False
            found[weights] = results
        self.ledger.reached = bool(self.config.stop_when) and all(
            self._reached(found["raw"]["test"][name], name) for name in self.config.stop_when
        )
        if self.ledger.reached or self.ledger.step >= self.total:
            self._record_window()  # no step of a run that ends here is missing
        improved = False
        for weights, results in found.items():
            orthogonality = self.engine.orthogonality(weights)
            rows = [self._record(split, metrics, orthogonality, weights) for split, metrics in results.items()]
            if orthogonality is not None and not orthogonality < _NOT_ORTHOGONAL:
                which = "" if weights == "raw" else " of the averaged weights"
                run_log.warning(
                    f"step {self.ledger.step}: W{which} is no longer orthogonal, ‖WᵀW − I‖_F = {orthogonality:.3g}"
                )
            so_far = figures(rows, self.task.headline, self.task.goal, weights, self.ledger.figures[weights])
            self.ledger.figures[weights] = so_far
            improved |= so_far.kept_step == self.ledger.step
        self.ledger.evaluate = False
        self.display.evaluated(found["raw"], self.engine.orthogonality(), found.get("average"))
        return improved

    def _measure(self, stop: StopRequest, weights: Weights) -> dict[str, Metrics] | None:
        """Every metric of every split; None if interrupted."""
        results: dict[str, Metrics] = {}
        for split in self.splits:
            metrics = self.engine.evaluate(split, lambda: bool(stop), weights)
            if metrics is None:
                return None
            if not all(math.isfinite(value) for value in metrics.values()):
                which = "" if weights == "raw" else " with the averaged weights"
                nonfinite_data = self.engine.nonfinite_data(split, range(self.task.num_batches(split)))
                raise DivergedError(
                    f"not finite at step {self.ledger.step}, evaluating {split}{which}: {metrics}{nonfinite_data}"
                )
            results[split] = metrics
        return results

    def _record_window(self) -> None:
        """Record the mean training loss since the last such line, if there were steps."""
        total, count = self.ledger.window
        if count:
            self._record("train", {"loss": total / count}, self.engine.orthogonality())
            self.ledger.window = [0.0, 0.0]

    def _record(
        self, split: str, metrics: Metrics, orthogonality: float | None, weights: Weights = "raw"
    ) -> dict[str, Any]:
        """One line of the metrics."""
        step = self.ledger.step
        epoch = (max(step, 1) - 1) // self.steps_per_epoch + 1  # from 1, that the last step belongs to
        record: dict[str, Any] = {"step": step, "epoch": epoch, "split": split}
        if weights == "average":
            record["weights"] = weights
        record |= metrics
        if orthogonality is not None:
            record["orthogonality"] = orthogonality
        record["seconds"] = round(self.ledger.seconds, 6)
        if self.run_directory:
            self.run_directory.append(record)
        for viewer in self.viewers:
            viewer(record)
        return record

    def save(self) -> None:
        """Write a checkpoint, delete what it replaces, and write the summary that agrees with it."""
        run = self.run_directory
        if run is None and self.world.size == 1:
            return
        model, training, plain = state.capture(self.engine)  # every process has a part in it
        if run is None:
            return
        values = {
            **plain,
            "config": to_table(self.config),
            "numerics": self._numerics(),
            "data": self._data,
            "task": self._form,
            "ledger": self.ledger.to_table(),
            "kept_best": self.ledger.figures["raw"].kept_step,
            "metrics_bytes": run.sync_metrics(),
        }
        checkpoint.save(run.checkpoints, self.ledger.step, model, training, values)
        best = self._best_steps()
        # Where this checkpoint is damaged later, the one before goes on, and has its best.
        kept = {*checkpoint.steps(run.checkpoints)[-2:], self.ledger.step, *best, *self._best_before}
        checkpoint.prune(run.checkpoints, kept)
        self._best_before = best
        run.write_summary(self.summary())

    def _best_steps(self) -> set[int]:
        kept = (self.ledger.figures[weights].kept_step for weights in self.weights)
        return {step for step in kept if step is not None}

    def summary(self) -> dict[str, Any]:
        """What ``summary.json`` holds."""
        ledger = self.ledger
        return {
            "task": name_of(self.config.task),
            "model": self.config.model.name,
            "name": label(self.config),
            "parameters": self.engine.parameter_count(),
            "steps": ledger.step,
            "epochs": ledger.step / self.steps_per_epoch,
            "finished": self.finished,
            "baseline": self.task.baseline,
            "headline": self.task.headline,
            "goal": self.task.goal,
            "splits": self.splits,
            **self._figures("raw"),
            **({"average": self._figures("average")} if "average" in self.weights else {}),
            "seconds": ledger.seconds,
            "seconds_per_step": ledger.seconds / max(1, ledger.step),
            "seconds_with_evaluation": ledger.elapsed,
            "config_hash": Identity.of(self.config).digest(),
            "data": self._data,
            "versions": provenance.versions(),
            "machine": provenance.machine(),
            "numerics": self._numerics(),
        }

    def _figures(self, weights: Weights) -> dict[str, Any]:
        return {**asdict(self.ledger.figures[weights]), "orthogonality": self.engine.orthogonality(weights)}

    def _reached(self, found: float, name: str) -> bool:
        """Losses and a headline to be minimised count downwards, every other metric upwards."""
        wanted = self.config.stop_when[name]
        downwards = name == "loss" or (name == self.task.headline and self.task.goal == "min")
        return found <= wanted if downwards else found >= wanted

    def _numerics(self) -> dict[str, str]:
        layer_backend = self.engine.model.layer.backend
        if layer_backend == "auto":
            layer_backend = ops.chosen(self.config.device, self.engine.model.layer.BACKENDS)
        found = provenance.numerics(layer_backend, self.config.threads, self.world.size, self.config.device)
        return found | ({"plugins": plugins.digest(self.config.plugins)} if self.config.plugins else {})
