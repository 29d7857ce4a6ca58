"""Formulas become MathML when the pages are built: browsers show it by themselves, offline and without JavaScript."""

import re
from typing import Any

from docutils import nodes
from latex2mathml import converter

SPACE = re.compile(r"\\q?quad\b")
BAR = '<mo stretchy="false">&#x0007C;</mo>'
SIGN = re.compile(r"(<mrow>|(?<!&#x00029;)(?<!&#x0007C;)</mo>)<(m[io])>(&#x02212;|±)</\2>")


def convert(latex: str, display: str = "inline") -> str:
    """MathML of a formula, spaced as in TeX: ∼ is a relation, |z| has no gaps, a minus after an operator is a sign."""
    mathml = converter.convert(latex, display=display).replace("<mi>&#x0007E;</mi>", "<mo>&#x0223C;</mo>")
    mathml = SIGN.sub(r'\1<mo form="prefix">\3</mo>', mathml)
    return mathml.replace(BAR, BAR.replace(">", ' lspace="0" rspace="0">', 1))


def inline(writer: Any, node: nodes.math) -> None:
    """A formula in a line of text."""
    writer.body.append(convert(node.astext()))
    raise nodes.SkipNode


def displayed(writer: Any, node: nodes.math_block) -> None:
    """Formulas on a line of their own; where the page is narrow each has its own line, and scrolls if need be."""
    formulas = "".join(f"<div>{convert(part, 'block')}</div>" for part in SPACE.split(node.astext()))
    writer.body.append(f'<div class="math-displayed">{formulas}</div>')
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, bool]:
    """Make this the renderer of formulas."""
    app.add_html_math_renderer("mathml", (inline, None), (displayed, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
