"""Panels of curves: which axis shows them, how a model is told from another, and what is said of them in words.

Colour and marker are the model's; settings of one model differ by dash, and averaged weights are dotted. A curve that
another one covers shows as its rim, for earlier ones are drawn wider.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator
from numpy.typing import ArrayLike, NDArray

from scornn.nn.catalogue import Model
from scornn.program.report.runs import Series
from scornn.program.report.style import MUTED, SIZE, colour_of, label_decades, short, style

Axis = Literal["linear", "log", "share"]
Across = Literal["linear", "log"]
DASHES: tuple[Any, ...] = ("-", (0, (6, 1.5, 1, 1.5)), (0, (5, 2)), (0, (9, 2, 1, 2, 1, 2)))
DOTTED = (0, (1, 1.4))
_MOST_POINTS = 600
_FLAT = 0.4
"""A linear axis shows at least this share of its largest value, so that noise stays noise."""
_SWATCH, _LETTER = 0.6, 0.09
"""Inches that an entry of the legend takes, and each of its letters."""
_NEAREST = 5e-4
"""How near to 1 the axis of shares goes."""
_COUNTS = {d * 10**k: f"{d * 10 ** (k % 3)}{'kM'[k // 3 - 1] if k > 2 else ''}" for k in range(7) for d in (1, 2, 5)}
_SHARES = (0.0, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999)


@dataclass(frozen=True)
class Line:
    """How a curve is drawn: its model's colour and marker, the number of its setting, and whether it is averaged."""

    colour: int = 0
    marker: str = "o"
    variant: int = 0
    average: bool = False
    muted: bool = False
    """One of many in the background, thin and grey."""

    @classmethod
    def of(cls, model: Model, variant: int = 0, *, average: bool = False) -> "Line":
        return cls(model.colour, model.marker, variant, average)

    @property
    def dash(self) -> Any:
        return DOTTED if self.average else DASHES[self.variant % len(DASHES)]

    @property
    def hollow(self) -> bool:
        return self.average or self.variant // len(DASHES) % 2 == 1

    def style(self) -> dict[str, Any]:
        """Keywords of matplotlib's ``plot``."""
        if self.muted:
            return {"color": MUTED, "linestyle": "-", "linewidth": 0.8}
        face = "white" if self.hollow else colour_of(self.colour)
        return {
            "color": colour_of(self.colour),
            "linestyle": self.dash,
            "linewidth": 1.8,
            "marker": self.marker,
            "markersize": 4.5,
            "markerfacecolor": face,
        }


@dataclass(frozen=True)
class Curve:
    """One setting: an (x, y) pair for each seed, and how it is drawn."""

    label: str
    members: Sequence[tuple[ArrayLike, ArrayLike]]
    line: Line = Line()


@dataclass(frozen=True)
class Panel:
    """One pair of axes. ``marks`` are dashed horizontals (label, y); ``axis=None`` decides by the values' span.

    ``share`` is for accuracies: it stretches what lies near 1, so that 0.94 and 0.97 are apart and 0.2 is there too.
    Where runs of very different lengths stand side by side, ``across`` is "log".
    """

    title: str
    curves: Sequence[Curve]
    xlabel: str = "training step"
    ylabel: str = ""
    axis: Axis | None = None
    marks: Sequence[tuple[str, float]] = ()
    across: Across = "linear"


