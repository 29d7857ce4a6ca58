"""One self-contained HTML page from a list of sections: headings, prose, cards, tables, figures, sound.

Everything given as ``str`` is text and is escaped. Only `Figure.svg` is markup, made by `style.svg`. The page
holds no script and fetches nothing, and its content security policy allows neither.
"""

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources

import jinja2
import numpy as np
from markupsafe import Markup, escape

from scornn.program.report import curves, style
from scornn.program.report.curves import Line

MISSING = "—"
_METRICS = {
    "mse": "MSE",
    "mse_padded": "MSE (padded)",
    "segsnr": "SegSNR",
    "stoi": "STOI",
    "pesq": "PESQ",
}


@dataclass(frozen=True)
class Heading:
    text: str
    level: int = 2
    anchor: str = ""


@dataclass(frozen=True)
class Prose:
    """Paragraphs of plain text; ``kind="note"`` sets them apart as a remark on what is missing or differs."""

    paragraphs: Sequence[str]
    kind: str = ""


@dataclass(frozen=True)
class Card:
    """A headline: a value with what it is of and a line or two on how it stands."""

    label: str
    value: str
    unit: str = ""
    lines: Sequence[str] = ()
    line: Line | None = None


@dataclass(frozen=True)
class Cards:
    cards: Sequence[Card]


@dataclass(frozen=True)
class Cell:
    """A value that stands out (``strong``), or one that stands back (``quiet``)."""

    value: "str | float | None"
    kind: str = "strong"


Value = str | float | None | Cell


@dataclass(frozen=True)
class Table:
    """Rows of text or numbers under column names; None is shown as missing, quietly.

    ``text`` names the columns that are words (set left, as the first always is).
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Value]]
    caption: str
    text: Sequence[str] = ()


@dataclass(frozen=True)
class Figure:
    """Markup of `style.svg`, a caption, and a legend of (label, line) where the figure has none."""

    svg: str
    caption: str = ""
    legend: Sequence[tuple[str, Line]] = ()
    small: bool = False
    audio: bytes | None = field(default=None, repr=False)
    audio_label: str = ""


@dataclass(frozen=True)
class Figures:
    """Figures side by side where the screen is wide enough, with one legend for all."""

    figures: Sequence[Figure]
    legend: Sequence[tuple[str, Line]] = ()
    caption: str = ""


@dataclass(frozen=True)
class Details:
    """Preformatted text, folded until asked for."""

    summary: str
    text: str


Section = Heading | Prose | Cards | Table | Figure | Figures | Details


def render(title: str, sections: Sequence[Section], *, lead: str = "") -> str:
    """The whole page as text. Headings with an anchor, if there are several, are listed as its contents."""
    anchors = [s for s in sections if isinstance(s, Heading) and s.anchor]
    grouped = [Figures([s], s.legend) if isinstance(s, Figure) else s for s in sections]
    return _template().render(
        title=title,
        lead=lead,
        sections=[(type(s).__name__, s) for s in grouped],
        contents=anchors if len(anchors) > 1 else [],
        style=Markup(style.css_variables() + _read("page.css")),
    )


def panels(drawn: Sequence[curves.Panel], caption: str = "") -> Figures:
    """Panels of curves, each a figure of its own, with one legend and caption; those without a point are left out."""
    known = [p for p in drawn if any(np.size(x) for curve in p.curves for x, _ in curve.members)]
    legend = dict.fromkeys((curve.label, curve.line) for p in known for curve in p.curves)
    return Figures(
        [Figure(style.svg(curves.draw(p, legend=False), alt=curves.describe(p))) for p in curves.agreed(known)],
        list(legend),
        caption,
    )


def table(caption: str, rows: Sequence[Mapping[str, Value]], *, text: Sequence[str] = ()) -> Table:
    """A table from rows that map column names to values; columns without any value are left out."""
    columns = dict.fromkeys(column for row in rows for column in row)
    known = [c for c in columns if any(row.get(c) is not None for row in rows)]
    return Table(known, [[row.get(column) for column in known] for row in rows], caption, text)


def number(value: str | float | None) -> str:
    """A number as people read it: four digits, thousands in groups, powers of ten beyond; text as it is."""
    if value is None:
        return MISSING
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or value != value:
        return str(value)
    if float(value).is_integer() and abs(value) < 1e9:
        return f"{int(value):,}"
    if 9999.5 <= abs(value) < 1e7:
        return f"{value:,.0f}"
    if 1e-3 <= abs(value) < 1e4:
        return f"{value:,.4g}"
    mantissa, _, exponent = f"{value:.2e}".partition("e")
    return f"{mantissa}e{int(exponent)}" if exponent else mantissa


def words(metric: str, task: str = "") -> str:
    """The name of a metric as people write it; of speech it says whether it is padded."""
    if task == "speech" and metric in ("mse", "loss"):
        return f"{_METRICS['mse']} (not padded)"
    return _METRICS.get(metric, metric.replace("_", " "))


def duration(seconds: float | None) -> str:
    """``3725`` as "1 h 2 min"."""
    if seconds is None:
        return MISSING
    if seconds < 120:
        return f"{seconds:.3g} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


_SHORT, _LONG = 16, 60  # characters of words that stay on one line, and of those that want a wide column

_MARKERS = {
    "o": "M9.2 4a2.8 2.8 0 1 0 5.6 0a2.8 2.8 0 1 0 -5.6 0z",
    "s": "M9.5 1.5h5v5h-5z",
    "^": "M12 1l3 5.6h-6z",
    "v": "M12 7l3 -5.6h-6z",
    "D": "M12 .6l3.4 3.4l-3.4 3.4l-3.4 -3.4z",
    "d": "M12 .6l2 3.4l-2 3.4l-2 -3.4z",
    "P": "M11 1h2v2h2v2h-2v2h-2v-2h-2v-2h2z",
    "X": "M10 .8l2 2l2 -2l1.2 1.2l-2 2l2 2l-1.2 1.2l-2 -2l-2 2l-1.2 -1.2l2 -2l-2 -2z",
    "p": "M12 .7l3.1 2.3l-1.2 3.7h-3.8l-1.2 -3.7z",
    "*": "M12 .4l1 2.4h2.6l-2.1 1.6l.8 2.6l-2.3 -1.5l-2.3 1.5l.8 -2.6l-2.1 -1.6h2.6z",
}
"""Matplotlib's markers as paths around the middle of a swatch."""


