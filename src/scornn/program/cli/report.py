"""Write one self-contained HTML page about some runs.

RUN is a run directory, or a directory with run directories below it. The page needs no network: curves, results,
settings, eigenvalues of W and, for speech, spectrograms and sound are all in the one file.

Examples:
    scornn report runs/copying-1000-scornn-190-s5544
    scornn report runs/ --out report.html --title "scoRNN and LSTM"
"""

from dataclasses import dataclass
from typing import Annotated

import tyro

from scornn.errors import UsageError
from scornn.program.cli._options import option, waiting, write_page


@dataclass(frozen=True)
class Flags:
    runs: Annotated[tuple[str, ...], tyro.conf.Positional, option("RUN...", "Run directories, or directories of them.")]
    out: Annotated[str, tyro.conf.arg(metavar="FILE", help="The page.")] = "report.html"
    title: Annotated[str, option("TEXT", "Heading of the page, in place of the problem's name.")] = ""
    utterances: Annotated[int, tyro.conf.arg(metavar="N", help="Utterances shown of a speech run.")] = 3


def main(flags: Flags) -> int:
    if not flags.runs:
        raise UsageError("no RUN given; expected a run directory or a directory of runs")
    if flags.utterances < 0:
        raise UsageError(f"--utterances {flags.utterances}: expected an integer >= 0")

    with waiting(f"reading {' '.join(flags.runs)}"):
        from scornn.program.report.run_report import report

        page = report(flags.runs, title=flags.title, utterances=flags.utterances)
    write_page(flags.out, page)
    return 0
