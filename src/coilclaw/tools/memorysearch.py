"""``memory_search``: what was said in earlier conversations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coilclaw.domain.effects import Consults
from coilclaw.tools import output
from coilclaw.tools.basis import Basis, Ready, closed, success, text, whole

if TYPE_CHECKING:
    from coilclaw.domain.effects import Effect
    from coilclaw.domain.messages import Json
    from coilclaw.domain.toolcalls import ToolResult
    from coilclaw.tools.contract import Arguments, Prepared, ToolContext

MAX_QUERY: Final = 500
MAX_HITS: Final = 50
DEFAULT_HITS: Final = 10


class MemorySearch(Basis):
    """Searches the memory."""

    name: Final = "memory_search"
    description: Final = (
        "Search earlier conversations for words. Returns the best matches, each with its "
        "conversation id, time and an excerpt."
    )
    parameters_schema: Final[dict[str, Json]] = closed(
        {
            "query": {
                "type": "string",
                "minLength": 1,
                "maxLength": MAX_QUERY,
                "description": "words to look for",
            },
            "limit": {
                "type": "integer",
                "minimum": 1,
                "maximum": MAX_HITS,
                "description": f"how many matches at most (default {DEFAULT_HITS})",
            },
        },
        "query",
    )

    def effects(self, args: Arguments) -> tuple[Effect, ...]:
        text(args, "query")
        return (Consults("memory"),)

    def prepare(self, args: Arguments, context: ToolContext) -> Prepared:
        query, limit = text(args, "query"), whole(args, "limit", DEFAULT_HITS)
        limit = min(max(limit, 1), MAX_HITS)
        return Ready((f"search the memory for {query!r}",), lambda: _found(query, limit, context))


def _found(query: str, limit: int, context: ToolContext) -> ToolResult:
    hits = context.recall(query, limit)[:limit]
    if not hits:
        return success("nothing was found", {"hits": 0})
    lines = [
        f"[{hit.timestamp}] {hit.role}, conversation {hit.conversation_id}: {hit.excerpt}"
        for hit in hits
    ]
    told = output.middle_cut("\n".join(lines), context.limits.output_bytes)
    return success(told, {"hits": len(hits)})
