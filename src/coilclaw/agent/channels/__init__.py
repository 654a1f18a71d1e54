"""Hold a conversation on a terminal: one message, a session, approval prompts."""
