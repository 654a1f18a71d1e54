"""Commands that set up and serve: configuration, keys, tokens, agents and services."""
