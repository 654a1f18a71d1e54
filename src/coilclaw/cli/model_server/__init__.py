"""Serve scripted model answers over the wire formats of real services."""
