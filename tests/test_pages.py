"""The built pages: no warning, no formula left as LaTeX, nothing asked of the network; the notebooks are run."""

import html
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(900)  # the pages run three notebooks, on a busy machine too
ROOT = Path(__file__).resolve().parents[1]
FETCHED = re.compile(r"""<(?:script|img|iframe|source)[^>]+src=["'](?:https?:)?//|<link[^>]+href=["'](?:https?:)?//""")
IMPORTED = re.compile(r"""@import[^;]*//|url\(\s*["']?(?:https?:)?//""")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("pages")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "-d", str(out / "trees")]
    done = subprocess.run(
        [*command, str(ROOT / "docs"), str(out / "html")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return out / "html"


def test_nothing_is_asked_of_the_network(pages: Path) -> None:
    for page in pages.rglob("*.html"):
        assert not FETCHED.search(page.read_text(encoding="utf-8")), page.name
    for style in pages.rglob("*.css"):
        assert not IMPORTED.search(style.read_text(encoding="utf-8")), style.name


def test_formulas_are_mathml(pages: Path) -> None:
    assert (pages / "gradient.html").read_text(encoding="utf-8").count("<math") > 10
    for page in pages.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        body = re.search(r"<article.*?</article>", text, re.DOTALL)
        if body:  # in code a dollar or a backslash is what it is
            prose = re.sub(r"<(pre|code)\b.*?</\1>", "", body[0], flags=re.DOTALL)
            assert not re.search(r"\\[a-z]{2}|\$|<m[io]>&</", prose), page.name


@pytest.fixture
def extensions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs" / "_extensions")


@pytest.mark.usefixtures("extensions")
@pytest.mark.parametrize(
    ("latex", "part"),
    [
        (r"B\exp(A)", '<mi>B</mi><mo lspace="0.167em" rspace="0">exp</mo>'),  # B exp(A), not Bexp(A)
        (r"o \odot \tanh c", '<mo lspace="0" rspace="0.167em">tanh</mo><mi>c</mi>'),
        (r"\frac{n}{2}\log_2 n", '<msub><mo lspace="0.167em" rspace="0.167em">log</mo>'),
        ("h_{t-1}", '<mi>t</mi><mo lspace="0" rspace="0">&#x02212;</mo><mn>1</mn>'),  # tight in a script
        ("t-1", "<mi>t</mi><mo>&#x02212;</mo><mn>1</mn>"),
        ("A = -A", '<mo form="prefix">&#x02212;</mo>'),
        ("|z| - 1", "</mo><mo>&#x02212;</mo>"),
        ("n/2", '<mo lspace="0" rspace="0">&#x0002F;</mo>'),
        ("h_a'", "&#x02032;</mo></mrow><mi>a</mi></msub>"),  # beside its letter
        ("A' = B", '<mrow><mi>A</mi><mo lspace="0" rspace="0">&#x02032;</mo></mrow>'),
        (r"\begin{pmatrix} \cos θ \end{pmatrix}", '<mo lspace="0" rspace="0.167em">cos</mo><mi>θ</mi>'),
        (r"b \sim U", "<mo>&#x0223C;</mo>"),
    ],
)
def test_a_formula_is_spaced_as_in_tex(latex: str, part: str) -> None:
    import mathml

    assert part in mathml.convert(latex)


def test_a_narrow_page_breaks_lines_where_it_may(pages: Path) -> None:
    formulas = (pages / "models" / "scurnn.html").read_text(encoding="utf-8")
    assert len(re.findall(r'<div><math [^>]*display="block"', formulas)) == 4  # each of the row by itself
    assert '<span class="whole">Ctrl-C</span>' in (pages / "commands" / "resume.html").read_text(encoding="utf-8")
    commands = (pages / "deploy.html").read_text(encoding="utf-8")
    assert '<span class="whole">--out</span>' in commands
    assert len(re.findall(r'<span class="command">(?:<span></span>)?scornn', commands)) == 8  # a hanging line each


def test_the_reference_has_every_public_name(pages: Path) -> None:
    import scornn.program.deploy

    text = (pages / "api.html").read_text(encoding="utf-8")
    rooms = {"scornn.nn": scornn.nn, "scornn.optim": scornn.optim, "scornn.program.deploy": scornn.program.deploy}
    names = {f"{room}.{name}" for room, module in rooms.items() for name in module.__all__}
    moved = {
        "scornn.nn.ScoRNN",
        "scornn.nn.ScoRNNCell",
        "scornn.program.deploy.load",
        "scornn.nn.MODELS",
    }  # stand at the top
    for name in sorted(names - moved):
        assert name.rsplit(".", 1)[1] in text, name


NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_was_run_and_drawn(notebook: Path, pages: Path) -> None:
    written = json.loads(notebook.read_text(encoding="utf-8"))
    assert all(not cell.get("outputs") for cell in written["cells"])  # what is shown is made when the pages are built
    text = (pages / "notebooks" / f"{notebook.stem}.html").read_text(encoding="utf-8")
    drawing = [cell["metadata"]["alt"] for cell in written["cells"] if "alt" in cell["metadata"]]
    assert len(drawing) >= 2
    for alt in drawing:
        assert f'aria-label="{html.escape(alt)}"' in text
    figures = re.findall(r'<figure class="notebook".*?</figure>', text, re.DOTALL)
    assert len(figures) == len(drawing)
    assert all("var(--ink)" in figure for figure in figures)  # the page's colours, light or dark
    assert "--ink" in (pages / "_static" / "notebooks.css").read_text(encoding="utf-8")


@pytest.mark.usefixtures("extensions")
@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("x / 0", r"wrong.ipynb, cell 2: ZeroDivisionError"),
        ("plt.plot([1, 2], color='C0', label='LSTM, at the start')", r"must be C1, the colour of LSTM"),
    ],
)
def test_a_wrong_cell_fails_the_pages(line: str, why: str, tmp_path: Path) -> None:
    import notebooks

    lines = ("import matplotlib.pyplot as plt; x = 1", line)
    cells = [{"cell_type": "code", "metadata": {"alt": "A line."}, "source": [line]} for line in lines]
    (tmp_path / "wrong.ipynb").write_text(json.dumps({"cells": cells}), encoding="utf-8")
    with pytest.raises(notebooks.NotebookError, match=why):
        notebooks.run(tmp_path / "wrong.ipynb")
