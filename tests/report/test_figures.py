"""Figures and the page's small parts: what is drawn, in which colours, and how it is said in words."""

import re

import numpy as np
import pytest

from scornn.nn import MODELS, catalogue
from scornn.program.report import curves, figures, page, style
from scornn.program.report.curves import Curve, Line, Panel
from scornn.program.tasks import TASKS
from scornn.program.tasks.catalogue import label_and_about

STEPS = np.arange(100.0)


def linear(colour: str) -> list[float]:
    channels = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]


def luminance(colour: str) -> float:
    return float(np.dot(linear(colour), [0.2126, 0.7152, 0.0722]))


def oklab(light):
    cones = [[0.41222, 0.53633, 0.05145], [0.21190, 0.68070, 0.10740], [0.08830, 0.28172, 0.62998]]
    places = [[0.21045, 0.79362, -0.00407], [1.97800, -2.42859, 0.45059], [0.02590, 0.78277, -0.80868]]
    return np.cbrt(light @ np.transpose(cones)) @ np.transpose(places)


@pytest.mark.parametrize(("palette", "paper"), [(style.LIGHT, "#ffffff"), (style.DARK, "#14181d")])
def test_colours_stand_out_from_the_page(palette, paper):
    assert paper in page._read("page.css")
    for colour in palette:
        low, high = sorted((luminance(colour), luminance(paper)))
        assert (high + 0.05) / (low + 0.05) >= 3


