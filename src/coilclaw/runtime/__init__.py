"""The agent loop, the guard before every tool call, the emergency stop, and taking turns back."""

from typing import Final

PUBLIC_MODULES: Final = (
    "approvals",
    "checkpoint_place",
    "checkpoint_writer",
    "estop",
    "guard",
    "handle",
    "history",
    "identity",
    "interrupted_calls",
    "loop",
    "message_text",
    "open_turns",
    "prompt",
    "settings",
    "undoing",
)
