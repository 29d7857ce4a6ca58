"""A run that stopped cannot be told from one that did not; and the comparison would notice."""

import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import scornn
from scornn.errors import CheckpointError, DivergedError, UsageError
from scornn.program import tasks
from scornn.program.cli import main
from scornn.program.train import checkpoint, program, provenance, state
from scornn.program.train.config import Config
from scornn.program.train.distributed import World
from scornn.program.train.engine import Engine, make_task
from scornn.program.train.figures import Weights
from scornn.program.train.loop import Trainer
from scornn.program.train.signals import StopRequest

Small = Callable[..., Config]
Bits = Callable[[Path], dict[str, Any]]


def start(config: Config, path: Path) -> program.Result:
    return program.start(config, path, quiet=True, tensorboard=False)


def resume(path: Path, **changes: Any) -> program.Result:
    return program.resume(path, quiet=True, tensorboard=False, **changes)


def stop_at(monkeypatch: pytest.MonkeyPatch, *steps: int, number: int = signal.SIGTERM) -> None:
    """Raise the signal inside the given step, as a terminal or a scheduler would."""
    left = list(steps)
    step = Trainer._step

    def stepping(self: Trainer, stop: bool) -> bool:
        if left and self.ledger.step + 1 == left[0]:
            left.pop(0)
            signal.raise_signal(number)
        return step(self, stop)

    monkeypatch.setattr(Trainer, "_step", stepping)


def straight_and_stopped(
    small: Small, path: Path, monkeypatch: pytest.MonkeyPatch, stops: tuple[int, ...], **changes: Any
) -> tuple[Path, Path]:
    straight, stopped = path / "straight", path / "stopped"
    start(small(**changes), straight)
    with monkeypatch.context() as patch:
        stop_at(patch, *stops)
        result = start(small(**changes), stopped)
        for _ in stops:
            assert result.exit_code == 143
            assert not json.loads((stopped / "summary.json").read_text())["finished"]
            result = resume(stopped)
    assert result.exit_code == 0
    return straight, stopped


