"""Carry out a run: its stages, commands, approvals, locks and worktrees."""
