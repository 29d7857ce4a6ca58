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
from scornn.program.cli._options import TASKS, at_least_one, flag, option

_WIDTH, _INDENT = 100, 15


@dataclass(frozen=True)
class Flags:
    task: Annotated[str | None, option("TASK", f"{', '.join(TASKS)}.")] = None
    hidden: Annotated[int | None, option("N", "State size n.")] = None
    json: Annotated[bool, flag("Print JSON.")] = False


def main(flags: Flags) -> int:
    if flags.task is not None:
        from scornn.program.tasks import TaskForm
        from scornn.program.tasks.catalogue import find

        if TaskForm.of(flags.task, find(flags.task).kind) is None:
            raise UsageError(f"--task {flags.task}: its sizes are those of your files; `scornn train` counts them")
    at_least_one(hidden=flags.hidden)
    models = describe(flags.task or ("mnist" if flags.hidden else None), flags.hidden)
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
        for number, line in enumerate(lines):
            first = " " * _INDENT if number else f"{model['name']:<{_INDENT}}"
            print(textwrap.fill(line, _WIDTH, initial_indent=first, subsequent_indent=" " * _INDENT))
    return 0


def describe(task: str | None, hidden: int | None) -> list[dict[str, Any]]:
    """Every model, with its parameters on a task: at the paper's sizes, or at one size for all."""
    from scornn.nn import SequenceModel
    from scornn.nn.catalogue import MODELS, build, parameter_count
    from scornn.program.recipes.presets import presets
    from scornn.program.tasks.catalogue import TASKS, entry_of
    from scornn.program.train import config

    def in_the_paper(name: str) -> list[tuple[int, dict[str, Any]]]:
        found: list[tuple[int, dict[str, Any]]] = []
        for preset in presets().values():
            same = entry_of(preset.config["task"]) is TASKS[str(task)] and preset.config["model"]["name"] == name
            if same and not preset.beyond:
                model = config.build({"threads": 1, **preset.config}).model
                options = {key: value for key, value in model.options.items() if key not in ("rho", "forget_bias")}
                if (model.hidden, options) not in found:
                    found.append((model.hidden, options))
        return sorted(found, key=lambda size: size[0])

    def count(name: str, n: int, options: dict[str, Any]) -> dict[str, Any]:
        kind = TASKS[str(task)].kind
        counted: dict[str, Any] = {"task": task, "hidden": n, "options": options, "parameters": None}
        try:
            layer = build(name, kind.input_size, n, device="meta", **options)
        except ValueError as error:
            return counted | {"why": str(error)}
        return counted | {"parameters": parameter_count(SequenceModel(layer, kind.output_size))}

    described = []
    for name, model in MODELS.items():
        sizes = [] if task is None else in_the_paper(name) if hidden is None else [(hidden, {})]
        facts = {"name": name, "summary": model.summary, "equation": model.equation, "source": model.source}
        described.append({**facts, "class": model.layer.__name__, "counts": [count(name, *size) for size in sizes]})
    return described
