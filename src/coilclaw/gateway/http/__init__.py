"""Bound, admit and answer HTTP requests."""
