"""Recurrent layers with the contract of :class:`torch.nn.RNN`, one file for each model family.

Importing this package enters every model into the catalogue, in the order of the lines below.
"""

# isort: off
from scornn.nn.layer import RecurrentLayer
from scornn.nn.catalogue import MODELS, build, parameter_count
from scornn.nn.scornn import ScoRNN
from scornn.nn.rnn import RNN
from scornn.nn.plain import IRNN, Henaff
from scornn.nn.cell import Cell, ScoRNNCell
from scornn.nn.gates import GRU, LSTM
from scornn.nn.urnn import URNN, FullURNN, ScuRNN
from scornn.nn.eurnn import EURNN
from scornn.nn.ornn import ORNN
from scornn.nn.goru import GORU
from scornn.nn.exprnn import DTriv, ExpRNN
from scornn.nn.spectral import SpectralRNN
from scornn.nn.linear_memory import LinearMemory
from scornn.nn.memory_block import MemoryBlock, MemoryBlocks
from scornn.nn.model import SequenceModel
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
    "ExpRNN",
    "FullURNN",
    "Henaff",
    "LinearMemory",
    "MemoryBlock",
    "MemoryBlocks",
    "RecurrentLayer",
    "ScoRNN",
    "ScoRNNCell",
    "ScuRNN",
    "SequenceModel",
    "SpectralRNN",
    "build",
    "parameter_count",
]
