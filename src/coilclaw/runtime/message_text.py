"""What a user's message may hold: any text that can be stored and sent as it is."""

from __future__ import annotations

from coilclaw.errors import UsageError


def check_message(message: str) -> None:
    """Refuse a message with NUL or with what is not Unicode, rather than change it."""
    if "\0" in message:
        raise UsageError("the message holds the character NUL", rule="text.nul")
    try:
        message.encode("utf-8")
    except UnicodeEncodeError:
        raise not_unicode() from None


def not_unicode() -> UsageError:
    """Return the error for a message that is not text."""
    return UsageError(
        "the message is not valid Unicode", rule="text.unicode", hint="write it in UTF-8"
    )
