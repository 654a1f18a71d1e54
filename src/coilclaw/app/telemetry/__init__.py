"""Format and redact what packages log."""
