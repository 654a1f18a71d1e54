"""Run Codex: its private home, its app-server and what it reports."""
