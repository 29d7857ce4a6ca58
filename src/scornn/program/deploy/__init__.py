"""From a run to a product: load a trained network, freeze it, export it."""

from scornn.program.deploy.frozen import Frozen
from scornn.program.deploy.network import Network, load
from scornn.program.deploy.write import export

__all__ = ["Frozen", "Network", "export", "load"]
