"""Keep conversations in SQLite, with full-text search."""
