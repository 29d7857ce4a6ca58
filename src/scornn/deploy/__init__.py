"""From a run to a product: load a trained network, freeze it, export it."""

from scornn.deploy.frozen import Frozen
from scornn.deploy.network import Network, load
from scornn.deploy.write import export

__all__ = ["Frozen", "Network", "export", "load"]
