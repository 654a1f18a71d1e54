"""Commands of trajectories and environments."""