def draw(panel: Panel, *, legend: bool = True, size: tuple[float, float] = SIZE) -> Figure:
    """Faint lines for seeds, a full one for their mean, and a legend below unless the page has one."""
    with style():
        (panel,) = agreed([panel])
        entries = dict.fromkeys((curve.label, curve.line) for curve in panel.curves) if legend else {}
        widest = _SWATCH + _LETTER * max((len(short(label)) for label, _ in entries), default=0)
        per_row = max(1, min(len(entries), int(size[0] / widest)))
        height = size[1] + 0.25 * -(-len(entries) // per_row)
        figure = Figure(figsize=(size[0], height), layout="constrained")
        _draw(figure.subplots(), panel)
        if entries:
            handles = [Line2D([], [], **line.style()) for _, line in entries]
            names = [short(label) for label, _ in entries]
            figure.legend(handles, names, loc="outside lower center", ncols=per_row)
        return figure


def agreed(panels: Sequence[Panel]) -> list[Panel]:
    """The panels with their axes decided: those that show the same quantity have the same kind."""
    spans = {}
    for ylabel in {panel.ylabel for panel in panels if panel.axis is None}:
        values = [_values(panel) for panel in panels if panel.ylabel == ylabel and panel.axis is None]
        spans[ylabel] = any(map(_spans_decades, values))
    return [p if p.axis is not None else replace(p, axis="log" if spans[p.ylabel] else "linear") for p in panels]


def orthogonality(drift: Sequence[Curve], sizes: Sequence[int], xlabel: str = "training step") -> Panel:
    """‖WᵀW − I‖_F over training on a logarithmic axis, with n·eps of float32 marked for the largest n."""
    marks = []
    if sizes:
        marks.append((f"n·eps,\nn = {max(sizes)}", max(sizes) * float(np.finfo(np.float32).eps)))
    return Panel("Orthogonality error", drift, xlabel, "‖WᵀW − I‖, Frobenius", "log", marks)


def describe(panel: Panel) -> str:
    """A panel in words, for who cannot see it: where each curve ends, and the marks."""
    ends = []
    for curve in (curve for curve in panel.curves if not curve.line.muted):
        lasts = [float(np.asarray(y, dtype=float)[-1]) for _, y in curve.members if np.size(y)]
        ends += [f"{curve.label} ends at {np.mean(lasts):.3g}"] if lasts else []
    marks = "".join(f"; {' '.join(label.split())} at {y:.3g}" for label, y in panel.marks)
    return f"{panel.title}, {panel.ylabel} by {panel.xlabel}: {', '.join(ends) or 'no curve'}{marks}."


def mean(members: Sequence[Series]) -> Series:
    """The mean of several series over the steps that all of them cover, others' values interpolated."""
    first, last = max(float(x[0]) for x, _ in members), min(float(x[-1]) for x, _ in members)
    steps = np.unique(np.concatenate([x for x, _ in members]))
    steps = steps[(steps >= first) & (steps <= last)]
    return steps, np.mean([np.interp(steps, x, y) for x, y in members], axis=0)


def _draw(axes: Any, panel: Panel) -> None:
    values = _values(panel)
    positive = values[values > 0]
    floor = float(positive.min()) / 2 if positive.size else 1.0
    if panel.axis == "log":
        axes.set_yscale("log")
        label_decades(axes.yaxis)
    elif panel.axis == "share":
        _stretch(axes, values)
    _draw_curves(axes, panel, floor)
    marks = sorted((height, label) for label, height in panel.marks if height > 0 or panel.axis != "log")
    for number, (height, label) in enumerate(marks):
        beside = "center" if len(marks) == 1 else ("top", "bottom")[number > 0]  # names of near ones stay apart
        _mark(axes, label, height, beside)
    axes.set(title=panel.title, xlabel=panel.xlabel, ylabel=panel.ylabel)
    axes.margins(x=0.03)
    _label_across(axes, panel.across)
    low, high = axes.get_ylim()
    if panel.axis == "log":
        axes.set_ylim(min(low, high / 100), high)
    elif panel.axis == "linear" and values.size:
        least = _FLAT * float(np.abs(values).max())
        if high - low < least:
            low = (low + high - least) / 2
            if values.min() >= 0 and values.max() <= 1:  # a share stays one, as a curve and as an axis
                low = min(max(low, 0.0), 1.02 - least)
            axes.set_ylim(low, low + least)


def _draw_curves(axes: Any, panel: Panel, floor: float) -> None:
    for number, curve in enumerate(panel.curves):
        members = [_thin(x, y) for x, y in curve.members]
        members = [(x, _shown(y, panel.axis, floor)) for x, y in members if x.size]
        line = curve.line.style()
        if curve.line.muted:
            for x, y in members:
                axes.plot(x, y, **line | {"marker": None if x.size > 1 else "."})
            continue
        line |= {"linewidth": 1.5 + 1.0 * 0.6**number if len(panel.curves) > 1 else 1.8}
        if len(members) > 1:
            for x, y in members:
                axes.plot(x, y, **line | {"linewidth": 0.8, "alpha": 0.4, "marker": None if x.size > 1 else "."})
            members = [mean(members)]
        for x, y in members:
            every = 1 if x.size <= 8 else (0.02 * (number % 5), 0.16)
            axes.plot(x, y, markevery=every, **line)


def _label_across(axes: Any, across: Across) -> None:
    if across == "linear":
        axes.xaxis.set_major_locator(MaxNLocator(6))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    else:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(FixedLocator(list(_COUNTS)))
        axes.xaxis.set_major_formatter(lambda value, _: _COUNTS.get(round(value), ""))
        axes.xaxis.set_minor_locator(NullLocator())


def _mark(axes: Any, label: str, height: float, beside: str) -> None:
    """A dashed horizontal, named beside the axes, where no curve is."""
    axes.axhline(height, color=MUTED, linestyle=(0, (4, 3)), linewidth=1.1, zorder=1.5)
    axes.annotate(
        label,
        (1, height),
        xycoords=axes.get_yaxis_transform(),
        xytext=(4, 0),
        textcoords="offset points",
        ha="left",
        va=beside,
        fontsize=10,
        color=MUTED,
        annotation_clip=False,
    )


def _stretch(axes: Any, values: NDArray[np.float64]) -> None:
    """An axis on which each tenth of what is missing to 1 has the same height."""
    axes.set_yscale(
        "function",
        functions=(
            lambda a: -np.log10(np.maximum(1 - np.asarray(a, dtype=float), _NEAREST / 10)),
            lambda b: 1 - 10.0 ** -np.asarray(b, dtype=float),
        ),
    )
    low = max([s for s in _SHARES if s <= values.min(initial=1.0)], default=0.0)
    best = min(float(values.max(initial=0.0)), 1 - _NEAREST)
    high = min([s for s in _SHARES if s > best], default=1 - _NEAREST)
    axes.set_ylim(low, high)
    axes.yaxis.set_major_locator(FixedLocator([s for s in _SHARES if low <= s <= high]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")


def _values(panel: Panel) -> NDArray[np.float64]:
    """All that a panel shows, its marks too."""
    ys = [_thin(x, y)[1] for curve in panel.curves for x, y in curve.members]
    return np.concatenate([np.array([height for _, height in panel.marks], dtype=float), *ys])


def _thin(x: ArrayLike, y: ArrayLike) -> Series:
    """Finite points, averaged in groups where there are more than the figure can show."""
    points = np.stack([np.asarray(x, dtype=float), np.asarray(y, dtype=float)])
    points = points[:, np.isfinite(points).all(axis=0)]
    count = points.shape[1]
    if count > _MOST_POINTS:
        starts = np.unique(np.linspace(0, count, _MOST_POINTS, endpoint=False).astype(int))
        points = np.add.reduceat(points, starts, axis=1) / np.diff(np.append(starts, count))
    return points[0], points[1]


def _shown(y: NDArray[np.float64], axis: Axis | None, floor: float) -> NDArray[np.float64]:
    """Values as the axis can hold them: on a logarithmic one a zero lies below all others."""
    if axis == "log":
        return np.where(y > 0, y, np.where(y == 0, floor, np.nan))
    return np.minimum(y, 1 - _NEAREST) if axis == "share" else y


def _spans_decades(values: NDArray[np.float64]) -> bool:
    """Whether the values that are not zero span more than a decade and a half; a negative one forbids the logarithm."""
    positive = values[values > 0]
    return bool(positive.size and values.min() >= 0 and positive.max() / positive.min() > 30)
