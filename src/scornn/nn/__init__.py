"""Recurrent layers with the contract of :class:`torch.nn.RNN`, one file for each model family."""

from scornn.nn.base import DenseRecurrentLayer, OrthogonalRecurrentLayer, RecurrentLayer
from scornn.nn.model import SequenceModel
from scornn.nn.registry import MODELS, build, parameter_count
from scornn.nn.scornn import ScoRNN, ScoRNNCell

__all__ = [
    "MODELS",
    "DenseRecurrentLayer",
    "OrthogonalRecurrentLayer",
    "RecurrentLayer",
    "ScoRNN",
    "ScoRNNCell",
    "SequenceModel",
    "build",
    "parameter_count",
]
