"""Notebooks as pages: the cells are run when the pages are built, so what is shown is what came out.

Cells are plain Python and run in one process, in a folder that goes when the notebook ends; no kernel is needed. Shown
are what a cell prints, the value of its last line, and the figures of pyplot, as in Jupyter. Figures are SVG in the
page's own colours, light or dark. A cell that draws has a sentence for who cannot see it in its metadata, ``alt``, and
draws a model in its colour.

By hand because myst-nb would add 33 packages and a kernel, and leave to code of ours what is most of this: figures
in the page's colours, their alternative texts, the check of a model's colour.
"""

import ast
import json
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from docutils import nodes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter
from myst_parser.parsers.sphinx_ import MystParser

from scornn.nn import MODELS, catalogue
from scornn.program.report.style import LIGHT, colour_of, declarations, label_decades, style, svg

FILE = "notebooks.css"


class NotebookError(Exception):
    """A cell that cannot be run."""


def run(path: Path) -> str:
    """Run a notebook; return it with its outputs as a MyST page."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    names: dict[str, Any] = {"__name__": "__main__"}
    page = []
    with _elsewhere(), style({"axes.prop_cycle": matplotlib.cycler(color=LIGHT)}):
        for number, cell in enumerate(cells, 1):
            source = "".join(cell["source"])
            if cell["cell_type"] == "markdown":
                page.append(source)
                continue
            page.append(f"```python\n{source}\n```")
            try:
                page += _outputs(source, names, cell["metadata"].get("alt"))
            except Exception as error:
                raise NotebookError(f"{path}, cell {number}: {type(error).__name__}: {error}") from error
    page.append(f"{{download}}`This page as a notebook <{path.name}>`")
    return "\n\n".join(page)


def _outputs(source: str, names: dict[str, Any], alt: str | None) -> Iterator[str]:
    tree, printed = ast.parse(source), StringIO()
    last = tree.body[-1] if tree.body else None
    if isinstance(last, ast.Expr) and not source.rstrip().endswith(";"):
        tree.body[-1] = ast.copy_location(ast.Assign([ast.Name("_", ast.Store())], last.value), last)
        ast.fix_missing_locations(tree)
        names["_"] = None
    else:
        last = None
    with redirect_stdout(printed):
        exec(compile(tree, "cell", "exec"), names)
        if last is not None and names["_"] is not None:
            print(repr(names["_"]))
    if printed.getvalue():
        yield f"```text\n{printed.getvalue().rstrip()}\n```"
    for number in plt.get_fignums():
        if not alt:
            raise ValueError("it draws, and its metadata has no alt")
        figure = plt.figure(number)
        _check_colours(figure)
        for axis in [axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)]:
            if isinstance(axis.get_major_formatter(), LogFormatter):  # not where the cell gave its own labels
                label_decades(axis)
        markup = svg(figure, alt=alt)
        width = f"max-width:{7 * figure.get_figwidth():g}rem"  # an inch is six: text a little larger than it is drawn
        yield f'```{{raw}} html\n<figure class="notebook" style="{width}">{markup}</figure>\n```'
    plt.close("all")


def _check_colours(figure: Figure) -> None:
    """A line that is named after a model has the colour that the model has in every report."""
    for line in [line for axes in figure.axes for line in axes.lines]:
        for known in map(catalogue.look, MODELS):
            named = re.match(rf"{re.escape(known.label)}\b", str(line.get_label()))
            if named and to_hex(line.get_color()) != colour_of(known.colour):
                raise ValueError(f"the line '{line.get_label()}' must be C{known.colour}, the colour of {known.label}")


@contextmanager
def _elsewhere() -> Iterator[None]:
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(here)


class NotebookParser(MystParser):
    """Reads ``.ipynb`` as the Markdown that it runs to."""

    supported = ("notebook",)

    def parse(self, inputstring: str, document: nodes.document) -> None:
        """Run it, then read it."""
        super().parse(run(Path(document["source"])), document)


def _write_colours(app: Any) -> None:
    """The palette as variables: light, and dark where the theme or the system is."""
    light, dark = declarations()
    rules = [
        f"body{{--paper:#fff;{light}}}",
        f'body[data-theme="dark"]{{--paper:#131416;{dark}}}',
        f'@media (prefers-color-scheme:dark){{body:not([data-theme="light"]){{--paper:#131416;{dark}}}}}',
        "figure.notebook{margin:1.2em 0;overflow-x:auto}",
        "figure.notebook svg{width:100%;max-width:46rem;height:auto}",
    ]
    static = Path(app.outdir, "_static")
    static.mkdir(parents=True, exist_ok=True)
    (static / FILE).write_text("\n".join(rules), encoding="utf-8")


def setup(app: Any) -> dict[str, bool]:
    """Read notebooks beside MyST pages."""
    app.add_source_suffix(".ipynb", "notebook")
    app.add_source_parser(NotebookParser)
    app.add_css_file(FILE)
    app.connect("builder-inited", _write_colours)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
