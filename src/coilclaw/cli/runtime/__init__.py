"""Commands of the agent: talk, tools, approvals, memory, receipts, policy, SOPs and plugins."""
