"""Keep trajectories in a directory or an S3-compatible bucket."""
