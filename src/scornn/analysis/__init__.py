"""What training does to a network: gradient norms through time, orthogonality of W, seconds per step."""

from scornn.analysis.gradients import gradient_norms
from scornn.analysis.orthogonality import drift
from scornn.analysis.timing import seconds_per_step

__all__ = ["drift", "gradient_norms", "seconds_per_step"]
