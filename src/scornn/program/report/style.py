"""How figures look and become markup: one palette, one style, SVG that a light or dark page themes.

`svg` gives markup to inline in a page that is light or dark (colours become CSS variables), or a file of its
own. The palette has eight colours, at contrast 3 or more with the page and told apart under each
kind of colour blindness; models that share a colour have another marker, and no figure of the paper has two of them.
"""

import hashlib
import html
import io
import math
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import matplotlib
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

LIGHT = ("#223cb7", "#c88400", "#007153", "#7d2476", "#95410e", "#032219", "#4b96d8", "#ff3d8f")
DARK = ("#77a1ff", "#f9dd3a", "#2cd276", "#bd92b8", "#d7571b", "#f5fff6", "#735aff", "#bf0099")
INK, MUTED, GRID = "#1d232b", "#57606c", "#dde2e8"
SIZE = (5.2, 3.1)
"""Inches of a panel. On a page a figure is never shown smaller than it is drawn, so that its text stays legible; one of
this width fits a phone, a wider one is scrolled."""

_STYLE = {
    "text.parse_math": False,
    "font.family": ["DejaVu Sans"],
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": MUTED,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.titlecolor": INK,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.formatter.useoffset": False,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "legend.frameon": False,
    "legend.handlelength": 3.5,  # so that one sees which dashes they are
    "svg.hashsalt": "scornn",
}


def svg(figure: Figure, *, alt: str, themed: bool = True) -> str:
    """Themed: an ``<svg>`` to inline, in the page's font and colours ``var(--…)``. Otherwise a whole file, which brings
    colours for a light and for a dark page and lets it show through."""
    buffer = io.StringIO()
    with style({"svg.fonttype": "none" if themed else "path"}):
        _lay_out(figure)
        figure.savefig(
            buffer,
            format="svg",
            facecolor="none",
            metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")),
        )
    text = buffer.getvalue()
    start = text.index("<svg")
    opening_end = text.index(">", start)
    opening = text[start:opening_end]
    described = f' role="img" aria-label="{html.escape(alt)}"'
    if not themed:
        dark = f"@media (prefers-color-scheme: dark){{:root{{{declarations()[1]}--paper:#0d1117}}}}</style>"
        body = _with_variables(text[opening_end:], "var({}, {})").replace("</style>", dark, 1)
        return text[:start] + opening + described + body
    viewbox = re.search(r'viewBox="0 0 ([\d.]+) [^"]*"', opening)
    assert viewbox is not None
    least = f' style="min-width:{math.ceil(float(viewbox[1]))}px"'
    return f"<svg {viewbox[0]}{described}{least}{_themed(text[opening_end:].rstrip())}"


def _lay_out(figure: Figure) -> None:
    """Fit the layout to what will be drawn. Left to ``savefig``, that takes a whole drawing of its own."""
    engine = figure.get_layout_engine()
    if engine is not None:
        FigureCanvasSVG(figure)
        figure.dpi = 72  # that of the drawing
        engine.execute(figure)
        figure.set_layout_engine(None)


def css_variables() -> str:
    """The palette as rules for `svg`'s variables, light and then dark."""
    light, dark = declarations()
    return f":root{{{light}}}@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}"


def declarations() -> tuple[str, str]:
    """The palette as declarations, light and dark."""
    light, dark = (*LIGHT, INK, MUTED, GRID), (*DARK, "#e6e9ed", "#a3adb8", "#323a44")
    return _declared(light), _declared(dark)


def _declared(colours: tuple[str, ...]) -> str:
    return "".join(f"{name}:{value};" for name, value in zip(_NAMES, colours, strict=True))


_NAMES = (*(f"--c{k}" for k in range(len(LIGHT))), "--ink", "--muted", "--grid")


def _themed(body: str) -> str:
    """Colours to variables, fonts to the page's, and ids that are unique on a page of several figures."""
    prefix = "f" + hashlib.sha256(body.encode()).hexdigest()[:8] + "-"
    body = re.sub(r"<style.*?</style>", "", body, flags=re.DOTALL)
    parts = re.split(r"(<[^>]*>)", body)
    for k in range(1, len(parts), 2):
        tag = parts[k]
        tag = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}", tag)
        tag = re.sub(r"font: ([\d.]+px)[^;\"]*", r"font-size: \1", tag)
        tag = re.sub(r"font-family: [^;\"]*;? ?", "", tag)
        parts[k] = _with_variables(tag, "var({})")
    return "".join(parts)


def _with_variables(text: str, form: str) -> str:
    for name, value in zip((*_NAMES, "--paper"), (*LIGHT, INK, MUTED, GRID, "#ffffff"), strict=True):
        text = text.replace(value, form.format(name, value))
    return text


@contextmanager
def style(more: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Our rc settings. Matplotlib's warnings of odd glyphs and crowded axes say nothing to the page's reader."""
    settings: Any = {**_STYLE, **(more or {})}
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


def colour_of(index: int) -> str:
    """The colour at a place in the palette, which goes round."""
    return LIGHT[index % len(LIGHT)]


def label_decades(axis: Any) -> None:
    """10⁻³ in Unicode: matplotlib's own labels are math text, which run names must not become."""
    superscript = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
    axis.set_major_formatter(lambda v, _: "10" + str(round(math.log10(v))).translate(superscript) if v > 0 else "")
    axis.set_minor_formatter(NullFormatter())


def short(label: str) -> str:
    """A label that fits, cut in the middle, where names differ least; a leading underscore would hide it."""
    label = label if len(label) <= 48 else f"{label[:23]}…{label[-24:]}"
    return " " + label if label.startswith("_") else label