@pytest.mark.parametrize("end", [2, 3])
def test_an_end_that_the_run_has_passed_is_refused(
    end: int, small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_at(monkeypatch, 3)
    start(small(), tmp_path / "run")
    before = {file: file.read_bytes() for file in (tmp_path / "run").rglob("*") if file.is_file()}
    with pytest.raises(UsageError, match=rf"new end is step {end}, but the run stands at step 3 already"):
        resume(tmp_path / "run", steps=end)
    kept = {file: file.read_bytes() for file in (tmp_path / "run").rglob("*") if file.is_file()}
    assert kept == before


@pytest.mark.parametrize(
    "steps",
    [(1,), (2,), (3, 4), (4,), (5,), (7, 9, 13), (14,), tuple(range(1, 15))],
    ids=lambda s: "-".join(map(str, s)),
)
def test_stopped_at_any_step_the_run_ends_in_the_same_bits(
    steps: tuple[int, ...], small: Small, bits: Bits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    straight, stopped = straight_and_stopped(small, tmp_path, monkeypatch, steps)
    assert bits(stopped)["lines"] == bits(straight)["lines"]
    assert bits(stopped) == bits(straight)


def test_at_the_end_of_an_epoch(small: Small, bits: Bits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    straight, stopped = straight_and_stopped(small, tmp_path, monkeypatch, (4, 8), steps=None, epochs=3, eval_every=0)
    assert [line["epoch"] for line in bits(straight)["lines"] if line["split"] == "test"] == [1, 1, 2, 2, 3, 3]
    assert bits(stopped) == bits(straight)


@pytest.mark.parametrize("kind", ["sgd", "adam", "rmsprop"])
@pytest.mark.parametrize("model", ["scornn", "lstm"])
def test_with_every_rule(
    kind: str, model: str, small: Small, bits: Bits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = {"model": {"name": model, "hidden": 5}, "optimizer__rest__kind": kind, "optimizer__clip_value": 0.01}
    changes["optimizer__schedule"] = {"kind": "halving", "every": 5}
    straight, stopped = straight_and_stopped(small, tmp_path, monkeypatch, (6, 7), **changes)
    assert bits(stopped) == bits(straight)


def test_a_stop_during_an_evaluation_makes_it_again(
    small: Small, bits: Bits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(small(), tmp_path / "straight")
    evaluate, calls = Engine.evaluate, []

    def evaluating(
        self: Engine, split: str, interrupted: Callable[[], bool] = bool, weights: Weights = "raw"
    ) -> dict[str, float] | None:
        calls.append(split)
        if len(calls) == 4:  # the second evaluation, of the averaged weights
            signal.raise_signal(signal.SIGINT)
        return evaluate(self, split, interrupted, weights)

    with monkeypatch.context() as patch:
        patch.setattr(Engine, "evaluate", evaluating)
        result = start(small(), tmp_path / "stopped")
    assert (result.exit_code, result.summary["steps"]) == (130, 8)
    assert {line["step"] for line in bits(tmp_path / "stopped")["lines"] if line["split"] == "test"} == {4}
    resume(tmp_path / "stopped")
    assert bits(tmp_path / "stopped") == bits(tmp_path / "straight")


@pytest.mark.parametrize(("step", "saved"), [(4, []), (12, [8, 10])])
def test_lines_after_the_checkpoint_are_dropped(
    step: int, saved: list[int], small: Small, bits: Bits, tmp_path: Path
) -> None:
    start(small(), tmp_path / "straight")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "_evaluate", _crash_at(Trainer._evaluate, step))
        with pytest.raises(ZeroDivisionError):
            start(small(), tmp_path / "crashed")
    assert checkpoint.steps(tmp_path / "crashed" / "checkpoints")[-2:] == saved
    with (tmp_path / "crashed" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 14, "half a li')
    resume(tmp_path / "crashed")
    assert bits(tmp_path / "crashed") == bits(tmp_path / "straight")


def _crash_at(method: Callable[..., Any], step: int) -> Callable[..., Any]:
    def crashing(self: Trainer, *args: Any) -> Any:
        if self.ledger.step == step:
            raise ZeroDivisionError
        return method(self, *args)

    return crashing


def test_a_damaged_newest_checkpoint_falls_back(
    small: Small, bits: Bits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(small(), tmp_path / "straight")
    with monkeypatch.context() as patch:
        stop_at(patch, 11)
        start(small(), tmp_path / "stopped")
    path = tmp_path / "stopped" / "checkpoints" / "step-11" / "training.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    resume(tmp_path / "stopped")
    assert "step-11/training.safetensors is damaged" in (tmp_path / "stopped" / "log.txt").read_text()
    assert bits(tmp_path / "stopped") == bits(tmp_path / "straight")


def _without_generators(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(state, "restore_generators", lambda training, plain, world: None)


def _without_position(patch: pytest.MonkeyPatch) -> None:
    resuming = Trainer.resume

    def forgetful(self: Trainer, saved: checkpoint.Checkpoint) -> None:
        resuming(self, saved)
        step, forgotten = self.engine.step, self.ledger.step

        def from_the_start(epoch: int, number: int, *rest: Any) -> Any:
            position = epoch * self.steps_per_epoch + number - forgotten
            return step(*divmod(position, self.steps_per_epoch), *rest)

        patch.setattr(self.engine, "step", from_the_start)

    patch.setattr(Trainer, "resume", forgetful)


def _with_swapped_states(patch: pytest.MonkeyPatch) -> None:
    """The second moments of A and of U, each cut or repeated to the other's shape."""
    restore = state.restore

    def swapping(engine: Engine, model: Any, training: dict[str, torch.Tensor], plain: Any) -> None:
        a, u = "optimizer/recurrent/layer.skew_hh_l0/square_avg", "optimizer/rest/layer.weight_ih_l0/exp_avg_sq"
        swapped = {
            here: training[there].flatten().repeat(9)[: training[here].numel()].reshape(training[here].shape)
            for here, there in ((a, u), (u, a))
        }
        restore(engine, model, {**training, **swapped}, plain)

    patch.setattr(state, "restore", swapping)


@pytest.mark.parametrize("sabotage", [_without_generators, _without_position, _with_swapped_states])
def test_negative_controls_are_noticed(
    sabotage: Callable[[pytest.MonkeyPatch], None],
    small: Small,
    bits: Bits,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start(small(), tmp_path / "straight")
    with monkeypatch.context() as patch:
        stop_at(patch, 6)
        start(small(), tmp_path / "stopped")
    sabotage(monkeypatch)
    resume(tmp_path / "stopped")
    assert bits(tmp_path / "stopped")["tensors"] != bits(tmp_path / "straight")["tensors"]
    assert bits(tmp_path / "stopped")["lines"] != bits(tmp_path / "straight")["lines"]


def test_a_run_may_start_from_the_weights_of_another(
    small: Small, bits: Bits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = tmp_path / "first"
    start(small(), first)
    config = small(seed=3, optimizer__rest__lr=0.001)
    program.start(config, tmp_path / "straight", start_from=first, quiet=True)
    with monkeypatch.context() as patch:
        stop_at(patch, 1)
        program.start(config, tmp_path / "stopped", start_from=first, quiet=True)
        saved = checkpoint.load(tmp_path / "stopped" / "checkpoints" / "step-0")
        ended = checkpoint.load(first / "checkpoints" / "step-14")
        assert all(torch.equal(saved.model[name], tensor) for name, tensor in ended.model.items())
        averaged = state.average_of(saved.training)
        assert all(torch.equal(averaged[name], tensor) for name, tensor in ended.model.items())
        assert saved.state["config"]["start"].startswith("first/step-14/")
        shutil.rmtree(first)
        resume(tmp_path / "stopped")
    assert bits(tmp_path / "stopped") == bits(tmp_path / "straight")


def test_a_wider_network_may_start_from_the_weights_of_a_run(
    small: Small, bits: Bits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(small(optimizer__average={}), tmp_path / "first")
    config = small(seed=3, model__hidden=9, model__options__rho=4)
    for name in ("second", "again"):
        with monkeypatch.context() as patch:
            stop_at(patch, 1)
            program.start(config, tmp_path / name, start_from=tmp_path / "first", start_weights="average", quiet=True)
    first = checkpoint.load(tmp_path / "first" / "checkpoints" / "step-14")
    begun = checkpoint.load(tmp_path / "second" / "checkpoints" / "step-0")
    ended = state.average_of(first.training)
    assert torch.equal(begun.model["layer.weight_ih_l0"][:6], ended["layer.weight_ih_l0"])
    assert not begun.model["head.weight"][:, 6:].any()
    task, narrow, _ = program.load(first.path, weights="average")
    wide, inputs = program.load(begun.path)[1], task.batch("test", 0, 0).inputs
    expected = narrow.model.eval()(inputs)
    torch.testing.assert_close(wide.model.eval()(inputs), expected, rtol=1e-4, atol=1e-5)
    assert bits(tmp_path / "second") == bits(tmp_path / "again")  # the new units are a function of the seed
    table = json.loads((tmp_path / "second" / "config.json").read_text())
    assert table["start"].startswith("first/step-14-averaged/")
    other = small(model__hidden=9, model__options__rho=2)
    with pytest.raises(UsageError, match=r"options\.rho: D has 3 entries −1 and grows by 3: expected 3\.\.6 when"):
        program.start(other, tmp_path / "third", start_from=tmp_path / "first", quiet=True)
    with pytest.raises(UsageError, match="a network of n = 6; expected 5, or --hidden 6, or more"):
        program.start(small(model__hidden=5), tmp_path / "third", start_from=tmp_path / "first", quiet=True)
    assert not (tmp_path / "third").exists()


def test_only_a_size_that_was_chosen_widens(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not the one of a preset, where --hidden was forgotten."""
    monkeypatch.chdir(tmp_path)
    start(small(), Path("first"))
    again = ["train", "--start-from", "first", "--threads", "1", "--tensorboard", "off", "--quiet", "--out"]
    assert main([*again, "preset", "copying", "--length", "5", "--iterations", "1"]) == 2
    assert "a network of n = 6; expected 190, or --hidden 6, or more to widen it" in capsys.readouterr().err
    assert not Path("preset").exists()
    assert main([*again, "same", "--config", "first/config.json"]) == 0
    wider = ["--config", "first/config.json", "--hidden", "9", "--rho", "4"]
    assert main([*again, "wider", *wider]) == 0
    assert json.loads(Path("wider/config.json").read_text())["model"]["hidden"] == 9


def test_what_a_run_cannot_start_from(small: Small, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start(small(), tmp_path / "first")
    other = small(model={"name": "scornn", "hidden": 5})
    with pytest.raises(UsageError, match=r"--start-from .*first: a network of n = 6; expected 5, or --hidden 6"):
        program.start(other, tmp_path / "second", start_from=tmp_path / "first", quiet=True)
    other = small(model__name="irnn", model__options={})
    with pytest.raises(UsageError, match=r"--start-from .*first: a network of scornn; expected one of irnn"):
        program.start(other, tmp_path / "second", start_from=tmp_path / "first", quiet=True)
    other = small(model={"name": "scornn", "hidden": 6, "readout": {"width": 4}})
    misfit = r"config: head\.\S+ has (no values|shape .*), expected (shape|none of).*; \d more do not fit either$"
    with pytest.raises(CheckpointError, match=misfit):
        program.start(other, tmp_path / "second", start_from=tmp_path / "first", quiet=True)
    with pytest.raises(UsageError, match="expected --start-from"):
        program.start(small(start="first/step-14/0123"), tmp_path / "second", quiet=True)
    with pytest.raises(UsageError, match=r"but --start-from .* has first/step-14/\w+; --set start=null takes them"):
        program.start(small(start="first/step-14/0123"), tmp_path / "second", start_from=tmp_path / "first", quiet=True)
    with pytest.raises(UsageError, match=r"D has 0 entries −1 by this config and \d in .*step-14; training does"):
        program.start(small(model__options__rho=0), tmp_path / "second", start_from=tmp_path / "first", quiet=True)
    with pytest.raises(UsageError, match="--start-weights average: expected --start-from"):
        program.start(small(), tmp_path / "second", start_weights="average", quiet=True)
    assert not (tmp_path / "second").exists()
    tanh = small(model__options__nonlinearity="tanh")
    program.start(tanh, tmp_path / "third", start_from=tmp_path / "first" / "checkpoints" / "step-14", quiet=True)
    assert "was trained with another model.options.nonlinearity" in capsys.readouterr().err
    shutil.rmtree(tmp_path / "third" / "checkpoints")
    (tmp_path / "third" / "summary.json").unlink()
    with pytest.raises(CheckpointError, match="train it again with --start-from"):
        resume(tmp_path / "third")


def test_a_run_from_other_weights_is_a_run_when_it_has_them(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*args: Any) -> None:
        raise RuntimeError("killed")

    start(small(), tmp_path / "first")
    with monkeypatch.context() as patch:
        patch.setattr("scornn.program.train.checkpoint.save", killed)
        with pytest.raises(RuntimeError, match="killed"):
            program.start(small(), tmp_path / "second", start_from=tmp_path / "first", quiet=True)
    assert not (tmp_path / "second" / "config.json").exists()
    program.start(small(), tmp_path / "second", start_from=tmp_path / "first", quiet=True)
    assert checkpoint.newest(tmp_path / "second" / "checkpoints", print).step == 14


def test_another_kernel_and_another_instruction_set_are_said(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        stop_at(patch, 6)
        start(small(), tmp_path / "run")
    provenance.code_version.cache_clear()
    before = provenance.code_version()
    monkeypatch.setattr(Engine, "orthogonality", lambda self, weights="raw": 0.5)
    monkeypatch.setattr("scornn.ops.library.digest", lambda: "rebuilt")
    monkeypatch.setattr("scornn.ops.library.instruction_set", lambda: "another")
    provenance.code_version.cache_clear()
    assert provenance.code_version() != before
    assert provenance.numerics("native", 1, 1, "cpu")["instruction set"] == "another"
    resume(tmp_path / "run")
    said = capsys.readouterr().err
    assert "warning: may not resume bit for bit: code 0.2.0" in said
    assert "may not resume bit for bit: code 0.2.0" in (tmp_path / "run" / "log.txt").read_text()
    assert "warning: step 8: W is no longer orthogonal, ‖WᵀW − I‖_F = 0.5" in said
    if scornn.backends()["native"] == "available":
        assert "instruction set another instead of" in said
    provenance.code_version.cache_clear()


def test_an_evaluation_makes_W_once(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    config = small()
    engine = Engine(config, tasks.make(config.task, config.seed, None), World())
    assert engine.task.num_batches("train") > 1
    made, matrices = [], engine.model.layer.matrices()
    for matrix in matrices:
        monkeypatch.setattr(matrix, "forward", lambda make=matrix.forward: made.append(make) or make())
    engine.evaluate("train")
    assert len(made) == len(matrices)


def test_a_finished_run_gets_a_later_end(small: Small, tmp_path: Path) -> None:
    run = tmp_path / "run"
    start(small(), run)
    resume(run, steps=20)
    start(small(steps=20), tmp_path / "longer")
    weights = [(path / "checkpoints/step-20/model.safetensors").read_bytes() for path in (run, tmp_path / "longer")]
    assert weights[0] == weights[1]


def test_stop_when_ends_the_run_at_an_evaluation(small: Small, tmp_path: Path) -> None:
    result = start(small(stop_when={"loss": 100.0, "recall": 0.0}), tmp_path / "run")
    assert (result.summary["steps"], result.summary["finished"]) == (4, True)
    assert resume(tmp_path / "run").summary["steps"] == 4
    assert resume(tmp_path / "run", steps=6).summary["steps"] == 6
    result = start(small(stop_when={"recall": 1.0}), tmp_path / "never")
    assert result.summary["steps"] == 14


def test_no_training_step_is_missing_in_the_metrics_wherever_a_run_ends(small: Small, tmp_path: Path) -> None:
    early = start(small(stop_when={"loss": 100.0}, log_every=10), tmp_path / "early")
    straight = start(small(steps=4, log_every=10), tmp_path / "straight")
    lines = [
        [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        for name in ("early", "straight")
    ]
    kept = [[(line["step"], line["split"], line["loss"]) for line in each] for each in lines]
    assert early.summary["steps"] == straight.summary["steps"] == 4
    assert [(step, split) for step, split, _ in kept[0]] == [(4, "train"), (4, "test"), (4, "test")]
    assert kept[0] == kept[1]


def test_what_a_run_is_judged_by_is_there_from_its_first_step(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(self: Trainer, stop: bool) -> bool:
        raise RuntimeError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_step", killed)
        with pytest.raises(RuntimeError, match="killed"):
            start(small(), tmp_path / "run")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert [summary[key] for key in ("headline", "goal", "splits", "steps")] == ["recall", "max", ["test"], 0]
    assert summary["baseline"] == pytest.approx(0.693, abs=0.01)
    assert resume(tmp_path / "run").summary["finished"]


def test_what_a_result_without_weights_can_be_used_for_is_said(small: Small, tmp_path: Path) -> None:
    run = tmp_path / "run"
    start(small(), tmp_path / "other")
    program.start(small(), run, start_from=tmp_path / "other", quiet=True)
    shutil.rmtree(run / "checkpoints")
    for command in (program.evaluate, resume):
        with pytest.raises(CheckpointError, match=r"has results, but .* `scornn train --config .* --out NEW` makes"):
            command(run)


def test_the_best_and_the_last_two_checkpoints_are_kept(small: Small, tmp_path: Path) -> None:
    start(small(steps=40, checkpoint_every=3), tmp_path / "run")
    best = json.loads((tmp_path / "run" / "summary.json").read_text())["best"]["step"]
    assert set(checkpoint.steps(tmp_path / "run" / "checkpoints")) == {best, 39, 40}
    assert program.evaluate(tmp_path / "run", best=True)["step"] == best
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    value = next(line["recall"] for line in lines if line["split"] == "test" and line["step"] == best)
    assert program.evaluate(tmp_path / "run", best=True)["splits"]["test"]["recall"] == value
    assert value == max(line["recall"] for line in lines if line["split"] == "test")


def test_divergence_stops_before_the_update(small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before: list[dict[str, torch.Tensor]] = []
    step = Engine.step

    def poisoned(self: Engine, epoch: int, number: int, *rest: Any) -> Any:
        if (epoch, number) == (1, 3):
            before.append({name: p.detach().clone() for name, p in self.model.named_parameters()})
            with torch.no_grad():
                self.model.head.weight.grad = None
            self.model.head.weight.register_hook(lambda gradient: gradient * float("inf"))
            try:
                return step(self, epoch, number, *rest)
            finally:
                before.append({name: p.detach().clone() for name, p in self.model.named_parameters()})
        return step(self, epoch, number, *rest)

    monkeypatch.setattr(Engine, "step", poisoned)
    with pytest.raises(
        DivergedError,
        match=r"step 8: loss .*, gradient norm (nan|inf), learning rates: rest 0.01, recurrent 0.001, orth",
    ):
        start(small(), tmp_path / "run")
    assert all(torch.equal(before[0][name], before[1][name]) for name in before[0])
    assert checkpoint.steps(tmp_path / "run" / "checkpoints")[-1] == 5
    assert "DivergedError" in (tmp_path / "run" / "log.txt").read_text()


def test_a_gradient_whose_norm_overflows_is_clipped_and_not_lost(small: Small) -> None:
    settings = {"optimizer__clip_norm": 0.5, "optimizer__rest": {"kind": "sgd", "lr": 1.0}}
    config = small(**settings, optimizer__recurrent={"kind": "sgd", "lr": 1.0})
    moved = []
    for scale in (1e4, 1e22):
        engine = Engine(config, make_task(config))
        before = [p.detach().clone() for p in engine.parameters]
        for parameter in engine.parameters:
            parameter.register_hook(lambda gradient, scale=scale: gradient * scale)
        engine.step(0, 0)
        moved.append([b - p.detach() for b, p in zip(before, engine.parameters, strict=True)])
    torch.testing.assert_close(moved[1], moved[0], rtol=1e-4, atol=1e-6)
    assert torch.linalg.vector_norm(torch.cat([m.flatten() for m in moved[1]])) == pytest.approx(0.5, rel=1e-3)
    engine = Engine(small(), make_task(small()))
    for parameter in engine.parameters:
        parameter.register_hook(lambda gradient: gradient * 1e22)
    with pytest.raises(DivergedError, match="gradient norm inf"):  # its squares would be an optimizer's for ever
        engine.step(0, 0)


def test_a_second_sigint_leaves_at_once() -> None:
    before = signal.getsignal(signal.SIGINT)  # ignored where the tests run in the background of a shell
    with StopRequest() as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop.signal == signal.SIGINT
        signal.raise_signal(signal.SIGTERM)
        assert stop.signal == signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_run_of_a_gpu_is_evaluated_and_resumed_without_one(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    start(small(steps=10), run)
    saved = checkpoint.load(run / "checkpoints" / "step-10")
    saved.state["config"]["device"] = saved.state["numerics"]["device"] = "cuda"
    checkpoint.save(run / "checkpoints", 10, saved.model, saved.training, saved.state)
    (run / "config.json").write_text(json.dumps(saved.state["config"]))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    capsys.readouterr()
    assert main(["eval", str(run), "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["step"] == 10
    assert "was trained on cuda, and PyTorch finds no GPU here: on the cpu" in said.err
    on = ["resume", str(run), "--iterations", "12", "--quiet", "--tensorboard", "off"]
    assert main(on) == 2
    assert "expected --device cpu" in capsys.readouterr().err
    assert main([*on, "--device", "cpu"]) == 0
    assert "may not resume bit for bit: device cpu instead of cuda" in capsys.readouterr().err
    assert json.loads((run / "summary.json").read_text())["steps"] == 12


def test_the_best_of_the_checkpoint_before_is_kept(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest may be damaged later, and then the one before goes on."""
    values = iter([5.0, 3.0, 4.0, 2.0])

    def measured(self: Engine, split: str, *others: Any) -> dict[str, float]:
        loss = next(values)
        return {"loss": loss, "recall": -loss}

    monkeypatch.setattr(Engine, "evaluate", measured)
    start(small(steps=8, eval_every=2, checkpoint_every=2, optimizer__average=None), tmp_path / "run")
    steps = checkpoint.steps(tmp_path / "run/checkpoints")
    assert steps == [4, 6, 8]  # 8 is the best, and 4 was when 6 was saved
