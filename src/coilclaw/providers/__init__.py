"""Models behind one protocol: whatever the wire, a request goes out and an answer comes back."""

from typing import Final

PUBLIC_MODULES: Final = (
    "anthropic",
    "endpoint",
    "fallback",
    "fixture",
    "gemini",
    "mock",
    "openai",
    "outputschema",
    "recorded",
    "retry",
    "router",
    "settings",
    "streaming",
)
