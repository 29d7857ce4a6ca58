"""Scores of rebuilt speech: SegSNR, STOI, PESQ."""

from scornn.metrics.base import ScoreRefused, ScoreUnavailable
from scornn.metrics.pesq import pesq
from scornn.metrics.segsnr import segsnr
from scornn.metrics.stoi import stoi

__all__ = ["ScoreRefused", "ScoreUnavailable", "pesq", "segsnr", "stoi"]
