"""From a configuration to trained weights: config, loop, checkpoints, run directory, several processes."""
