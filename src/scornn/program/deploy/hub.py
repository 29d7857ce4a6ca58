"""Networks on model hubs, through huggingface_hub's mixin: ``pip install huggingface_hub``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from huggingface_hub import ModelHubMixin, hf_hub_download

from scornn.program.deploy.network import Network, load
from scornn.program.deploy.write import check_card_place, export
from scornn.program.train import weights


class HubNetwork(ModelHubMixin):
    """A network with ``save_pretrained``, ``push_to_hub`` and ``from_pretrained``.

    A folder or repository holds ``weights.safetensors`` and the model card as ``README.md``.

    Example:
        >>> HubNetwork(network).push_to_hub("user/name")  # doctest: +SKIP
        >>> HubNetwork.from_pretrained("user/name").network  # doctest: +SKIP
    """

    def __init__(self, network: Network) -> None:
        self.network = network

    def _save_pretrained(self, save_directory: Path) -> None:
        check_card_place(save_directory / "README.md", "another folder")
        written = export(self.network, save_directory / weights.FILE, "safetensors")
        written.card.replace(save_directory / "README.md")

    @classmethod
    def _from_pretrained(cls, *, model_id: str, **options: Any) -> HubNetwork:
        folder = Path(model_id)
        if folder.is_dir():
            return cls(load(folder / weights.FILE))
        wanted = ("revision", "cache_dir", "force_download", "local_files_only", "token")
        passed = {name: options[name] for name in wanted if options.get(name) is not None}
        return cls(load(hf_hub_download(model_id, weights.FILE, **passed)))
