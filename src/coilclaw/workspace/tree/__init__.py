"""Resolve, read and write files of a tree: plans, journals, change records and undo."""
