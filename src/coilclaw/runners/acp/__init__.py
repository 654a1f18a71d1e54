"""Run agents that speak the Agent Client Protocol, opencode among them."""
