"""What clients of the gateway do, watched: requests to models, calls of tools, what they recall."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, cast

from coilclaw.gateway.metrics import OTHER

if TYPE_CHECKING:
    from collections.abc import Callable, Container
    from contextlib import AbstractContextManager

    from coilclaw.domain.messages import (
        ChatRequest,
        ChatResponse,
        Provider,
        ProviderCapabilities,
        StreamingProvider,
        ToolCall,
    )
    from coilclaw.domain.toolcalls import ToolResult
    from coilclaw.gateway.clients import Client
    from coilclaw.gateway.metrics import Metrics
    from coilclaw.mcp.offering import Call as MadeCall
    from coilclaw.memory.store import Memory
    from coilclaw.tools.contract import ToolContext
    from coilclaw.workspace.process import Cancellation

_RULE: Final = re.compile(r"[a-z0-9_.]{0,64}")


@dataclass(frozen=True, slots=True)
class WatchedProvider:
    """A provider that is not asked once turns are halted, and whose errors and tokens count."""

    inner: Provider
    around: Callable[[ChatRequest], AbstractContextManager[None]]
    """What a request to the model is made in; it may refuse to begin, and to end."""
    used: Callable[[ChatRequest, ChatResponse], None]

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def capabilities(self) -> ProviderCapabilities:
        return self.inner.capabilities

    def chat(self, request: ChatRequest) -> ChatResponse:
        return self._asked(request, lambda: self.inner.chat(request))

    def stream(self, request: ChatRequest, draft: Callable[[str], None]) -> ChatResponse:
        inner = cast("StreamingProvider", self.inner)
        return self._asked(request, lambda: inner.stream(request, draft))

    def _asked(self, request: ChatRequest, ask: Callable[[], ChatResponse]) -> ChatResponse:
        with self.around(request):
            response = ask()
        self.used(request, response)
        return response


@dataclass(frozen=True, slots=True)
class ToolCounter:
    """Counts calls by tool, status and rule; what a model or client made up is ``other``."""

    metrics: Metrics
    tools: Container[str]

    def __call__(self, call: ToolCall, result: ToolResult) -> None:
        status = str(result.metadata.get("status", "denied"))
        rule = "" if result.success else str(result.metadata.get("rule", ""))
        self.metrics.count_as(
            "tool_calls_total",
            call.name if call.name in self.tools else OTHER,
            status,
            rule if _RULE.fullmatch(rule) else OTHER,
        )
        if status == "denied":
            self.metrics.count("tool_denials_total")

    def around(self, call: MadeCall) -> MadeCall:
        """Count the calls of MCP clients like those of turns."""

        def counted(wanted: ToolCall, conversation: str, cancel: Cancellation) -> ToolResult:
            result = call(wanted, conversation, cancel)
            self(wanted, result)
            return result

        return counted


def recalling(context: ToolContext, memory: Memory, client: Client) -> ToolContext:
    """Let a call find in the memory only what its client may see."""
    if client.sees_all:
        return context
    return replace(
        context,
        recall=lambda query, limit: memory.search(query, limit=limit, owner=client.label),
    )
