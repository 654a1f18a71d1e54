"""Serve environments as an HTTP runtime."""
