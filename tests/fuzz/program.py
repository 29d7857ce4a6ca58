"""The program on damaged runs and random options: an exit code of the promised ones, and never a traceback.

    python tests/fuzz/program.py SECONDS [SEED]

A small run is made once. Each case copies it, damages one of its files (bits, a cut, random bytes, another file's
bytes) or draws options, and runs a command on it in this process. A refusal (any exit code but 0) must leave every byte
of the run as it was, but for the lock and the log. Ends with how many cases there were.
"""

import contextlib
import io
import random
import shutil
import sys
import tempfile
import time
import warnings
from pathlib import Path

from scornn.cli import main as scornn

CODES = (0, 2, 3, 4, 5, 6, 7)  # 1 is a bug
TINY = "--length 5 --hidden 4 --threads 1 --tensorboard off --quiet --set task.train_size=40 --set task.test_size=20"
VALUES = [
    "",
    "0",
    "-1",
    "1",
    "n/2",
    "7n/0",
    "nan",
    "inf",
    "1e400",
    "true",
    "[1",
    "{}",
    "ü",
    "../x",
    "1" * 30,
    "auto",
    "cosine",
]
KEYS = [
    *(
        "seed",
        "steps",
        "epochs",
        "threads",
        "task.length",
        "task.batch",
        "model.hidden",
        "model.options.rho",
        "model.name",
    ),
    *(
        "model.readout.width",
        "optimizer.rest.lr",
        "optimizer.rest.kind",
        "optimizer.schedule.kind",
        "optimizer.average.decay",
    ),
    *("stop_when.loss", "backend", "device", "name", "data", "nonsense", "model.options.nonsense", "optimizer.bias"),
]
FLAGS = [
    "--hidden",
    "--rho",
    "--length",
    "--lr",
    "--batch",
    "--seed",
    "--backend",
    "--eval-every",
    "--until",
    "--config",
]


def run(argv: list[str]) -> tuple[int, str]:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            code = scornn(argv)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
    return code, said.getvalue()


def damage(path: Path, draw: random.Random, others: list[Path]) -> str:
    data = bytearray(path.read_bytes())
    kind = draw.choice(["flip", "cut", "random", "other", "gone", "empty"])
    if kind == "flip" and data:
        for _ in range(draw.choice([1, 3, 40])):
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    elif kind == "cut":
        del data[draw.randrange(len(data) + 1) :]
    elif kind == "random":
        data = bytearray(draw.randbytes(draw.randrange(200)))
    elif kind == "other":
        data = bytearray(draw.choice(others).read_bytes())
    elif kind == "empty":
        data = bytearray()
    path.unlink()
    if kind != "gone":
        path.write_bytes(data)
    return f"{kind} {path.name}"


def contents(root: Path) -> dict[str, bytes]:
    names = ("lock", "log.txt")
    return {
        str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file() and p.name not in names
    }


def case(seed: int, good: Path, root: Path) -> None:
    draw = random.Random(seed)
    copy = root / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.rmtree(root / "new", ignore_errors=True)
    if draw.random() < 0.7:
        shutil.copytree(good, copy)
        files = [p for p in copy.rglob("*") if p.is_file() and p.name != "lock"]
        what = damage(draw.choice(files), draw, files)
        command = draw.choice(
            [["resume"], ["resume", "--iterations", "8"], ["eval"], ["eval", "--json"], ["eval", "--best"], ["report"]]
        )
        argv = [command[0], str(copy), *command[1:]]
        argv += ["--out", str(root / "report.html")] if command[0] == "report" else []
        argv += ["--quiet", "--tensorboard", "off"] if command[0] == "resume" else []
    else:
        what = "options"
        argv = ["train", "copying", *TINY.split(), "--iterations", "2", "--out", str(root / "new")]
        for _ in range(draw.choice([1, 2])):
            value = draw.choice(VALUES)
            argv += [draw.choice(FLAGS), value] if draw.random() < 0.4 else ["--set", f"{draw.choice(KEYS)}={value}"]
    before = contents(copy) if copy.exists() else {}
    code, said = run(argv)
    assert code in CODES, f"{what}: {argv} ended in {code}: {said}"
    assert "Traceback" not in said, f"{what}: {argv}: {said}"
    if code in (2, 3, 4, 6) and copy.exists():
        changed = {k for k in {**before, **contents(copy)} if before.get(k) != contents(copy).get(k)}
        assert not changed, f"{what}: {argv} was refused ({code}, {said}) and changed {changed}"


def main() -> None:
    warnings.simplefilter("ignore")
    seconds, seed = float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        good = root / "good"
        code, said = run(
            ["train", "copying", *TINY.split(), "--iterations", "6", "--checkpoint-every", "2", "--out", str(good)]
        )
        assert code == 0, said
        end, count = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            try:
                case(seed + count, good, root)
            except BaseException:
                print(f"case {seed + count}", flush=True)
                raise
            count += 1
    print(f"{count} cases, nothing but promised exit codes")


if __name__ == "__main__":
    main()
