"""Everything that listens: our own endpoints, and the door for clients of the OpenAI protocol."""

from typing import Final

PUBLIC_MODULES: Final = (
    "agent",
    "clients",
    "envserver",
    "feed",
    "gathering",
    "known_clients",
    "listening",
    "metrics",
    "parts",
    "runkeeper",
    "server",
    "settings",
    "sop_keeper",
    "token",
    "token_store",
)
