"""Train a model on a task, with the paper's settings unless told otherwise.

Without options the run is the paper's: sizes, learning rates,
rho, batch and length of that model on that task. Settings are taken from the paper, then from --config, then
from the options, then from --set; the result is written to RUN/config.json, and --config RUN/config.json
repeats the run bit for bit.

Examples:
    scornn train copying                              the paper's scoRNN, n=190, T=1000
    scornn train copying --until recall=0.99          stop as soon as it is solved
    scornn train adding --length 200 --model lstm     another model, a shorter problem
    scornn train pmnist --hidden 512 --epochs 10 --data ~/datasets
    scornn train mnist --start-from runs/mnist-scornn-170-s5544 --epochs 2 --lr 1e-4 --recurrent-lr 1e-5
    scornn train copying --set optimizer.rest.kind=adam --set model.options.num_layers=2
    scornn train mine --plugin mine.py                a task or model of your own, whose code is run
    torchrun --nproc-per-node 2 -m scornn train mnist --out runs/two

Ctrl-C saves and says how to go on; `scornn resume RUN` continues as if nothing had happened.
"""

import os
import shlex
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_type_hints

import tyro

from scornn.errors import UsageError
from scornn.program.cli._options import TASKS, Key, TensorBoard, absolute, filled, flag, option, wanted
from scornn.program.data.locate import expanded

if TYPE_CHECKING:
    from scornn.program.train.config import Config
    from scornn.program.train.program import Result

_EVALUATIONS = 10
_LEAST_GAIN = 0.02
"""Of the baseline's loss: with less nothing was learned to speak of."""


@dataclass(frozen=True)
class Flags:
    task: Annotated[
        str | None, tyro.conf.Positional, option("[TASK]", f"{', '.join(TASKS)}, or one of a --plugin.")
    ] = None
    model: Annotated[str | None, option("NAME", "The layer; scornn unless told otherwise."), Key("model.name")] = None
    hidden: Annotated[int | None, option("N", "State size n."), Key("model.hidden")] = None
    rho: Annotated[
        int | str | None,
        option("R", "How many entries of D are -1: 0 to n, or a fraction such as n/2."),
        Key("model.options.rho"),
    ] = None
    read: Annotated[
        str | None, option("R", "Of each sequence the last state, or the mean of all."), Key("model.read")
    ] = None
    length: Annotated[int | None, option("T", "Length T of copying and adding."), Key("task.length")] = None
    iterations: Annotated[int | None, option("N", "Train for N steps."), Key("steps")] = None
    epochs: Annotated[int | None, option("N", "Train for N epochs."), Key("epochs")] = None
    batch: Annotated[int | None, option("N", "Samples in a batch."), Key("task.batch")] = None
    lr: Annotated[
        float | None, option("X", "Learning rate of all but the recurrent parameters."), Key("optimizer.rest.lr")
    ] = None
    recurrent_lr: Annotated[float | None, option("X", "Learning rate of A."), Key("optimizer.recurrent.lr")] = None
    start_from: Annotated[str | None, option("RUN", "Begin with the newest weights of another run.")] = None
    start_weights: Annotated[
        Literal["raw", "average"], tyro.conf.arg(help="Which of its weights: as they were stepped, or their average.")
    ] = "raw"
    seed: Annotated[int | None, option("S", "Seed of weights, data and order."), Key("seed")] = None
    threads: Annotated[int | None, option("N", "Threads; part of what makes a run repeatable."), Key("threads")] = None
    backend: Annotated[str | None, option("B", "auto, or one of those that `scornn doctor` lists."), Key("backend")] = (
        None
    )
    device: Annotated[str | None, option("D", "cpu or cuda."), Key("device")] = None
    dataset: Annotated[
        str | None, option("NAME", "mnist or fashion, for the tasks mnist and pmnist."), Key("task.dataset")
    ] = None
    corpus: Annotated[str | None, option("NAME", "timit, iban or folder, for the task speech."), Key("task.corpus")] = (
        None
    )
    allow_partial: Annotated[
        bool, flag("Go on without what is missing of a corpus, listing it."), Key("task.allow_partial")
    ] = False
    plugin: Annotated[
        tuple[str, ...], option("FILE", "A Python file with tasks or models of your own. Its code is run.")
    ] = ()
    data: Annotated[str | None, option("DIR", "Folder with the data files; else SCORNN_DATA, else the cache.")] = None
    out: Annotated[str | None, option("RUN", "Run directory; else runs/TASK-MODEL-N-sSEED.")] = None
    name: Annotated[
        str | None, option("NAME", "A label for tables and for the directory under runs/."), Key("name")
    ] = None
    eval_every: Annotated[
        int | None, option("N", "Evaluate every N steps; 0: at the end of each epoch."), Key("eval_every")
    ] = None
    checkpoint_every: Annotated[int | None, option("N", "Save every N steps."), Key("checkpoint_every")] = None
    until: Annotated[
        tuple[str, ...],
        option("METRIC=X", "End early once the test split is as good as this, such as recall=0.99 or loss=0.001."),
    ] = ()
    config: Annotated[str | None, option("FILE", "Settings in TOML or JSON.")] = None
    set: Annotated[tuple[str, ...], option("KEY=VALUE", "Any setting by its key in config.json.")] = ()
    tensorboard: TensorBoard = "auto"
    quiet: Annotated[bool, flag("Show no progress.")] = False


