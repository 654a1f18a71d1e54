"""The agent loop, the guard before every tool call, the emergency stop, and taking turns back."""

from typing import Final

PUBLIC_MODULES: Final = (
    "approvals",
    "estop",
    "guard",
    "handle",
    "identity",
    "loop",
    "prompt",
    "settings",
    "undoing",
)
