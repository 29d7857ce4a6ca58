"""Sequences of your own in files: what is read from them, what is refused, and a run from the files to a network."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import scornn
from scornn.errors import DataError
from scornn.program.cli import main
from scornn.program.data import arrays
from scornn.program.tasks import Arrays, ArraysConfig, check, make

N, T = 12, 5
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(N, T, 2))
LENGTHS = RANDOM.integers(1, T + 1, N)
LENGTHS[0] = T - 1
TARGETS: dict[str, Any] = {
    "a class": RANDOM.integers(0, 3, N).astype(np.uint8),
    "a class at every step": RANDOM.integers(0, 3, (N, T)),
    "a value": RANDOM.normal(size=N),
    "values": RANDOM.normal(size=(N, 4)).astype(np.float32),
    "values at every step": RANDOM.normal(size=(N, T, 4)),
}
SIGNED = RANDOM.normal(size=(40, 4, 1))


def write(folder: Path, **files: Any) -> Path:
    """Arrays for train and test, and the files that are named otherwise."""
    folder.mkdir(exist_ok=True)
    for split in ("train", "test"):
        for name, array in (("x", X), ("y", TARGETS["a class"])):
            np.save(folder / f"{split}_{name}.npy", array)
    for name, array in files.items():
        np.save(folder / f"{name}.npy", array)
    return folder


def both(y: Any) -> dict[str, Any]:
    return {"train_y": y, "test_y": y}


def task_of(folder: Path, **settings: int) -> Arrays:
    made = make(ArraysConfig(**settings), 1, folder)
    assert isinstance(made, Arrays)
    check(made)
    return made


@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.parametrize("ragged", [False, True])
def test_every_kind_of_target_against_a_loop_over_samples(kind: str, ragged: bool, tmp_path: Path) -> None:
    y = TARGETS[kind]
    lengths = {"train_lengths": LENGTHS, "test_lengths": LENGTHS} if ragged else {}
    made = task_of(write(tmp_path / "mine", **both(y), **lengths), batch=5, eval_batch=5)
    classes, every = "class" in kind, "every" in kind
    assert (made.input_size, made.output_size) == (2, 3 if classes else 1 if kind == "a value" else 4)
    assert (made.read, made.headline, made.goal) == (
        "all" if every else "last",
        *(("accuracy", "max") if classes else ("mse", "min")),
    )
    steps = f"{LENGTHS.min()} to {LENGTHS.max()}" if ragged else f"{T}"
    wanted = "one of 3 classes" if classes else "1 value" if kind == "a value" else "4 values"
    counted = np.arange(T) < (LENGTHS if ragged else np.full(N, T))[:, np.newaxis]
    assert made.in_words == (
        f"sequences: {N} to train, {N} to test; of {steps} steps; at each 2 numbers, the largest "
        f"{np.abs(X[counted]).max():.3g}; wanted of each {'step' if every else 'sequence'}: {wanted}"
    )
    ends = LENGTHS if ragged else np.full(N, T)
    total = count = right = 0.0
    sums: dict[str, list[float]] = {}
    for step in range(made.num_batches("test")):
        batch, rows = made.batch("test", 0, step), made.rows("test", step)
        assert (batch.lengths is not None) is ragged
        assert batch.inputs.shape[0] == ends[rows].max()
        outputs = torch.randn(
            *batch.inputs.shape[: 2 if every else 0], *(() if every else (batch.size,)), made.output_size
        )
        outputs = outputs.requires_grad_()
        for name, (value, number) in made.measure(outputs, batch).items():
            sums[name] = [a + b for a, b in zip(sums.get(name, [0, 0]), (value, number), strict=True)]
        for column, row in enumerate(rows):
            end = int(ends[row])
            assert np.array_equal(batch.inputs[:end, column], X[row, :end].astype(np.float32))
            assert not batch.inputs[end:, column].any()
            for t in range(end) if every else (None,):
                target = torch.tensor(y[row] if t is None else y[row, t])
                output = outputs[column] if t is None else outputs[t, column]
                if classes:
                    total -= output.log_softmax(-1)[int(target)].item()
                    right += float(output.argmax() == target)
                else:
                    total += (output - target.float()).square().sum().item()
                count += 1 if classes else made.output_size
    assert sums["loss"] == pytest.approx([total, count], rel=1e-5)
    assert sums[made.headline] == pytest.approx([right if classes else total, count], rel=1e-5)


def test_what_stands_after_the_end_of_a_sequence_is_nothing(tmp_path: Path) -> None:
    x, y = X.copy(), TARGETS["values at every step"].copy()
    for row, end in enumerate(LENGTHS):
        x[row, end:], y[row, end:] = math.nan, math.inf
    lengths = {"train_lengths": LENGTHS, "test_lengths": LENGTHS}
    made = task_of(write(tmp_path / "mine", **both(y), train_x=x, test_x=x, **lengths))
    batch = made.batch("test", 0, 0)
    outputs = torch.randn(*batch.inputs.shape[:2], 4, requires_grad=True)
    made.loss(outputs, batch)[0].backward()
    assert outputs.grad is not None
    assert outputs.grad.isfinite().all()
    assert not outputs.grad[~batch.valid].any()
    assert made.baseline is not None
    assert math.isfinite(made.baseline)


def test_the_baseline_answers_without_the_sequence(tmp_path: Path) -> None:
    train, test = np.array([0] * 9 + [1] * 3), np.array([0] * 6 + [2] * 6)
    made = task_of(write(tmp_path / "mine", train_y=train, test_y=test))
    assert made.baseline == pytest.approx(-(math.log(10 / 15) + math.log(1 / 15)) / 2)
    values = RANDOM.normal(size=(2, N, 3))
    made = task_of(write(tmp_path / "mine", train_y=values[0], test_y=values[1]))
    assert made.baseline == pytest.approx(np.square(values[1] - values[0].mean(axis=0)).mean())


def test_training_is_shuffled_by_seed_and_epoch_and_the_rest_is_not(tmp_path: Path) -> None:
    made = task_of(write(tmp_path / "mine", valid_x=X[:4], valid_y=TARGETS["a class"][:4]), batch=5, eval_batch=5)
    assert made.splits == ("train", "valid", "test")
    epochs = [[made.batch("train", epoch, step) for step in range(3)] for epoch in (0, 1, 0)]
    first, second, again = (torch.cat([batch.inputs[0] for batch in epoch]) for epoch in epochs)
    assert torch.equal(first, again)
    assert not torch.equal(first, second)
    assert {tuple(row) for row in first.tolist()} == {tuple(row) for row in X[:, 0].astype(np.float32).tolist()}
    assert torch.equal(made.batch("valid", 3, 0).inputs[0], torch.tensor(X[:4, 0], dtype=torch.float32))


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"train_x": X[0, 0]}, r"train_x.npy: found float64 of shape \(2,\); expected real numbers \(N, T, m\)"),
        ({"train_x": X.astype(complex)}, "train_x.npy: found complex128"),
        ({"train_x": X[:, :0]}, "train_x.npy: found"),
        ({"test_x": X[:, :, :1]}, "test_x.npy: found 1 numbers a step, but training has 2 numbers a step"),
        ({"test_y": X[:, 0]}, "test_y.npy: found 2 values a sequence, but training has classes a sequence"),
        ({"train_y": np.zeros(N - 1, int)}, r"train_y.npy: found int64 of shape \(11,\); expected classes"),
        ({"train_y": np.zeros((N, T, 2), int)}, "train_y.npy: found int64"),
        ({"train_y": np.zeros((N, 1), int)}, r"train_y.npy: found int64 of shape \(12, 1\).*; y\[:, 0\] is"),
        ({"train_y": np.eye(3, dtype=int)[np.arange(N) % 3]}, r"train_y.npy: .*; y.argmax\(1\) numbers classes"),
        ({"train_y": np.array(["a"] * N)}, "train_y.npy: found <U1.* return_inverse=True"),
        ({"train_y": np.full(N, -1)}, "train_y.npy: found the class -1; expected classes from 0 on; .*return_inverse"),
        (
            both(np.zeros(N, int)),
            "train_y.npy: found classes up to 0 and 12 targets in training; expected at least two",
        ),
        (both(np.arange(N) * 1000), "classes up to 11000 .* saved as floats"),
        ({"train_lengths": np.zeros(N, int)}, "train_lengths.npy: found 0 to 0; expected 1 to 5"),
        ({"train_lengths": np.ones(N)}, "train_lengths.npy: found float64"),
        ({"train_x": np.where(np.arange(N)[:, None, None] == 7, np.nan, X)}, "train_x.npy: sequence 7, .* holds NaN"),
        ({"train_x": np.where(np.arange(N)[:, None, None] == 7, 1e39, X)}, "sequence 7, .* beyond float32"),
        ({"valid_x": X}, "valid_y.npy is missing"),
        (
            {"test_y": TARGETS["a class"].astype(int) * 500},
            "test_y.npy: found classes up to 1000 ",
        ),
    ],
)
def test_what_does_not_fit_is_refused_by_its_file(files: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=said):
        task_of(write(tmp_path / "mine", **files))


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"train_x": X * 1e4}, r"train_x.npy: numbers up to .*; those around one are learned best: scale them"),
        (
            {f"{split}_x": X.repeat(10, 2) for split in ("train", "test")},
            r"train_x.npy: 5 steps of 20 numbers each; is it \(N, T, m\), steps before numbers\?",
        ),
        ({"test_y": np.arange(N)}, "test_y.npy: of classes 3, 4, 5, 6, 7 and 4 more there is no example in train_y"),
        ({"train_lengths": LENGTHS}, "other splits have lengths, but there is no test_lengths.npy"),
        (both(TARGETS["a class"] % 2 + 1), "train_y.npy: no target is of class 0; classes are numbered from 0 on"),
        (both(TARGETS["a value"] + 350), "train_y.npy: values of the size of 35.; those around one are learned best"),
        (both(TARGETS["a class"].astype(float)), "train_y.npy: whole numbers as floats are values; as integers"),
    ],
)
def test_what_may_be_a_mistake_is_told(files: dict[str, Any], said: str, tmp_path: Path) -> None:
    (doubt,) = task_of(write(tmp_path / "mine", **files)).doubts
    assert re.search(said, doubt)


def test_numbers_are_looked_at_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "_CHUNK", 8)
    with pytest.raises(DataError, match="sequence 11"):
        task_of(write(tmp_path / "mine", train_x=np.where(np.arange(N)[:, None, None] == 11, np.inf, X)))


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("train_x", b"\x93NUMPY", "expected an array of numbers"),
        ("train_x", b"PK\x03\x04garbage", "expected an array of numbers"),
        ("train_x", np.array([{}], dtype=object), "expected an array of numbers.* are padded to one"),
        ("train_y", np.array([0, 1], dtype=object), r"expected .* astype\(int\) makes classes of them"),
        ("train_x", None, "is missing; expected x and y of train and of test"),
    ],
)
def test_files_that_are_no_arrays(file: str, content: Any, said: str, tmp_path: Path) -> None:
    place = write(tmp_path / "mine") / f"{file}.npy"
    if content is None:
        place.unlink()
    elif isinstance(content, bytes):
        place.write_bytes(content)
    else:
        np.save(place, content, allow_pickle=True)
    with pytest.raises(DataError, match=f"{file}.npy:? {said}"):
        task_of(tmp_path / "mine")


def test_a_link_to_nowhere_and_a_folder_that_is_none(tmp_path: Path) -> None:
    folder = write(tmp_path / "mine")
    (folder / "test_lengths.npy").symlink_to("nowhere")
    with pytest.raises(DataError, match=r"test_lengths.npy is missing"):
        task_of(folder)
    with pytest.raises(DataError, match="--data FOLDER"):
        make(ArraysConfig(), 1)
    with pytest.raises(DataError, match="missing"):
        make(ArraysConfig(), 1, folder / "test_x.npy")


def test_from_files_to_a_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCORNN_CACHE", str(tmp_path / "cache"))
    x = RANDOM.normal(size=(200, 8, 1))
    y = (x[:, 0, 0] > 0).astype(int)
    folder = write(tmp_path / "mine", train_x=x[:160], train_y=y[:160], test_x=x[160:], test_y=y[160:])
    options = ["--data", "mine", "--hidden", "8", "--threads", "1", "--tensorboard", "off", "--out", "run"]
    assert main(["train", "arrays", *options, "--epochs", "1"]) == 0
    read = "sequences: 160 to train, 40 to test; of 8 steps; at each 1 number, the largest "
    assert read in capsys.readouterr().out
    assert read in Path("run/log.txt").read_text()
    assert main(["resume", "run", "--epochs", "30", "--quiet", "--tensorboard", "off"]) == 0
    summary = json.loads(Path("run/summary.json").read_text())
    assert summary["finished"] is True
    assert summary["best"]["value"] > 0.9
    assert main(["eval", "run"]) == 0
    assert main(["report", "run", "--out", "page.html"]) == 0
    assert "Sequences from files" in Path("page.html").read_text()
    for file in folder.iterdir():
        file.unlink()  # the network needs them no more
    network = scornn.load("run")
    assert (network.task.input_size, network.task.output_size, network.task.read) == (1, 2, "last")
    assert main(["eval", "run"]) == 3
    assert main(["models", "--task", "arrays"]) == 2
    assert "its sizes are those of your files" in capsys.readouterr().err


def test_another_file_is_other_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCORNN_CACHE", str(tmp_path / "cache"))
    write(tmp_path / "mine")
    options = ["--data", "mine", "--hidden", "4", "--threads", "1", "--tensorboard", "off", "--out", "run", "--quiet"]
    assert main(["train", "arrays", *options, "--epochs", "1"]) == 0
    write(tmp_path / "mine", train_x=X + (np.arange(N) == 11)[:, None, None])  # the last sequence alone
    assert main(["resume", "run", "--epochs", "2", "--quiet"]) == 4
    assert "was trained on other data" in capsys.readouterr().err


def test_data_of_another_kind_are_refused_wherever_they_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCORNN_CACHE", str(tmp_path / "cache"))
    write(tmp_path / "mine")
    write(tmp_path / "values", **both(TARGETS["values"]))
    options = ["--hidden", "4", "--threads", "1", "--tensorboard", "off", "--quiet", "--epochs", "1"]
    assert main(["train", "arrays", "--data", "mine", *options]) == 0
    run = "runs/arrays-scornn-4-s5544"
    assert main(["eval", run, "--data", "values"]) == 3
    assert "output_size 4 instead of 3, headline mse instead of accuracy" in capsys.readouterr().err
    assert main(["resume", run, "--data", "values", "--epochs", "2"]) == 4
    assert "was trained on other data: output_size 4 instead of 3" in capsys.readouterr().err
    assert main(["train", "arrays", "--data", "values", *options]) == 0  # another problem has another name
    assert Path(f"{run}-2").is_dir()
    write(tmp_path / "mine", **both(TARGETS["values"]))
    assert main(["eval", run]) == 3
    assert "mine has data of another kind" in capsys.readouterr().err


def test_the_trials_of_a_sweep_have_one_data_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("optuna")
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "mine")
    write(tmp_path / "moved")
    write(tmp_path / "other", train_x=X + 1)
    sweep = ["sweep", "arrays", "--hidden", "4", "--iterations", "1", "--over", "seed=1,2", "--out", "s", "--quiet"]
    assert main([*sweep, "--data", "mine"]) == 0
    assert main([*sweep, "--data", "moved"]) == 0
    best = Path("s/best.json").read_text()
    capsys.readouterr()
    assert main([*sweep, "--data", "other"]) == 2
    assert "of another config: data.train_x.npy sha256 " in capsys.readouterr().err
    assert Path("s/best.json").read_text() == best
    assert main(["sweep", "report", "s", "--out", "page.html"]) == 0


def test_a_folder_is_a_problem_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCORNN_CACHE", str(tmp_path / "cache"))
    write(tmp_path / "classes")
    write(tmp_path / "values", **both(TARGETS["values"]))
    for name in ("classes", "values"):
        short = ["--hidden", "4", "--iterations", "1", "--threads", "1", "--tensorboard", "off", "--quiet"]
        assert main(["train", "arrays", "--data", name, "--out", f"runs/{name}", *short]) == 0
    assert main(["report", "runs", "--out", "page.html"]) == 0
    page = Path("page.html").read_text()
    assert all(f"Arrays of {name}" in page for name in ("classes", "values"))


def test_prediction_of_files_with_and_without_lengths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "mine", train_lengths=LENGTHS, test_lengths=LENGTHS)
    options = ["--data", "mine", "--hidden", "8", "--threads", "1", "--tensorboard", "off", "--quiet"]
    assert main(["train", "arrays", *options, "--iterations", "3", "--out", "run"]) == 0
    capsys.readouterr()
    ask = ["predict", "run", "mine/test_x.npy", "--out", "y.npy"]
    assert main([*ask, "--lengths", "mine/test_lengths.npy"]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert "int64 of shape (12,)" in said.out
    network = scornn.load("run")
    with torch.no_grad():
        alone = [int(network(torch.tensor(x[:T, None]).float()).argmax()) for x, T in zip(X, LENGTHS, strict=True)]
    assert np.load("y.npy").tolist() == alone
    assert capsys.readouterr().err == ""  # one sequence has no padding
    for _ in range(2):
        network(torch.zeros(T, 2, 2))
    assert capsys.readouterr().err.count("is given none") == 1
    assert main(ask[:3]) == 0
    said = capsys.readouterr()
    assert "is given none" in said.err
    assert len(said.out.split()) == N
    np.save("wrong.npy", LENGTHS + T)
    assert main([*ask, "--lengths", "wrong.npy"]) == 3
    np.save("wide.npy", np.zeros((2, 3, 4)))
    assert main(["predict", "run", "wide.npy"]) == 3
    assert "found 4 numbers a step; run expects 2" in capsys.readouterr().err


def test_prediction_at_every_step_and_of_values(tmp_path: Path) -> None:
    for kind, shape in (("values at every step", (N, T, 4)), ("a class at every step", (N, T)), ("a value", (N, 1))):
        folder = write(tmp_path / kind, **both(TARGETS[kind]))
        run = str(folder / "run")
        options = ["--hidden", "4", "--threads", "1", "--tensorboard", "off", "--quiet", "--iterations", "1"]
        assert main(["train", "arrays", "--data", str(folder), *options, "--out", run]) == 0
        assert scornn.load(run).predict(X).shape == shape


def test_the_end_says_what_to_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    x = SIGNED
    y = (x[:, 0, 0] > 0).astype(int)
    options = ["--hidden", "8", "--read", "mean", "--threads", "1", "--tensorboard", "off", "--iterations", "150"]
    write(tmp_path / "true", train_x=x, train_y=y, test_x=x, test_y=y)
    assert main(["train", "arrays", "--data", "true", *options, "--until", "accuracy=0.7", "--out", "run"]) == 0
    assert json.loads(Path("run/config.json").read_text())["model"]["read"] == "mean"
    steps = json.loads(Path("run/summary.json").read_text())["steps"]
    assert f"may still improve: scornn resume run --iterations {2 * steps}" in capsys.readouterr().out
    write(tmp_path / "false", train_x=x, train_y=y, test_x=x, test_y=1 - y)
    assert main(["train", "arrays", "--data", "false", *options, "--out", "heart"]) == 0
    assert "it knows the training data by heart" in capsys.readouterr().out
