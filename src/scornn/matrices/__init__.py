"""Makers of W, one module each: they serve a layer, a cell, and any module of torch."""

from scornn.matrices.bank import Bank as Bank
from scornn.matrices.base import Constant as Constant
from scornn.matrices.base import Matrix as Matrix
from scornn.matrices.caching import cached as cached
from scornn.matrices.cayley import ScaledCayley as ScaledCayley
from scornn.matrices.cayley import UnitaryCayley as UnitaryCayley
from scornn.matrices.exponential import Exponential as Exponential
from scornn.matrices.exponential import MovingExponential as MovingExponential
from scornn.matrices.free import Free as Free
from scornn.matrices.householder import Householder as Householder
from scornn.matrices.rotations import Rotations as Rotations
from scornn.matrices.spectral import Spectral as Spectral
from scornn.matrices.unitary import FourierProduct as FourierProduct
from scornn.matrices.unitary import Unitary as Unitary

__all__ = ["cached", *(name for name in dir() if name[0].isupper())]
