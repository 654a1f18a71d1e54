"""Read, check, edit and show the configuration."""