def main(flags: Flags) -> int:
    from scornn.program.progress import log
    from scornn.program.recipes.presets import resolve
    from scornn.program.train.program import start
    from scornn.program.train.tables import lookup

    given = settings(flags)
    config, origin = resolve(given)
    config = looking_often(config, given)
    if origin and not flags.quiet and os.environ.get("RANK", "0") == "0":
        log.info(filled(origin))
    result = start(
        config,
        Path(flags.out) if flags.out else None,
        start_from=Path(flags.start_from) if flags.start_from else None,
        start_weights=flags.start_weights,
        widen=lookup(given, "model.hidden") is not None,  # a size that nobody chose is the preset's
        quiet=flags.quiet,
        tensorboard=wanted(flags.tensorboard),
    )
    return finish(result, flags.quiet)


def finish(result: "Result", quiet: bool) -> int:
    """Say how the run ended, and what can be done now."""
    from scornn.program.progress import log, tell

    path = shlex.quote(str(result.path))
    if result.first and result.signal:
        name = signal.Signals(result.signal).name
        tell(f"{name}: saved at step {result.summary['steps']}; continue with: scornn resume {path}", sys.stderr)
    elif result.first and not quiet:
        headline, last = result.summary["headline"], result.summary["final"]["test"]
        best, chosen = result.summary["best"], result.summary["best_by_valid"]
        said = f"done: test {headline} is {last[headline]:.4g}"
        said += f"; the best was {best['value']:.4g}, at step {best['step']}"
        if chosen:
            said += f"; where validation was best, at step {chosen['step']}, it was {chosen['value']:.4g}"
        if "average" in result.summary:
            average = result.summary["average"]
            final, top = average["final"]["test"][headline], average["best"]["value"]
            said += f"; with averaged weights it is {final:.4g}, and the best was {top:.4g}"
        log.info(filled(said))
        both = [result.summary, *([result.summary["average"]] if "average" in result.summary else [])]
        loss, baseline = min(figures["final"]["test"]["loss"] for figures in both), result.summary["baseline"]
        if baseline is not None and loss > baseline - _LEAST_GAIN * abs(baseline):
            told = f"the test loss is {loss:.4g}, that of guessing {baseline:.4g}"
            if (trained := _train_loss(result.path)) is not None and trained < baseline - abs(baseline) / 2:
                told = f"it knows the training data by heart, their loss is {trained:.4g}: {told}; train less"
            else:
                told = f"no better than guessing yet: {told}; train longer, or see what helps in docs/faq.md"
            log.info(filled(told))
        elif (chosen or best)["step"] == result.summary["steps"]:
            later = f"scornn resume {path} --iterations {2 * best['step']}"
            log.info(filled(f"the last evaluation was the best, so it may still improve: {later}"))
        log.info(f"see: scornn report {path}")
    return result.exit_code


def _train_loss(path: Path) -> float | None:
    """The last loss of training that a run recorded."""
    import msgspec

    lines = map(msgspec.json.decode, (path / "metrics.jsonl").read_bytes().splitlines())
    return next((line["loss"] for line in reversed([*lines]) if line["split"] == "train"), None)


def looking_often(config: "Config", given: Mapping[str, Any]) -> "Config":
    """A run whose length was given in steps, or is no preset's, is evaluated ten times at least, unless told how often.

    Where ``eval_every`` is 0 that is at the end of each epoch, which may be a few steps.
    """
    import msgspec

    every = max(1, (config.steps or 0) // _EVALUATIONS)
    own = given.get("steps") is not None or (config.steps is not None and not config.eval_every)
    if not own or "eval_every" in given or "format" in given or 0 < config.eval_every <= every:
        return config
    return msgspec.structs.replace(config, eval_every=every)


def settings(flags: Flags) -> dict[str, Any]:
    """The tables that file, options and --set make together."""
    from scornn.program import plugins
    from scornn.program.tasks import catalogue
    from scornn.program.train.tables import assign, lookup, merge, parse_setting, read

    file = read(Path(flags.config)) if flags.config else {}
    given: dict[str, Any] = {}
    by_key: dict[str, Any] = {}
    for key, value in map(parse_setting, flags.set):
        _once(by_key, key, value, "--set")
    if "plugins" in by_key:
        raise UsageError("--set plugins: a plugin is named with --plugin FILE, which runs it")
    loaded = plugins.load(flags.plugin) or plugins.of_config(file)
    if loaded:
        given["plugins"] = loaded
    if flags.task is not None:
        given["task"] = catalogue.find(flags.task).table()
        for source, table in ((flags.config, file), ("--set", by_key)):
            for key, value in given["task"].items():
                if (named := lookup(table, f"task.{key}")) not in (None, value, flags.task):
                    what = named if key == "name" else f"task.{key} = {str(named).lower()}"
                    raise UsageError(f"TASK is {flags.task}, but {source} is for {what}")
    elif "task" not in file:
        raise UsageError(f"TASK is missing: expected one of {', '.join(catalogue.TASKS)}, or a --config that names it")
    for name, declared in get_type_hints(type(flags), include_extras=True).items():
        value = getattr(flags, name)
        if value is not None and value is not False:
            for key in (mark.name for mark in get_args(declared) if isinstance(mark, Key)):
                assign(given, key, value)
    if flags.data is not None:
        given["data"] = str(absolute(flags.data))
    for text in flags.until:
        key, value = parse_setting(text, "--until", "loss=0.001")
        _once(given, f"stop_when.{key}", value, "--until")
    merged = merge(file, given, by_key)
    if isinstance(folder := merged.get("data"), str):  # a run is resumed from elsewhere
        merged["data"] = str(expanded(folder).absolute())
    return merged


def _once(table: dict[str, Any], key: str, value: Any, flag: str) -> None:
    from scornn.program.train.tables import assign, lookup

    if lookup(table, key) is not None:
        raise UsageError(f"{flag} gives {key} twice; expected once")
    assign(table, key, value)
