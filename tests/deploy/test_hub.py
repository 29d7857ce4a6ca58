"""A network goes into a folder of a model hub and comes back the same."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import scornn
from scornn.errors import UsageError


def test_round_trip_on_a_local_folder(run: Path, tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub")
    from scornn.program.deploy.hub import HubNetwork

    network, x = scornn.load(run), torch.randn(4, 2, 10)
    HubNetwork(network).save_pretrained(tmp_path / "hub")
    assert "library_name: scornn" in (tmp_path / "hub" / "README.md").read_text()
    again = HubNetwork.from_pretrained(str(tmp_path / "hub")).network
    assert torch.equal(again(x), network(x))
    assert again.task == network.task


def test_what_is_saved_is_the_network_as_it_is(run: Path, tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub")
    from scornn.program.deploy.hub import HubNetwork

    network, x = scornn.load(run), torch.randn(4, 2, 10)
    with torch.no_grad():
        network.layer.skew_hh_l0.add_(0.3)
    HubNetwork(network).save_pretrained(tmp_path / "hub")
    assert sorted(path.name for path in (tmp_path / "hub").iterdir()) == ["README.md", "weights.safetensors"]
    assert "No figures were stored with the weights." in (tmp_path / "hub" / "README.md").read_text()
    assert torch.equal(HubNetwork.from_pretrained(str(tmp_path / "hub")).network(x), network(x))


def test_notes_of_ones_own_are_not_replaced_by_a_card(run: Path, tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub")
    from scornn.program.deploy.hub import HubNetwork

    (tmp_path / "README.md").write_text("my own notes")
    with pytest.raises(UsageError, match=r"README\.md is no model card"):
        HubNetwork(scornn.load(run)).save_pretrained(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]
    assert (tmp_path / "README.md").read_text() == "my own notes"
