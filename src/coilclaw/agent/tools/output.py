"""Cut the output of tools to its bound, with a notice of how much is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from coilclaw.workspace import Captured

NOTICE_BYTES: Final = 80
"""Bytes reserved for the notice."""


def text_size(text: str) -> int:
    """Return the number of UTF-8 bytes of a text; a surrogate counts as its replacement."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def middle_cut(text: str, limit: int, *, dropped: int = 0, at: int | None = None) -> str:
    """Return the beginning and the end of a text, at most ``limit`` bytes in total.

    ``dropped`` bytes are already missing before the character ``at``.
    """
    raw = text.encode("utf-8", "replace")
    if len(raw) <= limit and not dropped:
        return text
    if limit < 2 * NOTICE_BYTES:  # no room for a notice
        return end_cut(text, limit)[0]
    if at is not None and len(raw) + NOTICE_BYTES <= limit:
        head, tail = text[:at].encode("utf-8", "replace"), text[at:].encode("utf-8", "replace")
    else:
        keep = max(limit - NOTICE_BYTES, 0)
        head, tail = raw[: keep - keep // 2], raw[len(raw) - keep // 2 :]
    lost = dropped + len(raw) - len(head) - len(tail)
    return f"{_decode_whole(head)}\n[… {lost} bytes are cut here …]\n{_decode_whole(tail)}"


def end_cut(text: str, limit: int) -> tuple[str, int]:
    """Return the beginning of a text, at most ``limit`` bytes, and the number of missing bytes."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= limit:
        return text, 0
    kept = _decode_whole(raw[: max(limit, 0)])
    return kept, len(raw) - text_size(kept)


def cut_captured(stream: Captured, limit: int) -> str:
    """Return the captured output of a process, at most ``limit`` bytes."""
    head = stream.head.decode("utf-8", "replace")
    tail = stream.tail.decode("utf-8", "replace")
    return middle_cut(head + tail, limit, dropped=stream.dropped, at=len(head))


def _decode_whole(raw: bytes) -> str:
    """Decode a piece of UTF-8 without the incomplete characters at its ends."""
    return raw.decode("utf-8", "ignore")
