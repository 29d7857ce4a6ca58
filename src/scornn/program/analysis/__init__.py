"""What training does to a network: gradient norms through time, orthogonality of W, seconds per step."""

from scornn.program.analysis.gradients import gradient_norms
from scornn.program.analysis.orthogonality import drift
from scornn.program.analysis.timing import seconds_per_step

__all__ = ["drift", "gradient_norms", "seconds_per_step"]
