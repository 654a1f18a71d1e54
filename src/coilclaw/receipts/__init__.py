"""The records of tool calls: intents before, receipts after, verification and export."""

from typing import Final

PUBLIC_MODULES: Final = (
    "book",
    "export",
    "log_checkpoint",
    "records",
    "settlement",
    "verification",
)