def unbroken(text: str) -> str:
    """Running text whose numbers are parted neither at the hyphen of their exponent nor from their letter."""
    text = re.sub(r"(?<=\de)-(?=\d)", "\N{NON-BREAKING HYPHEN}", text)
    return re.sub(r"(?<=\b\w) = (?=[−-]?\d)", "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}", text)


def _swatch(line: Line) -> Markup:
    dashes = "" if line.dash == "-" else f' stroke-dasharray="{" ".join(str(1.6 * d) for d in line.dash[1])}"'
    colour = "var(--muted)" if line.muted else f"var(--c{line.colour % len(style.LIGHT)})"
    face = "var(--paper)" if line.hollow else colour
    marker = _MARKERS.get(line.marker, _MARKERS["o"])
    return Markup(
        f'<svg class="swatch" viewBox="0 0 24 8" aria-hidden="true"><line x1="1" y1="4" x2="23" y2="4"'
        f' style="stroke:{colour}"{dashes}></line><path d="{marker}" style="stroke:{colour};fill:{face}"></path></svg>'
    )


def _cell(value: Value) -> Markup:
    """A cell's text, in which no number breaks: what a line may end at is between words."""
    inner = value.value if isinstance(value, Cell) else value
    text = re.sub(r"(?<=\de)-(?=\d)", "\u2011", number(inner))
    return Markup(escape(re.sub(r"(?<=\d) (?=±|(?:s|min|h)\b)|(?<=[±=]) | (?==)", "\u00a0", text)))


def _cell_class(value: Value, column: str, table: Table) -> str:
    kind = value.kind if isinstance(value, Cell) else "quiet" if value is None else ""
    size = len(number(value.value if isinstance(value, Cell) else value))
    words = f"text {'short' if size <= _SHORT else 'long' if size > _LONG else ''}" if column in table.text else ""
    return f"{words} {kind}".strip()


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"cell": _cell, "swatch": _swatch, "markup": Markup, "unbroken": unbroken}
    environment.filters["data_uri"] = lambda data: "data:audio/wav;base64," + base64.b64encode(data).decode()
    environment.globals |= {"zip": zip, "cell_class": _cell_class}
    return environment.from_string(_read("page.html"))


def _read(name: str) -> str:
    return resources.files("scornn.program.report").joinpath(name).read_text(encoding="utf-8")
