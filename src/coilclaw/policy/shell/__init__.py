"""Read a shell script without running it, and refuse what cannot be understood."""
