"""The program on damaged files and random options: an exit code of the promised ones, and never a traceback.

    python tests/fuzz/program.py SECONDS [SEED]

A small run, a small sweep and an exported file are made once. Each case copies one of them, damages one of its files
(bits, a cut, random bytes, another file's bytes, none at all) or draws options, and runs a command on it in this
process: train, resume, eval, report, export, sweep, sweep resume, sweep report, or ``scornn.load``. A refusal must
leave every byte as it was, but for locks and the log. Ends with how many cases there were, by command and exit code.
"""

import collections
import contextlib
import io
import os
import random
import shutil
import sys
import tempfile
import time
import warnings
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import scornn
from scornn.errors import ScornnError
from scornn.program.cli import main as program
from scornn.program.deploy import write

CODES = (0, 2, 3, 4, 5, 6, 7)  # 1 is a bug
REFUSED = (2, 3, 4, 6, 7)
TINY = "--length 5 --hidden 4 --threads 1 --tensorboard off --quiet --set task.train_size=40 --set task.test_size=20"
VALUES = "0 -1 1 n/2 7n/0 nan inf 1e400 true [1 {} ü ../x 111111111111111111111111111111 auto cosine"
KEYS = """\
seed steps epochs threads task.length task.batch model.hidden model.options.rho model.name model.readout.width
optimizer.rest.lr optimizer.rest.kind optimizer.schedule.kind optimizer.average.decay stop_when.loss backend device name
data nonsense model.options.nonsense optimizer.bias plugins"""
FLAGS = "--hidden --rho --length --lr --batch --seed --backend --eval-every --until --config --plugin"
OVER = "seed=1,2 model.hidden=3,4 model.hidden=0,4 optimizer.rest.lr=1e-4..1e-2 rho=0..4 nonsense=1 seed= =1 seed=2..1"
ON_A_RUN = ["resume", "resume --iterations 8", "eval", "eval --json", "eval --best", "eval --average", "report", "load"]
ON_A_RUN += ["load average", "export --to safetensors", "export --to onnx --best"]
ON_A_SWEEP = ["sweep resume", "sweep resume --trials 3", "sweep resume --trials 1", "sweep report", "report"]
ON_A_FILE = ["load", "export --to safetensors", "export --to onnx", "eval --json"]


def run(argv: list[str]) -> tuple[int, str]:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            code = _load(*argv[1:]) if argv[0] == "load" else program(argv)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
    return code, said.getvalue()


def _load(path: str, *average: str) -> int:
    try:
        scornn.load(path, weights="average" if average else "raw")
    except ScornnError as error:
        print(error)
        return error.exit_code
    return 0


def damage(path: Path, draw: random.Random, others: list[Path]) -> str:
    data = bytearray(path.read_bytes())
    kind = draw.choice(["flip", "cut", "random", "other", "gone", "empty", "zeros"])
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
    elif kind == "zeros":
        begin = draw.randrange(len(data) + 1)
        data[begin : begin + 40] = bytes(len(data[begin : begin + 40]))
    path.unlink()
    if kind != "gone":
        path.write_bytes(data)
    return f"{kind} {path.name}"


def contents(root: Path) -> dict[str, bytes]:
    files = [p for p in sorted(root.rglob("*")) if p.is_file()] if root.is_dir() else [root]
    return {str(p): p.read_bytes() for p in files if p.exists() and not p.name.endswith(("lock", "log.txt"))}


def case(seed: int, root: Path) -> tuple[str, int]:
    draw = random.Random(seed)
    copy, new = root / "copy", root / "new"
    for path in (copy, new):
        shutil.rmtree(path, ignore_errors=True)
    kind = draw.choices(["run", "sweep", "file", "options", "axes"], [4, 3, 2, 2, 1])[0]
    what, argv, before = kind, [], {}
    if kind in ("run", "sweep", "file"):
        shutil.copytree(root / kind, copy)
        files = [p for p in copy.rglob("*") if p.is_file() and not p.name.endswith("lock")]
        what = damage(draw.choice(files), draw, files)
        command, *rest = draw.choice({"run": ON_A_RUN, "sweep": ON_A_SWEEP, "file": ON_A_FILE}[kind]).split()
        place = copy / "weights.safetensors" if kind == "file" and command != "eval" else copy
        argv = [command, *rest[:1], str(place), *rest[1:]] if command == "sweep" else [command, str(place), *rest]
        argv += ["--out", str(root / "out.html")] if "report" in argv else []
        argv += ["--out", str(root / "out.bin")] if command == "export" else []
        argv += ["--quiet", "--tensorboard", "off"] if "resume" in argv else []
        before = contents(copy)
    else:
        command = "train" if kind == "options" else "sweep"
        argv = [command, "copying", *TINY.split(), "--iterations", "2", "--out", str(new)]
        argv += ["--over", draw.choice(OVER.split()), "--trials", "2"] if kind == "axes" else []
        for _ in range(draw.choice([1, 2]) if kind == "options" else draw.choice([0, 1])):
            value = draw.choice(["", *VALUES.split()])
            argv += (
                [draw.choice(FLAGS.split()), value]
                if draw.random() < 0.4
                else ["--set", f"{draw.choice(KEYS.split())}={value}"]
            )
    code, said = run(argv)
    assert code in CODES, f"{what}: {argv} ended in {code}: {said}"
    assert "Traceback" not in said, f"{what}: {argv}: {said}"
    assert code == 0 or said.strip(), f"{what}: {argv} ended in {code} without a word"
    if code in REFUSED and before:
        after = contents(copy)
        changed = {name for name in {**before, **after} if before.get(name) != after.get(name)}
        assert not changed, f"{what}: {argv} was refused ({code}, {said}) and changed {changed}"
    return " ".join(argv[:2] if argv[0] == "sweep" and argv[1] != "copying" else argv[:1]), code


def prepare(root: Path) -> None:
    os.chdir(root)
    os.environ["SCORNN_CACHE"] = str(root / "cache")
    write._compare = lambda network, content, kind: 0.0  # a fresh process for each export would be all that is tried
    run_, sweep, file = (str(root / name) for name in ("run", "sweep", "file"))
    averaged = ["--set", "optimizer.average.decay=0.9", "--iterations", "6", "--checkpoint-every", "2"]
    tiny = ["copying", *TINY.split()]
    for argv in (
        ["train", *tiny, *averaged, "--out", run_],
        ["sweep", *tiny, "--iterations", "4", "--over", "seed=1,2", "--out", sweep],
        ["export", run_, "--to", "safetensors", "--out", f"{root}/weights.safetensors"],
    ):
        code, said = run(argv)
        assert code == 0, said
    Path(file).mkdir()
    shutil.copy(root / "weights.safetensors", file)
    shutil.copy(root / "run" / "config.json", file)


def main() -> None:
    warnings.simplefilter("ignore")
    seconds, seed = float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    seen: collections.Counter[tuple[str, int]] = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder))
        end, count = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            try:
                seen[case(seed + count, Path(folder))] += 1
            except BaseException:
                print(f"case {seed + count}", flush=True)
                raise
            count += 1
        os.chdir("/")
    print(f"{count} cases, nothing but promised exit codes")
    for (command, code), times in sorted(seen.items()):
        print(f"  {times:5} × {command} ended in {code}")


if __name__ == "__main__":
    main()
