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
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from scornn.errors import UsageError
from scornn.program.cli._options import TensorBoard, absolute, filled, flag, option, parse, task_names, wanted
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
        str | None, tyro.conf.Positional, option("[TASK]", f"{', '.join(task_names())}, or one of a --plugin.")
    ] = None
    model: Annotated[str | None, option("NAME", "The layer; scornn unless told otherwise.")] = None
    hidden: Annotated[str | None, option("N", "State size n.")] = None
    rho: Annotated[str | None, option("R", "How many entries of D are -1: 0 to n, or a fraction such as n/2.")] = None
    length: Annotated[str | None, option("T", "Length T of copying and adding.")] = None
    iterations: Annotated[str | None, option("N", "Train for N steps.")] = None
    epochs: Annotated[str | None, option("N", "Train for N epochs.")] = None
    batch: Annotated[str | None, option("N", "Samples in a batch.")] = None
    lr: Annotated[str | None, option("X", "Learning rate of all but the recurrent parameters.")] = None
    recurrent_lr: Annotated[str | None, option("X", "Learning rate of A.")] = None
    start_from: Annotated[str | None, option("RUN", "Begin with the newest weights of another run.")] = None
    start_weights: Annotated[
        Literal["raw", "average"], tyro.conf.arg(help="Which of its weights: as they were stepped, or their average.")
    ] = "raw"
    seed: Annotated[str | None, option("S", "Seed of weights, data and order.")] = None
    threads: Annotated[str | None, option("N", "Threads; part of what makes a run repeatable.")] = None
    backend: Annotated[str | None, option("B", "auto, or one of those that `scornn doctor` lists.")] = None
    device: Annotated[str | None, option("D", "cpu or cuda.")] = None
    dataset: Annotated[str | None, option("NAME", "mnist or fashion, for the tasks mnist and pmnist.")] = None
    corpus: Annotated[str | None, option("NAME", "timit, iban or folder, for the task speech.")] = None
    allow_partial: Annotated[bool, flag("Go on without what is missing of a corpus, listing it.")] = False
    plugin: Annotated[
        tuple[str, ...],
        option("FILE", "A Python file with tasks or models of your own. Its code is run."),
    ] = ()
    data: Annotated[str | None, option("DIR", "Folder with the data files; else SCORNN_DATA, else the cache.")] = None
    out: Annotated[str | None, option("RUN", "Run directory; else runs/TASK-MODEL-N-sSEED.")] = None
    name: Annotated[str | None, option("NAME", "A label for tables and for the directory under runs/.")] = None
    eval_every: Annotated[str | None, option("N", "Evaluate every N steps; 0: at the end of each epoch.")] = None
    checkpoint_every: Annotated[str | None, option("N", "Save every N steps.")] = None
    until: Annotated[
        tuple[str, ...],
        option("METRIC=X", "End early once the test split is as good as this, such as recall=0.99 or loss=0.001."),
    ] = ()
    config: Annotated[str | None, option("FILE", "Settings in TOML or JSON.")] = None
    set: Annotated[tuple[str, ...], option("KEY=VALUE", "Any setting by its key in config.json.")] = ()
    tensorboard: TensorBoard = "auto"
    quiet: Annotated[bool, flag("Show no progress.")] = False


_NUMBERS = {
    "hidden": "model.hidden",
    "rho": "model.options.rho",
    "length": "task.length",
    "iterations": "steps",
    "epochs": "epochs",
    "batch": "task.batch",
    "lr": "optimizer.rest.lr",
    "recurrent_lr": "optimizer.recurrent.lr",
    "seed": "seed",
    "threads": "threads",
    "eval_every": "eval_every",
    "checkpoint_every": "checkpoint_every",
}
_WORDS = {
    "model": "model.name",
    "backend": "backend",
    "device": "device",
    "dataset": "task.dataset",
    "corpus": "task.corpus",
    "name": "name",
}


def main(argv: list[str]) -> int:
    flags = parse(Flags, argv, "train", __doc__)

    from scornn.program.recipes.presets import resolve
    from scornn.program.train.program import start
    from scornn.program.train.progress import tell
    from scornn.program.train.tables import lookup

    given = settings(flags)
    config, origin = resolve(given)
    config = looking_often(config, given)
    if origin and not flags.quiet and os.environ.get("RANK", "0") == "0":
        tell(filled(origin))
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
    from scornn.program.train.progress import tell

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
        tell(filled(said))
        both = [result.summary, *([result.summary["average"]] if "average" in result.summary else [])]
        loss, baseline = min(figures["final"]["test"]["loss"] for figures in both), result.summary["baseline"]
        if baseline is not None and loss > baseline - _LEAST_GAIN * abs(baseline):
            told = f"no better than guessing yet: the test loss is {loss:.4g}, that of guessing {baseline:.4g}"
            tell(filled(f"{told}; train longer, or see what helps in docs/faq.md"))
        tell(f"see: scornn report {path}")
    return result.exit_code


def looking_often(config: "Config", given: Mapping[str, Any]) -> "Config":
    """A run whose length was given in steps is evaluated ten times at least, unless that was given too."""
    import msgspec

    every = max(1, (config.steps or 0) // _EVALUATIONS)
    if given.get("steps") is None or "eval_every" in given or "format" in given or 0 < config.eval_every <= every:
        return config
    return msgspec.structs.replace(config, eval_every=every)


def settings(flags: Flags) -> dict[str, Any]:
    """The tables that file, options and --set make together."""
    from scornn.program import plugins
    from scornn.program.tasks.catalogue import TASKS, find
    from scornn.program.train.tables import assign, lookup, merge, parse_setting, parse_value, read

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
        given["task"] = find(flags.task).table()
        for source, table in ((flags.config, file), ("--set", by_key)):
            for key, value in given["task"].items():
                if (named := lookup(table, f"task.{key}")) not in (None, value, flags.task):
                    what = named if key == "name" else f"task.{key} = {str(named).lower()}"
                    raise UsageError(f"TASK is {flags.task}, but {source} is for {what}")
    elif "task" not in file:
        raise UsageError(f"TASK is missing: expected one of {', '.join(TASKS)}, or a --config that names it")
    for option_, key in (_NUMBERS | _WORDS).items():
        value = getattr(flags, option_)
        if value is not None:
            assign(given, key, parse_value(value) if option_ in _NUMBERS else value)
    if flags.allow_partial:
        assign(given, "task.allow_partial", True)
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
