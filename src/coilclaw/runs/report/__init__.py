"""Render a run as a page."""
