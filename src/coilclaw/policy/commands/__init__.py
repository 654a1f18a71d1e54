"""Judge one simple command: what a program reads, writes, runs and fetches, by its own rules."""
