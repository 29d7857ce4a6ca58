"""Figures from plain data: bars, the unit circle, spectrograms, as matplotlib figures."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from scornn.program.report.style import LIGHT, MUTED, SIZE, colour_of, label_decades, short, style


def bars(
    labels: Sequence[str],
    values: Mapping[str, Sequence[float | None]],
    *,
    xlabel: str = "",
    title: str = "",
    log: bool = False,
) -> Figure:
    """Horizontal bars, one group for each label and one colour for each series; None is a bar not there."""
    with style():
        series = len(values)
        figure = Figure(figsize=(SIZE[0], 0.9 + len(labels) * (0.14 + 0.17 * series)), layout="constrained")
        axes = figure.subplots()
        thickness = 0.8 / max(series, 1)
        for k, (name, numbers) in enumerate(values.items()):
            at = [i + (k - (series - 1) / 2) * thickness for i, v in enumerate(numbers) if v is not None]
            known = [v for v in numbers if v is not None]
            drawn = axes.barh(at, known, thickness * 0.9, color=LIGHT[k % len(LIGHT)], label=" " + short(name))
            axes.bar_label(drawn, [f"{v:.3g}" for v in known], padding=3, fontsize=10, color=MUTED)
        axes.set_yticks(range(len(labels)), [short(label) for label in labels])
        axes.set_ylim(len(labels) - 0.5, -0.5)
        axes.grid(visible=False, axis="y")
        axes.margins(x=0.12)
        if log:
            axes.set_xscale("log")
            label_decades(axes.xaxis)
        axes.set_xlabel(xlabel)
        axes.set_title(title)
        if series > 1:
            figure.legend(loc="outside lower center", ncols=series)
        return figure


def spectrum(eigenvalues: ArrayLike, colour: int = 0) -> Figure:
    """Eigenvalues of W in the complex plane, with the unit circle."""
    with style():
        z = np.asarray(eigenvalues, dtype=complex).ravel()
        figure = Figure(figsize=(2.3, 2.3), layout="constrained")
        axes = figure.subplots()
        turn = np.linspace(0, 2 * np.pi, 181)
        axes.plot(np.cos(turn), np.sin(turn), color=MUTED, linewidth=0.8)
        axes.plot(z.real, z.imag, "o", color=colour_of(colour), markersize=3.2, alpha=0.75, markeredgewidth=0)
        reach = 1.12 * max(1.0, float(np.abs(z).max(initial=0.0)))
        axes.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", xlabel="Re", ylabel="Im")
        axes.set_xticks([-1, 0, 1])
        axes.set_yticks([-1, 0, 1])
        return figure


def spectrogram(
    decibels: ArrayLike, *, seconds: float, kilohertz: float, limits: tuple[float, float], title: str = ""
) -> Figure:
    """Log-magnitudes (frames, bins) over time and frequency; ``limits`` of the colour scale are in dB."""
    with style():
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
        axes.set_title(short(title))
        bar = figure.colorbar(drawn, ax=axes, label="dB", fraction=0.04, pad=0.02)
        bar.outline.set_visible(False)
        return figure
