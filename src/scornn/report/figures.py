"""Figures from plain data: curves, the unit circle, bars, spectrograms, as matplotlib figures.

`svg` gives markup to inline in a page that is light or dark (colours become CSS variables), or a file of its
own; `png` gives bytes. One palette serves all of them: seven colours, at contrast 3 or more with the page and
told apart under each kind of colour blindness; further curves repeat them with another dash.
"""

import hashlib
import html
import io
import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullFormatter
from numpy.typing import ArrayLike, NDArray

LIGHT = ("#223cb7", "#c88400", "#007153", "#7d2476", "#95410e", "#032219", "#4b96d8")
DARK = ("#77a1ff", "#f9dd3a", "#2cd276", "#bd92b8", "#d7571b", "#f5fff6", "#735aff")
INK, MUTED, GRID = "#1d232b", "#57606c", "#dde2e8"
SIZE = (5.6, 3.3)

_DASHES: tuple[Any, ...] = ("-", (0, (6, 1.5, 1, 1.5)), (0, (1, 1.2)))
_MOST_POINTS = 600
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
    "svg.hashsalt": "scornn",
}


@dataclass(frozen=True)
class Curve:
    """One setting: an (x, y) pair for each seed, and the index of its colour."""

    label: str
    members: Sequence[tuple[ArrayLike, ArrayLike]]
    colour: int = 0


@dataclass(frozen=True)
class Panel:
    """One pair of axes. ``marks`` are dashed horizontals (label, y); ``log=None`` decides by the values' span."""

    title: str
    curves: Sequence[Curve]
    xlabel: str = "training step"
    ylabel: str = ""
    log: bool | None = None
    marks: Sequence[tuple[str, float]] = ()
    ylim: tuple[float, float] | None = None


