"""Formulas become MathML when the pages are built: browsers show it by themselves, offline and without JavaScript."""

import re
from typing import Any
from xml.etree.ElementTree import Element, tostring

from docutils import nodes
from latex2mathml import converter

SPACE = re.compile(r"\\q?quad\b")
FUNCTIONS = ("cos", "det", "exp", "ln", "log", "max", "sin", "tan", "tanh")
SIGNS = ("&#x02212;", "±")
ROWS = ("math", "mrow", "mtd", "msqrt")
SCRIPTED = ("msub", "msup", "msubsup")
OPENING, CLOSING, BAR, PRIME = "&#x00028;", "&#x00029;", "&#x0007C;", "&#x02032;"
TIGHT = (BAR, "&#x0002F;", "&#x02202;")  # | / ∂


def convert(latex: str, display: str = "inline") -> str:
    """MathML of a formula, spaced as in TeX: what a browser spaces otherwise is set here, sign by sign."""
    tree = converter.convert_to_element(latex, display=display)
    _space(tree, script=False)
    return tostring(tree, encoding="unicode").replace("&amp;#", "&#")


def _space(parent: Element, script: bool) -> None:
    """Set the spaces below an element; in a script there are none."""
    row, scripted = parent.tag in ROWS, parent.tag in SCRIPTED
    before: Element | None = None
    for place, part in enumerate(parent):
        if part.text == "&#x0007E;":  # ∼ is a relation
            part.tag, part.text = "mo", "&#x0223C;"
        if part.tag in ("msup", "msubsup") and part[-1].text == PRIME:
            _prime(part)
        after = parent[place + 1] if row and place + 1 < len(parent) else None
        core = part[0] if part.tag in SCRIPTED else part
        if scripted and place == 0:
            pass  # spaced with its scripts, as one
        elif core.text in FUNCTIONS:
            core.tag = "mo"
            _set(core, before is not None and before.tag not in ("mo", "mspace"), not _opens(after))
        elif core.text in SIGNS and row and _begins(before):
            core.tag = "mo"
            core.set("form", "prefix")
        elif core.tag == "mo" and (script or core.text in TIGHT):
            _set(core, False, False)
        _space(part, script or (scripted and place > 0))
        before = part


def _begins(before: Element | None) -> bool:
    """Whether a term begins after an element: a minus there is a sign."""
    return before is None or (before.tag == "mo" and before.text not in (CLOSING, BAR))


def _opens(part: Element | None) -> bool:
    return part is None or part.text == OPENING or part.tag == "mspace"


def _set(operator: Element, left: bool, right: bool) -> None:
    operator.set("lspace", "0.167em" if left else "0")
    operator.set("rspace", "0.167em" if right else "0")


def _prime(part: Element) -> None:
    """A prime is raised already: it stands beside its letter, not in a script, where it would be lost."""
    letter, *index, prime = part
    prime.tag = "mo"
    _set(prime, False, False)
    if not index:
        part.tag = "mrow"
        return
    base = Element("mrow")
    base.extend((letter, prime))
    part[:] = [base, *index]
    part.tag = "msub"


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
