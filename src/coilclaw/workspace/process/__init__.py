"""Start programs: captured or live, in a sandbox, with limits."""
