"""Exported files: the same numbers in other programs at any T and B, and nothing left of what failed."""

from __future__ import annotations

import io
import json
import resource
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

import scornn
from scornn.errors import ScornnError, StorageError, UsageError
from scornn.nn import MODELS, SequenceModel, build
from scornn.program.cli import main
from scornn.program.deploy import Frozen, write

FROZEN = sorted(set(MODELS) - {"memory-blocks"})


@pytest.mark.parametrize("to", ["safetensors", "pt2", "pt2 --plain", "onnx"])
def test_the_command_writes_a_file_that_was_checked(
    to: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / f"model.{to.split()[0]}"
    assert main(["export", str(run), "--to", *to.split(), "--out", str(out)]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([f"{out.name}.md", out.name])
    assert f") and its model card {out}.md\nit was loaded again in a fresh process" in capsys.readouterr().out
    card = out.with_name(f"{out.name}.md").read_text()
    for said in ("scoRNN", "copying", "recall", "| seed | 5544 |", "‖WᵀW − I‖_F", "no licence needed", "torch 2"):
        assert said in card


def test_a_network_that_was_trained_further_is_written_as_it_is(run: Path, tmp_path: Path) -> None:
    """Without the figures of its run, also when it is written again; and it is left as it was."""
    network, x = scornn.load(run, weights="average", best=True).train(), torch.randn(5, 2, 10)
    with torch.no_grad():
        network.layer.skew_hh_l0.add_(0.3)
    scornn.program.deploy.export(network, tmp_path / "a.safetensors", "safetensors")
    assert network.training
    assert torch.equal(scornn.load(tmp_path / "a.safetensors")(x), network(x))
    card = (tmp_path / "a.safetensors.md").read_text()
    assert f"| weights | raw, changed after step {network.stored.step} |" in card
    assert "No figures were stored with the weights." in card
    scornn.program.deploy.export(tmp_path / "a.safetensors", tmp_path / "b.safetensors", "safetensors")
    assert scornn.load(tmp_path / "b.safetensors").stored.changed


def test_a_wider_network_is_no_network_of_the_run(run: Path, tmp_path: Path) -> None:
    """Its config and its card would name another size."""
    network = scornn.load(run)
    wide = scornn.widen(network, network.layer.hidden_size + 3)
    with pytest.raises(UsageError, match=r"has shape .* by the config of its run; .* --start-from RUN --hidden N"):
        scornn.program.deploy.export(wide, tmp_path / "a.onnx", "onnx")
    assert not list(tmp_path.glob("a.*"))


@pytest.mark.parametrize(
    ("trained", "dtype", "to", "said"),
    [
        ("run", torch.float64, "safetensors", "takes float32 weights, but .* is torch.float64; export network.float()"),
        ("run", torch.bfloat16, "pt2", "takes float32 or float64 weights, but .* is torch.bfloat16"),
        ("run", torch.float16, "onnx", "takes float32 or float64 weights, but .* is torch.float16"),
        # ONNX has an LSTM of doubles, ONNX Runtime has none.
        ("lstm_run", torch.float64, "onnx", "takes float32 weights of an LSTM or GRU, but .* is torch.float64"),
    ],
)
def test_weights_that_a_file_cannot_hold(
    trained: str, dtype: torch.dtype, to: str, said: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    network = scornn.load(request.getfixturevalue(trained)).to(dtype)
    with pytest.raises(UsageError, match=said):
        scornn.program.deploy.export(network, tmp_path / f"a.{to}", to)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("to", ["safetensors", "pt2", "onnx"])
def test_another_default_of_torch_changes_nothing(to: str, lstm_run: Path, tmp_path: Path) -> None:
    network = scornn.load(lstm_run)
    torch.set_default_dtype(torch.float64)
    try:
        assert scornn.program.deploy.export(network, tmp_path / f"a.{to}", to).error <= write.TOLERANCE
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("weights", ["raw", "averaged"])
def test_the_card_has_the_figures_of_the_weights_beside_it(weights: str, run: Path, tmp_path: Path) -> None:
    average = ["--average"] if weights == "averaged" else []
    assert main(["export", str(run), "--to", "safetensors", *average, "--out", str(tmp_path / "a.safetensors")]) == 0
    card = (tmp_path / "a.safetensors.md").read_text()
    summary = json.loads((run / "summary.json").read_text())
    losses = {"raw": summary["final"]["test"]["loss"], "averaged": summary["average"]["final"]["test"]["loss"]}
    assert losses["raw"] != losses["averaged"]
    assert f"## Figures of the {weights} weights" in card
    for which, loss in losses.items():
        assert (f"| loss | test, last | {loss:.6g} |" in card) is (which == weights)


def test_the_card_of_an_earlier_checkpoint_has_no_last_figures_of_a_later_one(tmp_path: Path) -> None:
    run, out = tmp_path / "run", tmp_path / "a.safetensors"
    size = ["--length", "5", "--hidden", "6", "--iterations", "4", "--eval-every", "2", "--checkpoint-every", "2"]
    assert main(["train", "copying", *size, "--out", str(run)]) == 0
    for step, has_last in ((2, False), (4, True)):
        checkpoint = str(run / "checkpoints" / f"step-{step}")
        assert main(["export", checkpoint, "--to", "safetensors", "--out", str(out)]) == 0
        card = out.with_name(f"{out.name}.md").read_text()
        assert f"raw, of step {step}" in card
        assert ("test, last" in card) is has_last


@pytest.mark.parametrize("to", ["frozen", "frame by frame", "pt2", "pt2 --plain", "onnx"])
@pytest.mark.parametrize(("hidden", "rho"), [(6, 3), (7, 2)])
@torch.no_grad()
def test_a_linear_memory_turns_by_its_angles_however_long_the_sequence(hidden: int, rho: int, to: str) -> None:
    """A rotation rounded to float32 is another one, and its error adds up with T."""
    torch.manual_seed(0)
    network = SequenceModel(build("linear-memory", 1, hidden, rho=rho), 2).eval()
    x = torch.randn(6_000, 1, 1)
    expected = network.double()(x.double()).float()
    network.float()
    frozen = Frozen(network, plain="plain" in to)
    if to == "onnx":
        y = torch.from_numpy(
            session(network).run(["y"], {"x": x.numpy(), "h0": np.zeros((1, 1, hidden), np.float32)})[0]
        )
    elif to == "frame by frame":
        state, frames = list(frozen.initial_state(1)), []
        for frame in x.split(1):
            y, *state = frozen(frame, *state)
            frames.append(y)
        y = torch.cat(frames)
    elif to == "frozen":
        y = frozen(x)[0]
    else:
        program = torch.export.load(io.BytesIO(write._program(frozen))).module()
        y = program(x, *frozen.initial_state(1))[0]
    assert float((y - expected).abs().max() / network(x).abs().max()) < 1e-5


@pytest.mark.parametrize(("hidden", "rho"), [(1, 1), (6, 2), (6, 3)])
@torch.no_grad()
def test_a_linear_memory_with_a_bias(hidden: int, rho: int) -> None:
    network = SequenceModel(
        build("linear-memory", 1, hidden, num_layers=2, rho=rho, bias=True, bidirectional=True), 2
    ).eval()
    for suffix in network.layer.suffixes():
        getattr(network.layer, f"bias{suffix}").normal_()
    x, h0 = torch.randn(9, 2, 1), torch.randn(4, 2, hidden)
    expected = network.layer(x, h0)
    expected = network.head(expected[0]), expected[1]
    found = session(network).run(None, {"x": x.numpy(), "h0": h0.numpy()})
    for ways in (found, Frozen(network)(x, h0), Frozen(network, plain=True)(x, h0)):
        for way, wanted in zip(ways, expected, strict=True):
            assert difference(np.asarray(way), wanted) < 1e-5


def session(network: SequenceModel) -> Any:
    onnxruntime = pytest.importorskip("onnxruntime")
    from scornn.program.deploy.onnx import build as graph

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(graph(Frozen(network), {}), options, providers=["CPUExecutionProvider"])


def about(session: Any) -> dict[str, str]:
    return dict(session.get_modelmeta().custom_metadata_map)


def difference(found: np.ndarray[Any, Any], expected: torch.Tensor) -> float:
    """The largest, relative to the largest number where that is over 1."""
    return float(np.abs(found - expected.numpy()).max() / expected.abs().max().clamp(min=1))


@pytest.mark.parametrize("name", FROZEN)
@torch.no_grad()
def test_onnx_of_every_model_stacked_and_in_two_directions(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    network = SequenceModel(build(name, 3, 8, num_layers=2, bidirectional=True), 4).eval()
    for parameter in network.layer.parameters():
        if parameter.dim() == 1:
            parameter.add_(0.1 * torch.randn_like(parameter))
    runs, frozen = session(network), Frozen(network)
    for T, B in ((1, 1), (9, 5), (40, 2)):
        x, given = torch.randn(T, B, 3), frozen.initial_state(B)
        given = tuple(s + 0.1 * torch.randn_like(s) for s in given)
        named = dict(zip(("h0", "c0"), (s.numpy() for s in given), strict=False))
        for found, expected in zip(runs.run(None, {"x": x.numpy(), **named}), frozen(x, *given), strict=True):
            assert difference(found, expected) <= 1e-5
        own = {f"{name}0": np.zeros((4, 1, s.shape[2]), np.float32) for name, s in zip("hc", given, strict=False)}
        own |= {name: np.array(json.loads(text), np.float32) for name, text in about(runs).items() if name == "h0"}
        found = runs.run(["y"], {"x": x.numpy(), **own})[0]  # from the network's own state, one for all sequences
        assert difference(found, network(x)) <= 1e-5
    assert capfd.readouterr().err == ""  # ONNX Runtime has no complaint


@pytest.mark.parametrize(
    ("width", "norm", "dtype", "limit"), [(5, True, torch.float32, 1e-5), (None, False, torch.float64, 1e-12)]
)
@torch.no_grad()
def test_onnx_of_a_last_state_read_by_one_or_two_layers(
    width: int | None, norm: bool, dtype: torch.dtype, limit: float
) -> None:
    network = SequenceModel(build("scornn", 3, 8), 4, "last", width=width, norm=norm).to(dtype)
    network(torch.randn(6, 9, 3, dtype=dtype))  # a mean and a variance that do something
    network.eval()
    x = torch.randn(6, 2, 3, dtype=dtype)
    given = {"x": x.numpy(), "h0": np.zeros((1, 2, 8), x.numpy().dtype)}
    assert np.abs(session(network).run(["y"], given)[0] - network(x).numpy()).max() <= limit


def test_onnx_has_standard_operators_and_names_its_opset() -> None:
    onnx = pytest.importorskip("onnx")
    from scornn.program.deploy.onnx import OPSET
    from scornn.program.deploy.onnx import build as graph

    model = onnx.load_from_string(graph(Frozen(SequenceModel(build("scornn", 3, 8), 4)), {"task": "mine"}))
    assert [(opset.domain, opset.version) for opset in model.opset_import] == [("", OPSET)]
    assert {node.domain for node in model.graph.node} == {""}
    assert {p.key: p.value for p in model.metadata_props} == {"task": "mine"}


@pytest.mark.parametrize("found", ["other numbers", "NaN"])
def test_a_file_that_differs_gets_no_name(
    found: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(path: Path) -> dict[str, Tensor]:
        results = load_file(path)
        results[min(results)].view(-1)[0] = float("nan")
        return results

    other = scornn.load(run, weights="average")
    if found == "NaN":
        monkeypatch.setattr(write, "load_file", damaged)
    else:
        monkeypatch.setattr(write, "_content", lambda *_: write.stored_weights.to_bytes(other.stored))
    with pytest.raises(ScornnError, match="safetensors file differs from the network by"):
        scornn.program.deploy.export(run, tmp_path / "a.safetensors", "safetensors")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["nowhere", "--to", "onnx", "--out", "a.onnx"], 2, "no run directory nowhere"),
        (["RUN", "--to", "onnx", "--plain", "--out", "a.onnx"], 2, "plain is a form of pt2 files"),
        (["RUN", "--to", "tflite", "--out", "a"], 2, "tflite"),
        (["RUN", "--to", "onnx", "--out", "model"], 2, "model: expected the name of a file"),
        (["RUN", "--to", "onnx", "--out", "no/a.onnx"], 6, "cannot write no/a.onnx"),
        (["RUN", "--to", "onnx", "--out", "there.d"], 6, "cannot write there.d"),
        (["empty", "--to", "onnx", "--out", "a.onnx"], 4, "empty has no checkpoint yet"),
        (["bad.safetensors", "--to", "onnx", "--out", "a.onnx"], 4, "bad.safetensors is no safetensors file"),
        (["RUN", "--to", "onnx", "--out", "empty/config.json"], 2, "empty/config.json is there already and is not"),
        (["RUN", "--to", "onnx", "--out", "README.onnx"], 2, "README.onnx.md is no model card and would be replaced"),
    ],
)
def test_refusals(
    arguments: list[str],
    code: int,
    said: str,
    run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("there.d").mkdir()
    Path("README.onnx.md").write_text("# Mine")
    Path("bad.safetensors").write_bytes(b"<html>")
    Path("empty").mkdir()
    Path("empty/config.json").write_text(json.dumps(json.loads((run / "config.json").read_text())))
    before = sorted(tmp_path.rglob("*"))
    assert main(["export", *(str(run) if a == "RUN" else a for a in arguments)]) == code
    assert said in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before


def test_a_missing_package_is_named_in_a_line_that_installs_it(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="an ONNX file needs onnx and onnxruntime: pip install onnx onnxruntime"):
        scornn.program.deploy.export(run, tmp_path / "a.onnx", "onnx")
    assert list(tmp_path.iterdir()) == []


def test_a_card_that_cannot_be_written_leaves_no_file(run: Path, tmp_path: Path) -> None:
    name = f"{'a' * 221}.safetensors"  # its card's temporary name is two characters too long for a directory
    with pytest.raises(StorageError, match=r"cannot write .*\.md: File name too long"):
        write.export(run, tmp_path / name, "safetensors")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_leaves_the_card_of_the_one_before(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = write.export(run, tmp_path / "a.safetensors", "safetensors")
    card, limit = made.card.read_text(), resource.getrlimit(resource.RLIMIT_FSIZE)
    assert len(card) < made.size
    monkeypatch.setattr(write, "_compare", lambda *_: 0.1)  # which writes a file as large to another place
    for there in (True, False):
        resource.setrlimit(resource.RLIMIT_FSIZE, (made.size - 1, limit[1]))
        try:
            with pytest.raises(StorageError, match="File too large"):
                write.export(run, made.path, "safetensors")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        assert [path.read_text() for path in tmp_path.glob("*.md")] == [card] * there
        made.path.unlink(missing_ok=True)
        made.card.unlink(missing_ok=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.filterwarnings("ignore:LSTM with projections")  # torch's own
def test_a_model_without_a_form_says_which_and_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "projected"
    small = ["--set", "task.train_size=8", "--set", "task.test_size=4", "--tensorboard", "off", "--quiet"]
    train = ["train", "copying", "--model", "lstm", "--hidden", "4", "--length", "3", "--iterations", "1"]
    train += ["--set", "model.options.proj_size=2"]
    assert main([*train, "--threads", "1", "--out", str(run), *small]) == 0
    assert main(["export", str(run), "--to", "onnx", "--out", str(tmp_path / "a.onnx")]) == 2
    assert "an LSTM with proj_size has no frozen form" in capsys.readouterr().err
    assert not (tmp_path / "a.onnx").exists()
    assert main(["export", str(run), "--to", "safetensors", "--out", str(tmp_path / "a.safetensors")]) == 0


def test_the_place_of_the_copy_that_is_checked_is_named(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "full"))
    with pytest.raises(StorageError, match=r"cannot check a copy in .*full: No such file"):
        write.export(run, tmp_path / "a.safetensors", "safetensors")
    assert list(tmp_path.iterdir()) == []
