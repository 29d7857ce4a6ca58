"""List the models: name, equation, source, and how many parameters they train.

With --task the sizes of the paper for that task are counted, or any other with --hidden. Options of a model are its
own defaults there; docs/models has a page for each.

Examples:
    scornn models                               every model in two lines
    scornn models --task mnist                  the paper's sizes on MNIST, and their parameters
    scornn models --task copying --hidden 128   all of them at one size
"""

import json
import textwrap
from dataclasses import dataclass
from typing import Annotated, Any

from scornn.errors import UsageError
from scornn.program.cli._options import at_least_one, flag, option, parse, task_names

_WIDTH, _INDENT = 100, 15


@dataclass(frozen=True)
class Flags:
    task: Annotated[str | None, option("TASK", f"{', '.join(task_names())}.")] = None
    hidden: Annotated[int | None, option("N", "State size n.")] = None
    json: Annotated[bool, flag("Print JSON.")] = False


def main(argv: list[str]) -> int:
    flags = parse(Flags, argv, "models", __doc__)
    if flags.task is not None:
        from scornn.program.tasks import TaskForm
        from scornn.program.tasks.catalogue import find

        if TaskForm.of(flags.task, find(flags.task).kind) is None:
            raise UsageError(f"--task {flags.task}: its sizes are those of your files; `scornn train` counts them")
    at_least_one(hidden=flags.hidden)
    models = describe(flags.task, flags.hidden)
    if flags.json:
        print(json.dumps(models, indent=2, ensure_ascii=False))
        return 0
    for model in models:
        lines = [f"{model['summary']} ({model['source']})", model["equation"]]
        if flags.task and not model["counts"]:
            lines.append(f"{flags.task}: the paper gives no size; --hidden N counts any")
        for count in model["counts"]:
            said = f"{count['parameters']:,} parameters" if count["parameters"] else count["why"]
            options = "".join(f", {key}={value}" for key, value in count["options"].items())
            lines.append(f"{count['task']}, n={count['hidden']}{options}: {said}")
        wrapped = [part for line in lines for part in textwrap.wrap(line, _WIDTH - _INDENT)]
        print(
            textwrap.indent("\n".join(wrapped), " " * _INDENT).replace(" " * _INDENT, f"{model['name']:<{_INDENT}}", 1)
        )
    return 0


def describe(task: str | None, hidden: int | None) -> list[dict[str, Any]]:
    """Every model, with its parameters on a task: at the paper's sizes, or at one size for all."""
    from scornn.nn.catalogue import MODELS

    if hidden is not None and task is None:
        task = "mnist"
    described = []
    for name, model in MODELS.items():
        sizes: list[tuple[int, dict[str, Any]]] = []
        if task is not None:
            sizes = _paper_sizes(task, name) if hidden is None else [(hidden, {})]
        counts = [_count(name, str(task), n, options) for n, options in sizes]
        facts = {"summary": model.summary, "equation": model.equation, "source": model.source}
        described.append({"name": name, **facts, "class": model.layer.__name__, "counts": counts})
    return described


def _paper_sizes(task: str, model: str) -> list[tuple[int, dict[str, Any]]]:
    from scornn.program.paper.presets import presets
    from scornn.program.tasks.catalogue import TASKS, entry_of
    from scornn.program.train.config import build

    found: list[tuple[int, dict[str, Any]]] = []
    for preset in presets().values():
        same = entry_of(preset.config["task"]) is TASKS[task] and preset.config["model"]["name"] == model
        if same and not preset.beyond:
            settings = build({"threads": 1, **preset.config}).model
            counted = {key: value for key, value in settings.options.items() if key not in ("rho", "forget_bias")}
            if (settings.hidden, counted) not in found:
                found.append((settings.hidden, counted))
    return sorted(found, key=lambda size: size[0])


def _count(model: str, task: str, hidden: int, options: dict[str, Any]) -> dict[str, Any]:
    from scornn.nn import SequenceModel
    from scornn.nn.catalogue import build, parameter_count
    from scornn.program.tasks import TASKS

    inputs, outputs = TASKS[task].kind.input_size, TASKS[task].kind.output_size
    described: dict[str, Any] = {"task": task, "hidden": hidden, "options": options, "parameters": None}
    try:
        layer = build(model, inputs, hidden, device="meta", **options)
    except ValueError as error:
        return described | {"why": str(error)}
    return described | {"parameters": parameter_count(SequenceModel(layer, outputs))}
