"""Recurrent layers with the contract of :class:`torch.nn.RNN`, one file for each model family.

Importing this package enters every model into the catalogue, in the order of the lines below.
"""

# isort: off
from scornn.nn.layer import RecurrentLayer as RecurrentLayer
from scornn.nn.catalogue import MODELS as MODELS, build as build, parameter_count as parameter_count
from scornn.nn.scornn import ScoRNN as ScoRNN
from scornn.nn.rnn import RNN as RNN
from scornn.nn.plain import IRNN as IRNN, Henaff as Henaff
from scornn.nn.cell import Cell as Cell, ScoRNNCell as ScoRNNCell
from scornn.nn.gates import GRU as GRU, LSTM as LSTM
from scornn.nn.urnn import URNN as URNN, FullURNN as FullURNN, ScuRNN as ScuRNN
from scornn.nn.eurnn import EURNN as EURNN
from scornn.nn.ornn import ORNN as ORNN
from scornn.nn.goru import GORU as GORU
from scornn.nn.exprnn import DTriv as DTriv, ExpRNN as ExpRNN
from scornn.nn.spectral import SpectralRNN as SpectralRNN
from scornn.nn.linear_memory import LinearMemory as LinearMemory
from scornn.nn.memory_block import MemoryBlock as MemoryBlock, MemoryBlocks as MemoryBlocks
from scornn.nn.model import SequenceModel as SequenceModel
from scornn.nn.stream import Stream as Stream
# isort: on

__all__ = ["build", "parameter_count", *(name for name in dir() if name[0].isupper())]
