"""Run standard operating procedures: stages, conditions, and runs that survive a kill."""
