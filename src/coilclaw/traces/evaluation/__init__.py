"""Judge, compare, bisect and plot recorded trajectories."""
