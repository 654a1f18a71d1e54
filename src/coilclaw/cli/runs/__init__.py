"""Commands of contracts and runs."""
