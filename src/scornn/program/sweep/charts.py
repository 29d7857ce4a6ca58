"""The figures of a sweep's page: values over trials, over each key and over each pair of keys."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from scornn.program.report.curves import Line
from scornn.program.report.style import LIGHT, MUTED, SIZE, label_decades, style
from scornn.program.sweep.record import Entry
from scornn.program.sweep.space import Axis, Value

_BINS = 7
_HEAT = "viridis"


class Scale:
    """An axis of a figure for a key: places by position for a list, in its own measure for a range."""

    def __init__(self, axis: Axis, name: str) -> None:
        self.axis, self.name = axis, name

    def place(self, value: Value) -> float:
        return float(self.axis.choices.index(value)) if self.axis.choices else float(value)

    def edges(self) -> Any:
        """Of the cells of a heat map."""
        if self.axis.choices:
            return np.arange(len(self.axis.choices) + 1) - 0.5
        low, high = float(self.axis.low), float(self.axis.high)
        if self.axis.whole and high - low < _BINS:
            return np.arange(low, high + 2) - 0.5
        return np.geomspace(low, high, _BINS + 1) if self.axis.log else np.linspace(low, high, _BINS + 1)

    def dress(self, axes: Any, which: str) -> None:
        """Limits, ticks, scale and label."""
        drawn = axes.xaxis if which == "x" else axes.yaxis
        getattr(axes, f"set_{which}label")(self.name)
        if self.axis.choices:
            texts = [f"{choice:g}" if isinstance(choice, float) else str(choice) for choice in self.axis.choices]
            drawn.set_ticks(range(len(texts)), texts)
            getattr(axes, f"set_{which}lim")(-0.5, len(self.axis.choices) - 0.5)
        elif self.axis.log:
            getattr(axes, f"set_{which}scale")("log")
            if self.axis.high / self.axis.low >= 10:
                label_decades(drawn)


def history(points: Sequence[Entry], metric: str, goal: str) -> Figure:
    """Each trial's value in the order of the trials, with the best so far."""
    with style():
        figure, axes = _figure()
        known = [(p.number, p.value) for p in points if p.value is not None]
        numbers, values = [n for n, _ in known], [v for _, v in known]
        best = np.maximum.accumulate(values) if goal == "max" else np.minimum.accumulate(values)
        axes.step(numbers, best, where="post", color=LIGHT[1], linewidth=1.8)
        axes.plot(numbers, values, "o", color=LIGHT[0], markersize=5)
        _ended_early(axes, [p.number for p in points if p.value is None])
        axes.set(xlabel="trial", ylabel=metric)
        axes.xaxis.get_major_locator().set_params(integer=True)
        return figure


def slice_of(points: Sequence[Entry], scale: Scale, metric: str) -> Figure:
    """Values over one key, the other keys being what they were."""
    with style():
        figure, axes = _figure()
        key = scale.axis.key
        scale.dress(axes, "x")
        known = [p for p in points if p.value is not None]
        axes.plot([scale.place(p.values[key]) for p in known], [p.value for p in known], "o", color=LIGHT[0], alpha=0.8)
        _ended_early(axes, [scale.place(p.values[key]) for p in points if p.value is None])
        axes.set_ylabel(metric)
        return figure


def heat_map(points: Sequence[Entry], x: Scale, y: Scale, metric: str, goal: str) -> Figure:
    """The best value of each cell over two keys; a cell without a finished trial is left open."""
    with style():
        figure, axes = _figure()
        edges = x.edges(), y.edges()
        cells = np.full((len(edges[1]) - 1, len(edges[0]) - 1), np.nan)
        for point in points:
            if point.value is None:
                continue
            column, row = (
                min(max(int(np.searchsorted(e, s.place(point.values[s.axis.key]), "right")) - 1, 0), len(e) - 2)
                for e, s in zip(edges, (x, y), strict=True)
            )
            better = np.fmax if goal == "max" else np.fmin
            cells[row, column] = better(cells[row, column], point.value)
        x.dress(axes, "x")
        y.dress(axes, "y")
        colours = _HEAT if goal == "max" else f"{_HEAT}_r"
        drawn = axes.pcolormesh(*edges, np.ma.masked_invalid(cells), cmap=colours, edgecolors=MUTED, linewidth=0.5)
        axes.set(xlim=(edges[0][0], edges[0][-1]), ylim=(edges[1][0], edges[1][-1]))
        early = [p for p in points if p.value is None]
        places = [[s.place(p.values[s.axis.key]) for p in early] for s in (x, y)]
        axes.plot(*places, "x", color=MUTED, markersize=5)
        axes.grid(visible=False)
        bar = figure.colorbar(drawn, ax=axes, label=metric, fraction=0.05, pad=0.02)
        bar.outline.set_visible(False)
        return figure


def trial_line(place: int) -> Line:
    """How the trial in this place among the best is drawn."""
    return Line(colour=place, variant=place // len(LIGHT))


def _figure() -> tuple[Figure, Any]:
    figure = Figure(figsize=SIZE, layout="constrained")
    return figure, figure.subplots()


def _ended_early(axes: Any, places: Sequence[float]) -> None:
    """Crosses on the lower edge: these trials have no value of their own."""
    axes.plot(places, [0.02] * len(places), "x", color=MUTED, markersize=5, transform=axes.get_xaxis_transform())
