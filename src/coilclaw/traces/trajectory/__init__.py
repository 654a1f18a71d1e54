"""Record a trajectory: turns, parts, checkpoints, resume and uploads."""
