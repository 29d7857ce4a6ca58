"""Scores of rebuilt speech: SegSNR, STOI, PESQ."""

from scornn.program.metrics.scores import ScoreRefused, ScoreUnavailable, pesq, segsnr, stoi

__all__ = ["ScoreRefused", "ScoreUnavailable", "pesq", "segsnr", "stoi"]
