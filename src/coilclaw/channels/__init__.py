"""Where a conversation takes place."""

from typing import Final

PUBLIC_MODULES: Final = ("approval", "asking", "contract", "terminal", "visible")
