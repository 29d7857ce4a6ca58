"""Formulas become MathML when the pages are built: browsers show it by themselves, offline and without JavaScript."""

from typing import Any

from docutils import nodes
from latex2mathml.converter import convert


def inline(writer: Any, node: nodes.math) -> None:
    """A formula in a line of text."""
    writer.body.append(convert(node.astext()))
    raise nodes.SkipNode


def displayed(writer: Any, node: nodes.math_block) -> None:
    """A formula on a line of its own, which scrolls where the page is narrow."""
    latex = node.astext()
    if "\\\\" in latex and "\\begin{" not in latex:
        latex = rf"\begin{{aligned}}{latex}\end{{aligned}}"
    writer.body.append(f'<div class="math-displayed">{convert(latex, display="block")}</div>')
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, bool]:
    """Make this the renderer of formulas."""
    app.add_html_math_renderer("mathml", (inline, None), (displayed, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
