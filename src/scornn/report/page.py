"""One self-contained HTML page from a list of sections: headings, prose, cards, tables, figures, sound.

Everything given as ``str`` is text and is escaped. Only `Figure.svg` is markup, made by `figures.svg`. The page
holds no script and fetches nothing, and its content security policy allows neither.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources

import jinja2
import numpy as np
from markupsafe import Markup

from scornn.report import figures

MISSING = "—"
_METRICS = {
    "mse": "MSE",
    "mse_padded": "MSE on the padded scale",
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
    colour: int | None = None


@dataclass(frozen=True)
class Cards:
    cards: Sequence[Card]


@dataclass(frozen=True)
class Table:
    """Rows of text or numbers under column names; None is shown as missing.

    ``text`` names the columns that are words (set left, as the first always is); ``strong`` the columns to
    stress, such as "here" beside "published".
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str | float | None]]
    caption: str
    text: Sequence[str] = ()
    strong: Sequence[str] = ()


@dataclass(frozen=True)
class Figure:
    """Markup of `figures.svg`, a caption, and a legend of (label, colour index) where the figure has none."""

    svg: str
    caption: str = ""
    legend: Sequence[tuple[str, int]] = ()
    small: bool = False
    audio: bytes | None = field(default=None, repr=False)
    audio_label: str = ""


@dataclass(frozen=True)
class Figures:
    """Figures side by side where the screen is wide enough, with one legend for all."""

    figures: Sequence[Figure]
    legend: Sequence[tuple[str, int]] = ()
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
        style=Markup(figures.css_variables() + _read("page.css")),
    )


def panels(drawn: Sequence[figures.Panel], caption: str = "") -> Figures:
    """Panels of curves, each a figure of its own, with one legend and caption; those without a point are left out."""
    known = [p for p in drawn if any(np.size(x) for curve in p.curves for x, _ in curve.members)]
    legend = dict.fromkeys((curve.label, curve.colour) for p in known for curve in p.curves)
    return Figures(
        [Figure(figures.svg(figures.curves([p], legend=False), alt=figures.describe(p))) for p in known],
        list(legend),
        caption,
    )


def published_table(
    caption: str,
    rows: Sequence[Mapping[str, str | float | None]],
    *,
    published: str = "published",
    here: str = "here",
    text: Sequence[str] = (),
) -> Table:
    """A table of the paper with what came out here beside it; each row maps column names to values."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    strong = [c for c in columns if c == here or c.startswith(here + " ") or c.endswith(" " + here)]
    for name in (published, here):
        if not any(name in column for column in columns):
            raise ValueError(f"published_table: no column {name!r} among {columns}")
    return Table(columns, [[row.get(column) for column in columns] for row in rows], caption, text, strong)


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
    if 1e-3 <= abs(value) < 1e5:
        return f"{value:.4g}"
    mantissa, _, exponent = f"{value:.2e}".partition("e")
    return f"{mantissa}e{int(exponent)}" if exponent else mantissa


def words(metric: str) -> str:
    """The name of a metric as people write it."""
    return _METRICS.get(metric, metric.replace("_", " "))


def duration(seconds: float | None) -> str:
    """``3725`` as "1 h 2 min"."""
    if seconds is None:
        return MISSING
    if seconds < 120:
        return f"{seconds:.3g} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _swatch(colour: int) -> Markup:
    dash = figures.dash(colour)
    dashes = "" if dash == "-" else f' stroke-dasharray="{" ".join(str(2 * d) for d in dash[1])}"'
    return Markup(
        f'<svg class="swatch" viewBox="0 0 24 8" aria-hidden="true"><line x1="1" y1="4" x2="23" y2="4"'
        f' style="stroke:var(--c{colour % len(figures.LIGHT)})"{dashes}></line></svg>'
    )


def _data_uri(data: bytes) -> str:
    return "data:audio/wav;base64," + base64.b64encode(data).decode()


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"number": number, "swatch": _swatch, "data_uri": _data_uri, "markup": Markup}
    environment.globals["zip"] = zip
    return environment.from_string(_read("page.html"))


def _read(name: str) -> str:
    return resources.files("scornn.report").joinpath(name).read_text(encoding="utf-8")
