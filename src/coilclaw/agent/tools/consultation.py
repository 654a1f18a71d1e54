"""``time``, ``ask_user`` and ``memory_search``: tools that consult something other than files."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Final

from coilclaw.agent.tools import output
from coilclaw.agent.tools.contract import (
    ReadyCall,
    Tool,
    count_schema,
    failure,
    integer_argument,
    object_schema,
    success,
    text_argument,
    text_schema,
)
from coilclaw.kernel import Consults

if TYPE_CHECKING:
    from datetime import datetime

    from coilclaw.agent.tools.contract import Arguments, ToolContext
    from coilclaw.kernel import Effect, ToolResult

MAX_QUESTION: Final = 2000
MAX_QUERY: Final = 500
MAX_HITS: Final = 50
DEFAULT_HITS: Final = 10


class Time(Tool):
    """Tells the local time and UTC."""

    name = "time"
    description = "Tell the current local time, UTC time and time zone."
    parameters_schema = object_schema({})

    def effects(self, args: Arguments) -> tuple[Effect, ...]:  # noqa: ARG002 - it takes none
        return (Consults("clock"),)

    def prepare(self, args: Arguments, context: ToolContext) -> ReadyCall:  # noqa: ARG002 - as above
        return ReadyCall(("look at the clock",), lambda: _tell_time(context.now()))


def _tell_time(now: datetime) -> ToolResult:
    local = now.astimezone() if now.tzinfo is None else now
    offset = local.strftime("%z")
    times = {
        "local": local.isoformat(timespec="seconds"),
        "utc": f"{local.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}",
        "zone": f"{local.tzname() or 'local'} (UTC{offset[:3]}:{offset[3:5]})",
    }
    return success("\n".join(f"{label}: {value}" for label, value in times.items()), {**times})


class AskUser(Tool):
    """Asks the user a question."""

    name = "ask_user"
    description = (
        "Ask the user one question and wait for the answer. Only for what cannot be found out."
    )
    parameters_schema = object_schema(
        {"question": text_schema(MAX_QUESTION, "the question, in one or two sentences")}, "question"
    )

    def effects(self, args: Arguments) -> tuple[Effect, ...]:
        text_argument(args, "question")
        return (Consults("user"),)

    def prepare(self, args: Arguments, context: ToolContext) -> ReadyCall:
        question = text_argument(args, "question")

        def ask() -> ToolResult:
            answer = context.ask(question)
            if answer is None:
                return failure("no user can be asked", rule="ask.nobody")
            return success(output.middle_cut(answer, context.limits.output_bytes))

        return ReadyCall((f"ask: {question}",), ask)


class MemorySearch(Tool):
    """Searches earlier conversations."""

    name = "memory_search"
    description = (
        "Search earlier conversations for words. Returns the best matches, each with its "
        "conversation id, time and an excerpt."
    )
    parameters_schema = object_schema(
        {
            "query": text_schema(MAX_QUERY, "words to look for"),
            "limit": count_schema(MAX_HITS, f"how many matches at most (default {DEFAULT_HITS})"),
        },
        "query",
    )

    def effects(self, args: Arguments) -> tuple[Effect, ...]:
        text_argument(args, "query")
        return (Consults("memory"),)

    def prepare(self, args: Arguments, context: ToolContext) -> ReadyCall:
        query = text_argument(args, "query")
        limit = min(max(integer_argument(args, "limit", DEFAULT_HITS), 1), MAX_HITS)

        def search() -> ToolResult:
            lines = [
                f"[{hit.timestamp}] {hit.role}, conversation {hit.conversation_id}: {hit.excerpt}"
                for hit in context.recall(query, limit)[:limit]
            ]
            told = "\n".join(lines) or "nothing was found"
            told = output.middle_cut(told, context.limits.output_bytes)
            return success(told, {"hits": len(lines)})

        return ReadyCall((f"search the memory for {query!r}",), search)
