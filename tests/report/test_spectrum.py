"""Eigenvalues of W, from a real checkpoint and from the small file kept in its place."""

import json
import shutil

import numpy as np
import pytest
import torch

from scornn import nn
from scornn.program.report import spectrum
from scornn.program.report.run_report import report
from scornn.program.train import checkpoint


@pytest.fixture
def trained(tmp_path, runs):
    """A run directory with a checkpoint of a real layer, and the layer."""

    def build(model: str = "scornn", step: int = 30) -> tuple:
        config = runs.config(model=model, hidden=17)
        path = runs.make(tmp_path / model, config, steps=50)
        (path / "spectrum.json").unlink(missing_ok=True)
        layer = nn.build(model, 10, 17, **config["model"]["options"])
        (path / "checkpoints").mkdir()
        weights = nn.SequenceModel(layer, 9).state_dict()
        checkpoint.save(path / "checkpoints", step, weights, {}, {})
        return path, layer

    return build


def in_order(z: np.ndarray) -> np.ndarray:
    return z[np.lexsort((z.imag.round(5), z.real.round(5)))]


def test_spectrum_is_that_of_the_layer(trained):
    path, layer = trained()
    found, reason = spectrum.read(path)
    assert reason == ""
    assert [moment.step for moment in found] == [0, 30]
    W = layer.weight_hh_l0.detach().double().numpy()
    np.testing.assert_allclose(in_order(found[-1].eigenvalues), in_order(np.linalg.eigvals(W)), atol=1e-10)
    np.testing.assert_allclose(np.abs(found[-1].eigenvalues), 1, atol=1e-5)


def test_the_start_is_drawn_again_from_the_seed(trained):
    path, _ = trained()
    torch.manual_seed(1)
    start = nn.build("scornn", 10, 17, rho=8).weight_hh_l0.detach().double().numpy()
    before = torch.get_rng_state()
    found, _ = spectrum.read(path)
    np.testing.assert_allclose(in_order(found[0].eigenvalues), in_order(np.linalg.eigvals(start)), atol=1e-10)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_run_from_other_weights_did_not_start_from_the_seed(trained):
    """Its start is its first checkpoint, or not known."""
    path, layer = trained()
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, "start": "other, step 5"}))
    assert [moment.step for moment in spectrum.read(path)[0]] == [30]
    assert spectrum.to_table(spectrum.read(path)[0])["start"] == []
    start = nn.build("scornn", 10, 17, rho=8)
    checkpoint.save(path / "checkpoints", 0, nn.SequenceModel(start, 9).state_dict(), {}, {})
    found = spectrum.read(path)[0]
    assert [moment.step for moment in found] == [0, 30]
    for moment, of in zip(found, (start, layer), strict=True):
        W = of.weight_hh_l0.detach().double().numpy()
        np.testing.assert_allclose(in_order(moment.eigenvalues), in_order(np.linalg.eigvals(W)), atol=1e-10)


def test_file_stands_in_for_weights(trained):
    path, _ = trained()
    with_weights, _ = spectrum.read(path)
    (path / "spectrum.json").write_text(json.dumps(spectrum.to_table(with_weights)))
    shutil.rmtree(path / "checkpoints")
    kept, reason = spectrum.read(path)
    assert ([moment.step for moment in kept], reason) == ([0, 30], "")
    for before, after in zip(with_weights, kept, strict=True):
        np.testing.assert_allclose(after.eigenvalues, before.eigenvalues, atol=1e-6)
    assert "17 eigenvalues of W and the unit circle" in report([path])


def test_newer_of_checkpoint_and_file_counts(trained):
    path, _ = trained(step=30)
    for step, expected in ((29, 17), (30, 1), (31, 1)):
        (path / "spectrum.json").write_text(json.dumps({"step": step, "eigenvalues": [[1, 0]]}))
        assert spectrum.read(path)[0][-1].eigenvalues.size == expected


def test_no_spectrum_where_W_is_free(trained):
    path, _ = trained("lstm")
    assert spectrum.read(path) == ([], "")


def test_damaged_checkpoint_is_said_and_the_page_made(trained):
    path, _ = trained()
    weights = path / "checkpoints" / "step-30" / "model.safetensors"
    damaged = bytearray(weights.read_bytes())
    damaged[-1] ^= 1
    weights.write_bytes(damaged)
    found, reason = spectrum.read(path)
    assert found == []
    assert "step-30 cannot be used" in reason
    assert "step-30 cannot be used" in report([path])


def test_without_checkpoint_and_file_it_is_said(trained):
    path, _ = trained()
    (path / "checkpoints" / "step-30" / "manifest.json").unlink()
    assert spectrum.read(path) == ([], "no spectrum of W: neither a checkpoint nor spectrum.json is here")
