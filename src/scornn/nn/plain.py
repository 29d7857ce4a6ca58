"""Networks whose matrix is free: the plain RNN, and two that differ from it in their start alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from scornn.nn.catalogue import model
from scornn.nn.rnn import RNN

model(
    "rnn",
    label="RNN",
    colour=6,
    marker="*",
    summary="plain recurrent network",
    equation="h' = tanh(Ux + Wh + b)",
    source="Elman, 1990",
    bench=(116, 360, 512),
)(RNN)


@model(
    "irnn",
    label="IRNN",
    colour=1,
    marker="o",
    summary="ReLU network started at the identity",
    equation="h' = relu(Ux + Wh + b), W = I at the start",
    source="Le et al., 2015",
    bench=(170,),
)
class IRNN(RNN):
    r"""The ReLU network that starts at the identity, with b = 0 (Le, Jaitly and Hinton, 2015).

    U is Glorot-uniform, as in the uRNN authors' program; the publication draws it from N(0, 0.001).

    Example:
        >>> torch.equal(IRNN(3, 5).weight_hh_l0, torch.eye(5))
        True
    """

    matrix_options: ClassVar[Mapping[str, Any]] = {"start": "identity"}
    default_nonlinearity = "relu"


@model(
    "henaff",
    label="Henaff",
    colour=7,
    marker="P",
    summary="orthogonal at the start only",
    equation="h' = σ(Ux + Wh), W = exp(A) at the start",
    source="Henaff, Szlam and LeCun, ICML 2016",
    bench=(170,),
)
class Henaff(RNN):
    r"""A plain network that starts at a random rotation (Henaff, Szlam and LeCun, 2016).

    W = exp(A) at the start, with angles from U(−π, π) in 2 × 2 blocks of A, and is trained without a constraint, which
    shows what keeping it orthogonal adds. σ is modReLU unless said otherwise, so that only the constraint sets it apart
    from :class:`~scornn.nn.ScoRNN`; the publication studies linear transitions (``nonlinearity="identity"``).
    """

    matrix_options: ClassVar[Mapping[str, Any]] = {"start": "rotation"}
    default_nonlinearity = "modrelu"
