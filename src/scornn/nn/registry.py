"""Every model under the name by which the command line and the presets know it, with its equation and its source."""

from __future__ import annotations

import difflib
from typing import Any, NamedTuple

from torch import nn

from scornn.nn.eurnn import EURNN
from scornn.nn.exprnn import DTriv, ExpRNN
from scornn.nn.full_urnn import FullURNN
from scornn.nn.goru import GORU
from scornn.nn.gru import GRU
from scornn.nn.henaff import Henaff
from scornn.nn.lstm import LSTM
from scornn.nn.ornn import ORNN
from scornn.nn.rnn import IRNN, RNN
from scornn.nn.scornn import ScoRNN
from scornn.nn.scurnn import ScuRNN
from scornn.nn.spectral import SpectralRNN
from scornn.nn.urnn import URNN


class Model(NamedTuple):
    """A layer class and what ``scornn models`` says about it."""

    layer: type[nn.Module]
    summary: str
    equation: str
    source: str


CATALOGUE: dict[str, Model] = {
    "scornn": Model(
        ScoRNN,
        "orthogonal by the scaled Cayley transform",
        "W = (I + A)⁻¹(I − A)D, Aᵀ = −A, D = diag(±1)",
        "Helfrich, Willmott and Ye, ICML 2018",
    ),
    "rnn": Model(RNN, "plain recurrent network", "h' = tanh(Ux + Wh + b)", "Elman, 1990"),
    "irnn": Model(
        IRNN, "ReLU network started at the identity", "h' = relu(Ux + Wh + b), W = I at the start", "Le et al., 2015"
    ),
    "lstm": Model(
        LSTM, "long short-term memory", "c' = f ⊙ c + i ⊙ g, h' = o ⊙ tanh c'", "Hochreiter and Schmidhuber, 1997"
    ),
    "gru": Model(GRU, "gated recurrent unit", "h' = z ⊙ h + (1 − z) ⊙ n", "Cho et al., 2014"),
    "urnn": Model(
        URNN,
        "unitary, restricted capacity",
        "W = D₃R₂F⁻¹D₂ΠR₁FD₁",
        "Arjovsky, Shah and Bengio, ICML 2016",
    ),
    "full-urnn": Model(
        FullURNN,
        "unitary, full capacity; needs optim.StiefelStep",
        "W ← (I + λB/2)⁻¹(I − λB/2)W, B = GW* − WG*",
        "Wisdom et al., NIPS 2016",
    ),
    "eurnn": Model(
        EURNN,
        "unitary by layers of rotations, tunable capacity",
        "W = diag(e^{iω}) R_L ⋯ R₁",
        "Jing et al., ICML 2017",
    ),
    "ornn": Model(
        ORNN,
        "orthogonal by Householder reflections",
        "W = H(u₁) ⋯ H(u_k), H(u) = I − 2uuᵀ/uᵀu",
        "Mhammedi et al., ICML 2017",
    ),
    "goru": Model(
        GORU,
        "gated unit with an orthogonal matrix inside",
        "h' = g ⊙ h + (1 − g) ⊙ modReLU(r ⊙ (Wh) + Ux), W = R_L ⋯ R₁",
        "Jing et al., Neural Computation 2019",
    ),
    "exprnn": Model(
        ExpRNN,
        "orthogonal by the exponential map",
        "W = exp(A), Aᵀ = −A",
        "Lezcano-Casado and Martínez-Rubio, ICML 2019",
    ),
    "dtriv": Model(
        DTriv,
        "the exponential map around a base that follows W",
        "W = B exp(A); every K steps B ← W, A ← 0",
        "Lezcano-Casado, NeurIPS 2019",
    ),
    "scurnn": Model(
        ScuRNN,
        "unitary by the scaled Cayley transform, phases trained",
        "W = (I + A)⁻¹(I − A)D, A* = −A, D = diag(e^{iθ})",
        "Maduranga, Helfrich and Ye, AAAI 2019",
    ),
    "spectral": Model(
        SpectralRNN,
        "singular values within a margin of 1",
        "W = P diag(s) Q, |s − 1| ≤ margin",
        "Vorontsov et al., ICML 2017",
    ),
    "henaff": Model(
        Henaff,
        "orthogonal at the start only",
        "h' = σ(Ux + Wh), W = exp(A) at the start",
        "Henaff, Szlam and LeCun, ICML 2016",
    ),
}

MODELS: dict[str, type[nn.Module]] = {name: model.layer for name, model in CATALOGUE.items()}


def build(name: str, input_size: int, hidden_size: int, **options: Any) -> nn.Module:
    """A layer of the named model.

    Example:
        >>> build("scornn", 1, 16, rho=8)
        ScoRNN(1, 16, rho=8)
    """
    if name not in MODELS:
        close = difflib.get_close_matches(name, MODELS, n=1)
        raise ValueError(
            f"unknown model {name!r}; "
            + (f"did you mean {close[0]!r}? " if close else "")
            + f"The models are: {', '.join(MODELS)}"
        )
    return MODELS[name](input_size, hidden_size, **options)


def parameter_count(model: nn.Module) -> int:
    """Trained numbers, less those that a constraint takes away: what the paper's tables count.

    Example:
        >>> from scornn.nn import ScoRNN, SequenceModel
        >>> parameter_count(SequenceModel(ScoRNN(1, 170), 10))
        16415
    """
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    return trained - sum(getattr(module, "constraints", int)() for module in model.modules())