SEEN = (
    np.eye(3),  # and without red, green and blue cones: Machado, Oliveira and Fernandes 2009
    [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
)


@pytest.mark.parametrize("palette", [style.LIGHT, style.DARK])
def test_colours_are_told_apart_by_every_eye(palette):
    light = np.array([linear(colour) for colour in palette])
    for eye in SEEN:
        places = oklab(np.clip(light @ np.transpose(eye), 0, 1))
        apart = np.linalg.norm(places[:, None] - places, axis=-1) + np.eye(len(palette))
        assert apart.min() > 0.065


def test_themed_markup_has_no_colour_and_font_of_its_own():
    lines = [Line(k, average=k == 1) for k in range(10)]
    drawn = curves.draw(Panel("a", [Curve("x", [(STEPS, STEPS + 1)], line) for line in lines]), legend=False)
    text = style.svg(drawn, alt='a "b" <c>')
    assert text.startswith("<svg viewBox=")
    width = re.search(r'viewBox="0 0 ([\d.]+) ', text)
    least = re.search(r"^<svg [^>]*min-width:(\d+)px", text)
    assert width is not None
    assert least is not None
    assert 0 <= int(least[1]) - float(width[1]) < 1  # text is never smaller than it was drawn
    assert min(float(size) for size in re.findall(r"font-size: ([\d.]+)px", text)) >= 10
    assert 'aria-label="a &quot;b&quot; &lt;c&gt;"' in text
    assert not re.findall(r"#[0-9a-f]{6}\b", re.sub(r'(id="|#)f[0-9a-f]{8}-', "", text))
    assert "DejaVu" not in text
    for k in range(len(style.LIGHT)):
        assert f"var(--c{k})" in text
        assert f"--c{k}:{style.LIGHT[k]}" in style.css_variables()


def test_files_have_their_own_colours_for_light_and_dark_pages():
    text = style.svg(curves.draw(Panel("a", [Curve("_x $1", [(STEPS, STEPS)])])), alt="words", themed=False)
    assert text.startswith("<?xml")
    assert f"stroke: var(--c0, {style.LIGHT[0]})" in text
    assert f"--c0:{style.DARK[0]}" in text
    assert f"fill: {style.LIGHT[0]}" not in text
    assert "#ffffff" not in text  # the page shows through


def test_mean_covers_the_steps_that_all_seeds_have():
    x, y = curves.mean([(np.array([0.0, 2, 4]), np.array([0.0, 2, 4])), (np.array([1.0, 3]), np.array([3.0, 3]))])
    np.testing.assert_array_equal(x, [1, 2, 3])
    np.testing.assert_array_equal(y, [2, 2.5, 3])


def test_many_points_are_averaged_in_groups():
    x, y = curves._thin(np.arange(60000.0), np.append(np.ones(59999), np.nan))
    assert x.size == y.size == 600
    assert (np.diff(x) > 0).all()
    np.testing.assert_allclose(y, 1)


def axes_of(*ys, ylabel="", marks=()):
    panels = [Panel("", [Curve("x", [(np.arange(float(len(y))), y)])], ylabel=ylabel, marks=marks) for y in ys]
    return [axes for panel in curves.agreed(panels) for axes in curves.draw(panel, legend=False).axes]


def test_logarithmic_where_values_span_decades():
    falling = 10.0 ** -np.linspace(0, 3, 100)
    scales = [axes_of(y)[0].get_yscale() for y in (falling, falling + 1, falling - 0.5)]
    assert scales == ["log", "linear", "linear"]


def test_a_loss_of_zero_leaves_the_axis_logarithmic_and_is_drawn_below_the_others():
    falling = np.append(10.0 ** -np.linspace(0, 3, 50), 0.0)
    (axes,) = axes_of(falling)
    assert axes.get_yscale() == "log"
    shown = axes.lines[0].get_ydata()
    assert 0 < shown[-1] < shown[:-1].min()
    assert axes.get_ylim()[0] <= shown[-1]


def test_panels_of_one_quantity_have_the_same_kind_of_axis():
    falling, flat = 10.0 ** -np.linspace(0, 3, 100), np.full(100, 0.17)
    assert [axes.get_yscale() for axes in axes_of(falling, flat, ylabel="MSE")] == ["log", "log"]
    apart = [Panel("", [Curve("x", [(STEPS, y)])], ylabel=label) for y, label in ((falling, "MSE"), (flat, "recall"))]
    assert [panel.axis for panel in curves.agreed(apart)] == ["log", "linear"]


def test_a_flat_curve_is_not_magnified():
    noise = 0.1667 + 1e-4 * np.sin(STEPS)
    (axes,) = axes_of(noise, marks=[("baseline", 0.1667)])
    low, high = axes.get_ylim()
    assert high - low > 100 * np.ptp(noise)


def test_the_axis_of_a_flat_share_ends_at_one():
    for height in (0.99, 0.02):
        low, high = axes_of(np.full(100, height), ylabel="recall")[0].get_ylim()
        assert low <= height <= high
        assert -0.01 <= low < high <= 1.03


def test_marks_are_named_outside_of_the_axes():
    (axes,) = axes_of(STEPS, marks=[("baseline", 50.0)])
    (said,) = axes.texts
    assert said.get_text() == "baseline"
    assert said.xy[0] == 1
    assert said.get_horizontalalignment() == "left"


def test_single_points_are_points_also_of_several_seeds():
    point = (np.array([1.0]), np.array([0.5]))
    for members in ([point], [point, point]):
        (axes,) = curves.draw(Panel("", [Curve("x", members, Line(marker="s"))]), legend=False).axes
        assert axes.lines[-1].get_marker() == "s"
        assert all(line.get_marker() not in (None, "None", "") for line in axes.lines)


def test_a_covered_curve_shows_as_a_rim():
    same = [Curve(name, [(STEPS, STEPS + 1)], Line(k)) for k, name in enumerate("ab")]
    (axes,) = curves.draw(Panel("", same), legend=False).axes
    assert axes.lines[0].get_linewidth() > axes.lines[1].get_linewidth() + 0.3


def test_orthogonality_marks_machine_precision():
    panel = curves.orthogonality([Curve("scoRNN", [(STEPS, np.full(100, 1e-6))])], [170, 512])
    assert panel.axis == "log"
    assert panel.marks == [("n·eps,\nn = 512", 512 * 2.0**-23)]
    assert curves.describe(panel).endswith("scoRNN ends at 1e-06; n·eps, n = 512 at 6.1e-05.")


def test_bars_are_left_out_where_there_is_no_value():
    bars = figures.bars(["RNN", "scoRNN"], {"published": [2.3, 5.3], "here": [1.0, None]}, log=True)
    assert [bar.get_width() for bar in bars.axes[0].patches] == [2.3, 5.3, 1.0]


def test_the_axis_of_accuracies_shows_every_curve_and_parts_the_best():
    """A run of one epoch at 0.21 is there, and 0.94 and 0.97 are apart by a good part of the height."""
    drawn = [Curve(str(y), [([0.0, 70.0], [y - 0.01, y])]) for y in (0.21, 0.94, 0.97)]
    drawn.append(Curve("perfect", [([0.0, 70.0], [0.5, 1.0])]))
    (axes,) = curves.draw(Panel("MNIST", drawn, "epoch", "test accuracy", "share"), legend=False).axes
    low, high = axes.get_ylim()
    assert low <= 0.2
    assert high > 0.999
    heights = axes.transAxes.inverted().transform(axes.transData.transform([(0, y) for y in (0.21, 0.94, 0.97)]))[:, 1]
    assert 0 < heights[0] < heights[1] < heights[2] < 1
    assert heights[2] - heights[1] > 0.08
    assert np.isfinite(axes.lines[3].get_ydata()).all()


def test_a_page_has_the_colour_and_the_marker_of_every_model():
    for model in MODELS.values():
        assert model.marker in page._MARKERS
        assert model.colour in range(len(style.LIGHT))
    assert [name for name, model in MODELS.items() if model.colour == MODELS["scornn"].colour] == ["scornn"]


def test_no_model_looks_like_another_nor_a_users_like_one_of_ours(monkeypatch):
    monkeypatch.delitem(MODELS, "mine", raising=False)  # and again at the end
    unknown = catalogue.look("mine")
    catalogue.model("mine")(MODELS["rnn"].layer)
    entry = catalogue.look("mine")
    assert entry is MODELS["mine"]
    assert (unknown.label, unknown.colour, unknown.marker) == ("mine", entry.colour, entry.marker)
    assert entry.marker in page._MARKERS
    assert len({(model.colour, model.marker) for model in MODELS.values()}) == len(MODELS)


def test_a_task_is_called_and_explained_as_it_says_itself():
    said = {name: label_and_about(entry.table()) for name, entry in TASKS.items()}
    assert said == {name: (entry.label, entry.kind.about) for name, entry in TASKS.items()}
    assert all(about for _, about in said.values())
    assert label_and_about({"name": "pmnist"}) == said["pmnist"]
    assert label_and_about({"name": "mine"}) == ("mine", "")


def test_spectrum_shows_every_eigenvalue():
    z = np.exp(1j * np.linspace(0, 6, 40)) * 1.5
    (axes,) = figures.spectrum(z).axes
    np.testing.assert_array_equal(axes.lines[1].get_xdata(), z.real)
    assert axes.get_xlim()[1] > 1.5


def test_a_table_marks_what_counts_and_is_quiet_about_what_is_missing():
    rows = [
        {"row": "scoRNN", "here": page.Cell("3.9e-5 ± 1.0e-6"), "none": None},
        {"row": "LSTM, T = 750", "here": None},
    ]
    table = page.table("MNIST", rows)
    assert table.columns == ["row", "here"]
    html = page.render("t", [table])
    assert '<td class="strong">3.9e\u20115\u00a0±\u00a01.0e\u20116</td>' in html
    assert f'<td class="quiet">{page.MISSING}</td>' in html
    assert "T\u00a0=\u00a0750" in html


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "—"), ("a", "a"), (21764, "21,764"), (0.0, "0"), (0.97312, "0.9731"), (3.9e-5, "3.90e-5"),
     (1234.5, "1,234"), (9999.6, "10,000"), (12345.6, "12,346"), (-9_999_999.4, "-9,999,999"),
     (-2.5e7 - 0.5, "-2.50e7"), (float("nan"), "nan"), (float("inf"), "inf")],
)  # fmt: skip
def test_numbers_as_people_read_them(value, text):
    assert page.number(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, "—"), (0.5, "0.5 s"), (90, "90 s"), (600, "10 min"), (3725, "1 h 2 min")]
)
def test_durations_as_people_read_them(seconds, text):
    assert page.duration(seconds) == text


def test_a_number_in_running_text_is_one_word():
    assert page.unbroken("farthest: 5.25e-8, step-3") == "farthest: 5.25e\N{NON-BREAKING HYPHEN}8, step-3"
    assert page.unbroken("at T = 500, b = −0.03 here") == "at T\xa0=\xa0500, b\xa0=\xa0−0.03 here"
