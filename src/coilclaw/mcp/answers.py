"""What a foreign tool answered, as text for a model; what is no text is described."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.mcp.foreigntext import plain

if TYPE_CHECKING:
    from mcp.types import CallToolResult, ContentBlock

MAX_BLOCKS: Final = 1000
_SHORT: Final = 200


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of one call; ``failed`` is what the server says about it."""

    text: str
    failed: bool


def answer(result: CallToolResult) -> Answer:
    """Put the parts of a result together."""
    parts = [_told(block) for block in result.content[:MAX_BLOCKS]]
    if len(result.content) > MAX_BLOCKS:
        parts.append(f"[{len(result.content) - MAX_BLOCKS} more parts are left out]")
    if not parts and result.structured_content is not None:
        parts.append(json.dumps(result.structured_content, ensure_ascii=False))
    return Answer("\n".join(parts), result.is_error)


def _told(block: ContentBlock) -> str:
    match block.type:
        case "text":
            return block.text
        case "image" | "audio":
            kind = plain(block.mime_type, _SHORT)
            return f"[{block.type}, {kind}, {len(block.data)} characters of base64: not shown]"
        case "resource_link":
            return f"[link to {plain(block.name, _SHORT)}: {plain(str(block.uri), _SHORT)}]"
        case "resource":
            where = plain(str(block.resource.uri), _SHORT)
            text = getattr(block.resource, "text", None)
            if isinstance(text, str):
                return f"[resource {where}]\n{text}"
            return f"[resource {where}: not text, not shown]"
