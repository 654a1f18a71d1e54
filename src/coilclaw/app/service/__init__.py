"""Install CoilClaw as a service of the system."""
