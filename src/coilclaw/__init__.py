"""CoilClaw: a governed coding-agent runtime."""

__version__ = "0.1.0"
