"""Makers of W, one module each: they serve a layer, a cell, and any module of torch."""

from scornn.matrices.bank import Bank
from scornn.matrices.base import Constant, Matrix
from scornn.matrices.caching import cached
from scornn.matrices.cayley import ScaledCayley, UnitaryCayley
from scornn.matrices.exponential import Exponential, MovingExponential
from scornn.matrices.free import Free
from scornn.matrices.householder import Householder
from scornn.matrices.rotations import Rotations
from scornn.matrices.spectral import Spectral
from scornn.matrices.unitary import FourierProduct, Unitary

__all__ = [
    "Bank",
    "Constant",
    "Exponential",
    "FourierProduct",
    "Free",
    "Householder",
    "Matrix",
    "MovingExponential",
    "Rotations",
    "ScaledCayley",
    "Spectral",
    "Unitary",
    "UnitaryCayley",
    "cached",
]
