"""Recurrent layers with the contract of :class:`torch.nn.RNN`, one file for each model family.

Importing this package enters every model into the catalogue, in the order of the lines below.
"""

# isort: off
from scornn.nn.base import DenseRecurrentLayer, OrthogonalRecurrentLayer
from scornn.nn.layer import RecurrentLayer
from scornn.nn.catalogue import MODELS, build, parameter_count
from scornn.nn.cell import Cell
from scornn.nn.scornn import ScoRNN, ScoRNNCell
from scornn.nn.rnn import IRNN, RNN
from scornn.nn.gates import GRU, LSTM
from scornn.nn.urnn import URNN, FullURNN
from scornn.nn.eurnn import EURNN
from scornn.nn.ornn import ORNN
from scornn.nn.goru import GORU
from scornn.nn.exprnn import DTriv, ExpRNN
from scornn.nn.scurnn import ScuRNN
from scornn.nn.spectral import SpectralRNN
from scornn.nn.henaff import Henaff
from scornn.nn.linear_memory import LinearMemory
from scornn.nn.memory_block import MemoryBlock, MemoryBlocks
from scornn.nn.model import SequenceModel
from scornn.nn.stream import Stream
# isort: on

__all__ = [
    "EURNN",
    "GORU",
    "GRU",
    "IRNN",
    "LSTM",
    "MODELS",
    "ORNN",
    "RNN",
    "URNN",
    "Cell",
    "DTriv",
    "DenseRecurrentLayer",
    "ExpRNN",
    "FullURNN",
    "Henaff",
    "LinearMemory",
    "MemoryBlock",
    "MemoryBlocks",
    "OrthogonalRecurrentLayer",
    "RecurrentLayer",
    "ScoRNN",
    "ScoRNNCell",
    "ScuRNN",
    "SequenceModel",
    "SpectralRNN",
    "Stream",
    "build",
    "parameter_count",
]
