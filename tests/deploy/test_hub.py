"""A network goes into a folder of a model hub and comes back the same."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import scornn


def test_round_trip_on_a_local_folder(run: Path, tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub")
    from scornn.deploy.hub import HubNetwork

    network, x = scornn.load(run), torch.randn(4, 2, 10)
    HubNetwork(network).save_pretrained(tmp_path / "hub")
    assert "library_name: scornn" in (tmp_path / "hub" / "README.md").read_text()
    again = HubNetwork.from_pretrained(str(tmp_path / "hub")).network
    assert torch.equal(again(x), network(x))
    assert again.task == network.task


def test_what_is_saved_is_the_network_as_it_is(run: Path, tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub")
    from scornn.deploy.hub import HubNetwork

    network, x = scornn.load(run), torch.randn(4, 2, 10)
    with torch.no_grad():
        network.layer.skew_hh_l0.add_(0.3)
    HubNetwork(network).save_pretrained(tmp_path / "hub")
    assert sorted(path.name for path in (tmp_path / "hub").iterdir()) == ["README.md", "weights.safetensors"]
    assert "No figures were stored with the weights." in (tmp_path / "hub" / "README.md").read_text()
    assert torch.equal(HubNetwork.from_pretrained(str(tmp_path / "hub")).network(x), network(x))
