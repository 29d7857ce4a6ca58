"""Figures and the page's small parts: what is drawn, in which colours, and how it is said in words."""

import re

import numpy as np
import pytest

from scornn.report import figures, page
from scornn.report.figures import Curve, Panel

STEPS = np.arange(100.0)


def luminance(colour: str) -> float:
    channels = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))


@pytest.mark.parametrize(("palette", "paper"), [(figures.LIGHT, "#ffffff"), (figures.DARK, "#14181d")])
def test_colours_stand_out_from_the_page(palette, paper):
    assert paper in page._read("page.css")
    for colour in palette:
        low, high = sorted((luminance(colour), luminance(paper)))
        assert (high + 0.05) / (low + 0.05) >= 3


def test_themed_markup_has_no_colour_and_font_of_its_own():
    drawn = figures.curves([Panel("a", [Curve("x", [(STEPS, STEPS + 1)], k) for k in range(9)])], legend=False)
    text = figures.svg(drawn, alt='a "b" <c>')
    assert text.startswith("<svg viewBox=")
    assert 'aria-label="a &quot;b&quot; &lt;c&gt;"' in text
    assert not re.findall(r"#[0-9a-f]{6}\b", re.sub(r'(id="|#)f[0-9a-f]{8}-', "", text))
    assert "DejaVu" not in text
    for k in range(len(figures.LIGHT)):
        assert f"var(--c{k})" in text
        assert f"--c{k}:{figures.LIGHT[k]}" in figures.css_variables()


def test_files_have_their_own_colours():
    drawn = figures.curves([Panel("a", [Curve("_x $1", [(STEPS, STEPS)])]), Panel("b", [])], columns=2)
    text = figures.svg(drawn, alt="words", themed=False)
    assert text.startswith("<?xml")
    assert figures.LIGHT[0] in text
    assert "var(" not in text
    assert figures.png(drawn, dpi=50).startswith(b"\x89PNG")


def test_mean_covers_the_steps_that_all_seeds_have():
    x, y = figures.mean([(np.array([0.0, 2, 4]), np.array([0.0, 2, 4])), (np.array([1.0, 3]), np.array([3.0, 3]))])
    np.testing.assert_array_equal(x, [1, 2, 3])
    np.testing.assert_array_equal(y, [2, 2.5, 3])


def test_many_points_are_averaged_in_groups():
    x, y = figures._thin(np.arange(60000.0), np.append(np.ones(59999), np.nan))
    assert x.size == y.size == 600
    assert (np.diff(x) > 0).all()
    np.testing.assert_allclose(y, 1)


def test_logarithmic_where_values_span_decades():
    falling = 10.0 ** -np.linspace(0, 3, 100)
    scales = [
        figures.curves([Panel("", [Curve("x", [(STEPS, y)])])]).axes[0].get_yscale()
        for y in (falling, falling + 1, falling - 0.5)
    ]
    assert scales == ["log", "linear", "linear"]


def test_orthogonality_marks_machine_precision():
    panel = figures.orthogonality([Curve("scoRNN", [(STEPS, np.full(100, 1e-6))])], [170, 512])
    assert panel.log
    assert panel.marks == [("n·eps, n = 170 to 512", 512 * 2.0**-23)]
    assert figures.describe(panel).endswith("scoRNN ends at 1e-06; n·eps, n = 170 to 512 at 6.1e-05.")


def test_paper_arrangements_are_drawn():
    curves = [Curve("scoRNN", [(STEPS, 10.0 ** -(STEPS / 10))])]
    accuracy = figures.curves(figures.accuracy({"MNIST": curves, "permuted MNIST": curves}))
    gradients = figures.curves(figures.gradients({"start": curves, "after 300": curves}))
    assert [axes.get_ylim() for axes in accuracy.axes] == [(0.8, 1.0)] * 2
    assert [axes.get_yscale() for axes in gradients.axes] == ["log"] * 2
    bars = figures.bars(["RNN", "scoRNN"], {"published": [2.3, 5.3], "here": [1.0, None]}, log=True)
    assert [bar.get_width() for bar in bars.axes[0].patches] == [2.3, 5.3, 1.0]


def test_spectrum_shows_every_eigenvalue():
    z = np.exp(1j * np.linspace(0, 6, 40)) * 1.5
    (axes,) = figures.spectrum(z).axes
    np.testing.assert_array_equal(axes.lines[1].get_xdata(), z.real)
    assert axes.get_xlim()[1] > 1.5


def test_published_table_keeps_what_is_missing():
    table = page.published_table(
        "MNIST", [{"model": "scoRNN", "published": 0.973, "here": 0.97}, {"model": "LSTM", "published": 0.987}]
    )
    assert table.columns == ["model", "published", "here"]
    assert table.strong == ["here"]
    html = page.render("t", [table])
    assert '<td class="strong">0.97</td>' in html
    assert f'<td class="strong">{page.MISSING}</td>' in html
    with pytest.raises(ValueError, match="no column 'published'"):
        page.published_table("MNIST", [{"model": "scoRNN", "here": 1.0}])


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "—"), ("a", "a"), (21764, "21,764"), (0.0, "0"), (0.97312, "0.9731"), (3.9e-5, "3.90e-5"),
     (-2.5e7 - 0.5, "-2.50e7"), (float("nan"), "nan"), (float("inf"), "inf")],
)  # fmt: skip
def test_numbers_as_people_read_them(value, text):
    assert page.number(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, "—"), (0.5, "0.5 s"), (90, "90 s"), (600, "10 min"), (3725, "1 h 2 min")]
)
def test_durations_as_people_read_them(seconds, text):
    assert page.duration(seconds) == text
