"""Keeping what a tool found within its bound, with the cut said in so many words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from coilclaw.workspace import Captured

NOTICE_BYTES: Final = 80
"""Room for the words that say how much is missing."""


def text_size(text: str) -> int:
    """How many bytes a text has; one that is no Unicode counts as it would be replaced."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def middle_cut(text: str, limit: int, *, dropped: int = 0, at: int | None = None) -> str:
    """Return a text of at most ``limit`` bytes: its beginning and its end.

    ``dropped`` bytes are missing from it already, before the character ``at``.
    """
    raw = text.encode("utf-8", "replace")
    if len(raw) <= limit and not dropped:
        return text
    if limit < 2 * NOTICE_BYTES:  # no room for words about it
        return end_cut(text, limit)[0]
    if at is not None and len(raw) + NOTICE_BYTES <= limit:
        head, tail = text[:at].encode("utf-8", "replace"), text[at:].encode("utf-8", "replace")
    else:
        keep = max(limit - NOTICE_BYTES, 0)
        head, tail = raw[: keep - keep // 2], raw[len(raw) - keep // 2 :]
    lost = dropped + len(raw) - len(head) - len(tail)
    return f"{_whole(head)}\n[… {lost} bytes are cut here …]\n{_whole(tail)}"


def end_cut(text: str, limit: int) -> tuple[str, int]:
    """Return the beginning of a text, at most ``limit`` bytes, and how many are missing."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= limit:
        return text, 0
    kept = _whole(raw[: max(limit, 0)])
    return kept, len(raw) - text_size(kept)


def cut_captured(stream: Captured, limit: int) -> str:
    """Return what a process wrote, at most ``limit`` bytes of it."""
    head = stream.head.decode("utf-8", "replace")
    tail = stream.tail.decode("utf-8", "replace")
    return middle_cut(head + tail, limit, dropped=stream.dropped, at=len(head))


def _whole(raw: bytes) -> str:
    """Decode a piece that was cut anywhere; a character that was cut is left out."""
    return raw.decode("utf-8", "ignore")
