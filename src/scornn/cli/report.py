"""Write one self-contained HTML page about some runs.

    scornn report RUN... [--out report.html]

RUN is a run directory, or a directory with run directories below it. The page needs no network: curves,
results, settings, eigenvalues of W and, for speech, spectrograms and sound are all in the one file.
"""

import argparse
from pathlib import Path


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="scornn report", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", nargs="+", metavar="RUN", help="a run directory, or a directory that holds some")
    parser.add_argument("--out", type=Path, default=Path("report.html"), metavar="FILE", help="default: %(default)s")
    parser.add_argument("--title", default="", help="heading of the page (default: the problem's name)")
    parser.add_argument(
        "--utterances",
        type=int,
        default=3,
        metavar="N",
        help="utterances shown of a speech run (default: %(default)s)",
    )
    given = parser.parse_args(argv)

    from scornn import durable
    from scornn.report.run_report import report

    page = report(given.runs, title=given.title, utterances=given.utterances)
    durable.write_text(given.out, page)
    print(f"{given.out} ({len(page.encode()) / 1e6:.1f} MB)")
    return 0