def curves(
    panels: Sequence[Panel], *, columns: int = 2, size: tuple[float, float] = SIZE, legend: bool = True
) -> Figure:
    """Panels of curves: faint lines for seeds and a full one for their mean, one legend below for all panels.

    For files; on a page, `page.panels` sets each panel by itself, so that they fit narrow screens.

    Args:
        panels: read row by row. The paper's arrangements: copying, T=1000 beside T=2000 (``columns=2``);
            adding, T=200 over 400 over 750 (``columns=1``); accuracies and gradient norms, side by side.
        columns: panels in a row.
        size: width and height of one panel in inches.
        legend: ``False`` where the page has the legend.
    """
    with _style():
        columns = min(columns, len(panels))
        rows = -(-len(panels) // columns)
        entries = {(c.label, c.colour): None for panel in panels for c in panel.curves} if legend else {}
        per_row = max(1, min(len(entries), int(size[0] * columns / 1.9)))
        height = size[1] * rows + 0.25 * -(-len(entries) // per_row)
        figure = Figure(figsize=(size[0] * columns, height), layout="constrained")
        all_axes = figure.subplots(rows, columns, squeeze=False).ravel()
        for axes, panel in zip(all_axes, panels, strict=False):
            _draw(axes, panel)
        for axes in all_axes[len(panels) :]:
            axes.set_axis_off()
        if entries:
            handles = [Line2D([], [], **_line(colour)) for _, colour in entries]
            names = [_short(label) for label, _ in entries]
            figure.legend(handles, names, loc="outside lower center", ncols=per_row)
        return figure


def accuracy(by_title: Mapping[str, Sequence[Curve]], ylim: tuple[float, float] = (0.8, 1.0)) -> list[Panel]:
    """Test accuracy by epoch, one panel for each title."""
    return [Panel(t, c, "epoch", "test accuracy", False, (), ylim) for t, c in by_title.items()]


def orthogonality(drift: Sequence[Curve], sizes: Sequence[int], xlabel: str = "training step") -> Panel:
    """‖WᵀW − I‖_F over training on a logarithmic axis, with n·eps of float32 marked for the largest n."""
    marks = []
    if sizes:
        low, high = min(sizes), max(sizes)
        label = f"n·eps, n = {high}" if low == high else f"n·eps, n = {low} to {high}"
        marks.append((label, high * float(np.finfo(np.float32).eps)))
    return Panel("Orthogonality error", drift, xlabel, "‖WᵀW − I‖, Frobenius", True, marks)


def gradients(by_title: Mapping[str, Sequence[Curve]]) -> list[Panel]:
    """‖∂L/∂h_t‖ against t on a logarithmic axis, one panel for each moment of training."""
    return [Panel(t, c, "t", "‖∂L/∂hₜ‖", True) for t, c in by_title.items()]


def describe(panel: Panel) -> str:
    """A panel in words, for who cannot see it: where each curve ends, and the marks."""
    ends = []
    for curve in panel.curves:
        lasts = [float(np.asarray(y, dtype=float)[-1]) for _, y in curve.members if np.size(y)]
        ends += [f"{curve.label} ends at {np.mean(lasts):.3g}"] if lasts else []
    marks = "".join(f"; {label} at {y:.3g}" for label, y in panel.marks)
    return f"{panel.title}, {panel.ylabel} by {panel.xlabel}: {', '.join(ends) or 'no curve'}{marks}."


def bars(
    labels: Sequence[str],
    values: Mapping[str, Sequence[float | None]],
    *,
    xlabel: str = "",
    title: str = "",
    log: bool = False,
    width: float = 7.0,
) -> Figure:
    """Horizontal bars, one group for each label and one colour for each series; None is a bar not there."""
    with _style():
        series = len(values)
        figure = Figure(figsize=(width, 0.9 + len(labels) * (0.14 + 0.17 * series)), layout="constrained")
        axes = figure.subplots()
        thickness = 0.8 / max(series, 1)
        for k, (name, numbers) in enumerate(values.items()):
            at = [i + (k - (series - 1) / 2) * thickness for i, v in enumerate(numbers) if v is not None]
            known = [v for v in numbers if v is not None]
            drawn = axes.barh(at, known, thickness * 0.9, color=LIGHT[k % len(LIGHT)], label=" " + _short(name))
            axes.bar_label(drawn, [f"{v:.3g}" for v in known], padding=3, fontsize=8, color=MUTED)
        axes.set_yticks(range(len(labels)), [_short(label) for label in labels])
        axes.set_ylim(len(labels) - 0.5, -0.5)
        axes.grid(visible=False, axis="y")
        axes.margins(x=0.12)
        if log:
            axes.set_xscale("log")
            _label_decades(axes.xaxis)
        axes.set_xlabel(xlabel)
        axes.set_title(title)
        if series > 1:
            figure.legend(loc="outside lower center", ncols=series)
        return figure


def spectrum(eigenvalues: ArrayLike, colour: int = 0, *, title: str = "", size: float = 3.0) -> Figure:
    """Eigenvalues of W in the complex plane, with the unit circle."""
    with _style():
        z = np.asarray(eigenvalues, dtype=complex).ravel()
        figure = Figure(figsize=(size, size + (0.25 if title else 0)), layout="constrained")
        axes = figure.subplots()
        turn = np.linspace(0, 2 * np.pi, 181)
        axes.plot(np.cos(turn), np.sin(turn), color=MUTED, linewidth=0.8)
        axes.plot(z.real, z.imag, "o", color=_colour(colour), markersize=3.2, alpha=0.75, markeredgewidth=0)
        reach = 1.12 * max(1.0, float(np.abs(z).max(initial=0.0)))
        axes.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", xlabel="Re", ylabel="Im")
        axes.set_xticks([-1, 0, 1])
        axes.set_yticks([-1, 0, 1])
        axes.set_title(_short(title))
        return figure


def spectrogram(
    decibels: ArrayLike, *, seconds: float, kilohertz: float, limits: tuple[float, float], title: str = ""
) -> Figure:
    """Log-magnitudes (frames, bins) over time and frequency; ``limits`` of the colour scale are in dB."""
    with _style():
        figure = Figure(figsize=SIZE, layout="constrained")
        axes = figure.subplots()
        drawn = axes.imshow(
            np.asarray(decibels, dtype=float).T,
            origin="lower",
            aspect="auto",
            extent=(0.0, seconds, 0.0, kilohertz),
            cmap="magma",
            vmin=limits[0],
            vmax=limits[1],
            interpolation="nearest",
        )
        axes.grid(visible=False)
        axes.set(xlabel="seconds", ylabel="kHz")
        axes.set_title(_short(title))
        bar = figure.colorbar(drawn, ax=axes, label="dB", fraction=0.04, pad=0.02)
        bar.outline.set_visible(False)
        return figure


def svg(figure: Figure, *, alt: str, themed: bool = True) -> str:
    """Themed: an ``<svg>`` to inline, in the page's font and colours ``var(--…)``. Otherwise a whole file."""
    buffer = io.StringIO()
    with _style({"svg.fonttype": "none" if themed else "path"}):
        figure.savefig(
            buffer,
            format="svg",
            facecolor="none" if themed else "white",
            metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")),
        )
    text = buffer.getvalue()
    start = text.index("<svg")
    opening_end = text.index(">", start)
    opening = text[start:opening_end]
    described = f' role="img" aria-label="{html.escape(alt)}"'
    if not themed:
        return text[:start] + opening + described + text[opening_end:]
    viewbox = re.search(r'viewBox="[^"]*"', opening)
    assert viewbox is not None
    return f"<svg {viewbox[0]}{described}{_themed(text[opening_end:].rstrip())}"


def png(figure: Figure, *, dpi: int = 200) -> bytes:
    """A picture on white."""
    buffer = io.BytesIO()
    with _style():
        figure.savefig(buffer, format="png", dpi=dpi, facecolor="white", metadata={"Software": None})
    return buffer.getvalue()


def css_variables() -> str:
    """The palette as declarations for `svg`'s variables, light and then dark."""
    light = [*zip(_NAMES, (*LIGHT, INK, MUTED, GRID), strict=True)]
    dark = [*zip(_NAMES, (*DARK, "#e6e9ed", "#a3adb8", "#323a44"), strict=True)]
    rules = ["".join(f"{name}:{value};" for name, value in pairs) for pairs in (light, dark)]
    return f":root{{{rules[0]}}}@media screen and (prefers-color-scheme:dark){{:root{{{rules[1]}}}}}"


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
        for name, value in zip(_NAMES, (*LIGHT, INK, MUTED, GRID), strict=True):
            tag = tag.replace(value, f"var({name})")
        parts[k] = tag
    return "".join(parts)


@contextmanager
def _style(more: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Our rc settings. Matplotlib's warnings of odd glyphs and crowded axes say nothing to the page's reader."""
    settings: Any = {**_STYLE, **(more or {})}
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


def _colour(index: int) -> str:
    return LIGHT[index % len(LIGHT)]


def _line(colour: int) -> dict[str, Any]:
    return {"color": _colour(colour), "linestyle": dash(colour), "linewidth": 1.8}


def dash(colour: int) -> Any:
    """The dash of a colour index: full for the first round of the palette, others for the next."""
    return _DASHES[colour // len(LIGHT) % len(_DASHES)]


def _draw(axes: Any, panel: Panel) -> None:
    drawn = [(curve, [_thin(x, y) for x, y in curve.members]) for curve in panel.curves]
    values = np.concatenate([np.empty(0), *(y for _, members in drawn for _, y in members)])
    log = _spans_decades(values) if panel.log is None else panel.log
    for curve, members in drawn:
        members = [(x, y) for x, y in members if x.size]
        if len(members) > 1:
            for x, y in members:
                axes.plot(x, _shown(y, log), **_line(curve.colour) | {"linewidth": 0.8, "alpha": 0.4})
            members = [mean(members)]
        for x, y in members:
            marker = "o" if x.size == 1 else None
            axes.plot(x, _shown(y, log), marker=marker, markersize=4, **_line(curve.colour))
    if log:
        axes.set_yscale("log")
        _label_decades(axes.yaxis)
    for label, height in panel.marks:
        if height > 0 or not log:
            axes.axhline(height, color=MUTED, linestyle=(0, (4, 3)), linewidth=1.1, zorder=3)
            axes.annotate(
                label,
                (1, height),
                xycoords=axes.get_yaxis_transform(),
                xytext=(0, 3),
                textcoords="offset points",
                ha="right",
                va="bottom",
                fontsize=8.5,
                color=MUTED,
            )
    axes.set(title=panel.title, xlabel=panel.xlabel, ylabel=panel.ylabel)
    axes.margins(x=0.02)
    if panel.ylim is not None:
        axes.set_ylim(*panel.ylim)
    elif log:
        low, high = axes.get_ylim()
        axes.set_ylim(min(low, high / 100), high)


def _label_decades(axis: Any) -> None:
    """10⁻³ in Unicode: matplotlib's own labels are math text, which run names must not become."""
    superscript = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
    axis.set_major_formatter(lambda v, _: "10" + str(round(math.log10(v))).translate(superscript) if v > 0 else "")
    axis.set_minor_formatter(NullFormatter())


def mean(
    members: Sequence[tuple[NDArray[np.float64], NDArray[np.float64]]],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The mean of several series over the steps that all of them cover, others' values interpolated."""
    first, last = max(float(x[0]) for x, _ in members), min(float(x[-1]) for x, _ in members)
    steps = np.unique(np.concatenate([x for x, _ in members]))
    steps = steps[(steps >= first) & (steps <= last)]
    return steps, np.mean([np.interp(steps, x, y) for x, y in members], axis=0)


def _thin(x: ArrayLike, y: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Finite points, averaged in groups where there are more than the figure can show."""
    points = np.stack([np.asarray(x, dtype=float), np.asarray(y, dtype=float)])
    points = points[:, np.isfinite(points).all(axis=0)]
    count = points.shape[1]
    if count > _MOST_POINTS:
        starts = np.unique(np.linspace(0, count, _MOST_POINTS, endpoint=False).astype(int))
        points = np.add.reduceat(points, starts, axis=1) / np.diff(np.append(starts, count))
    return points[0], points[1]


def _shown(y: NDArray[np.float64], log: bool) -> NDArray[np.float64]:
    return np.where(y > 0, y, np.nan) if log else y


def _spans_decades(values: NDArray[np.float64]) -> bool:
    return bool(values.size and values.min() > 0 and values.max() / values.min() > 30)


def _short(label: str) -> str:
    """A label that fits; a leading underscore would make matplotlib hide it."""
    label = label if len(label) <= 48 else label[:47] + "…"
    return " " + label if label.startswith("_") else label
