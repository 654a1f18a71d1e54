"""The events that packages log, by name."""

from __future__ import annotations

from typing import Final

EVENTS: Final[tuple[tuple[str, str], ...]] = (
    ("startup", "a command of the agent began"),
    ("config_path", "which configuration is read"),
    ("workspace_path", "which workspace the tools work in"),
    ("provider_selected", "which provider and model are asked"),
    ("channel_started", "messages are taken from a channel"),
    ("conversation_started", "a conversation began, or goes on"),
    ("tool_requested", "the model asks for a tool call"),
    ("tool_approved", "a call may run: policy allows it, or a person said yes"),
    ("tool_denied", "a call may not run, with the rule that says so"),
    ("tool_completed", "a call ran and succeeded"),
    ("tool_failed", "a call ran and did not succeed"),
    ("receipt_written", "the receipt of a call is in the chain"),
    ("checkpoint_written", "a checkpoint of the receipts or of a run is where it was to go"),
    ("checkpoint_failed", "a checkpoint could not be written; no receipt is lost"),
    ("memory_persisted", "a message is in the memory"),
    ("estop_triggered", "the emergency stop is on, and a call was stopped or not begun"),
    ("provider_fallback", "a provider failed, and the next one is asked"),
)
"""Name and meaning of every event, in the order in which they usually come."""
