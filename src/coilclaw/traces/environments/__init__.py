"""Declare, load and judge tasks with tests; fixtures, sessions and self-checks."""
