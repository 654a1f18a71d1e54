"""Our own runtime, observed: each answer of the model and each tool call becomes a part."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from coilclaw.agents.shellpolicy import REFUSED_EXIT_CODE
from coilclaw.domain import freeform
from coilclaw.domain.effects import Writes
from coilclaw.domain.messages import ProviderCapabilities, Usage
from coilclaw.domain.parts import Part
from coilclaw.errors import UsageError
from coilclaw.runtime.guard import Guard
from coilclaw.tools.output import size

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from coilclaw.agents.stage import Stage
    from coilclaw.domain.messages import ChatRequest, ChatResponse, Json, Provider, ToolCall
    from coilclaw.domain.redacting import Redacting
    from coilclaw.domain.toolcalls import ToolResult
    from coilclaw.tools.contract import ToolContext

BYTES_RULE: Final = "budget.bytes"


@dataclass(slots=True)
class ObservedProvider:
    """Asks another provider, for answers of a schema, and says what it answered."""

    inner: Provider
    stage: Stage
    redactor: Redacting
    output_schema: Mapping[str, Json] | None = None
    max_tokens: int | None = None
    """What all answers together may use."""
    usage: Usage | None = None
    """What they used, as far as the provider tells."""
    on_usage: Callable[[Usage], None] = lambda _: None

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def capabilities(self) -> ProviderCapabilities:
        return replace(self.inner.capabilities, streaming=False)

    def chat(self, request: ChatRequest) -> ChatResponse:
        self.stage.check()
        response = self.inner.chat(replace(request, output_schema=self.output_schema))
        self.stage.check()
        self.usage = added(self.usage, response.usage)
        if self.usage is not None:
            self.on_usage(self.usage)
        text = self.redactor.redact(response.final_text)
        if text:
            self.stage.say(Part("text", text=text, usage=response.usage))
        used = tokens(self.usage)
        if self.max_tokens is not None and used > self.max_tokens:
            why = f"the budget of {self.max_tokens:,} tokens is used up"
            self.stage.halt("exhausted", why)
            self.stage.check()
        return response


@dataclass(slots=True)
class ObservedGuard(Guard):
    """The guard, which says what became of each call."""

    stage: Stage = field(kw_only=True)
    max_bytes: int | None = None
    """What all results together may hold; afterwards every call is refused."""
    used_bytes: int = 0

    def call(self, call: ToolCall, context: ToolContext) -> ToolResult:
        if self.max_bytes is not None and self.used_bytes >= self.max_bytes:
            why = f"the budget of {self.max_bytes:,} bytes of results is used up"
            return self.refuse(call, context, BYTES_RULE, why)
        with self.stage.calling() as cancel:
            # Named, because a dataclass with slots is another class than the one being written.
            result = Guard.call(self, call, replace(context, cancel=cancel))
        self.used_bytes += size(result.output) + size(result.error or "")
        self.stage.say(self._part(call, result))
        return result

    def refuse(self, call: ToolCall, context: ToolContext, rule: str, reason: str) -> ToolResult:
        result = Guard.refuse(self, call, context, rule, reason)
        self.stage.say(self._part(call, result))
        return result

    def _part(self, call: ToolCall, result: ToolResult) -> Part:
        code = result.metadata.get("exit_code")
        if result.metadata.get("status") == "denied":
            code = REFUSED_EXIT_CODE
        elif not isinstance(code, int):
            code = 0 if result.success else 1
        gap = "" if not result.output or result.output.endswith("\n") else "\n"
        return Part(
            "tool",
            tool=self.redact(call.name),
            call_id=call.id,
            input=self.redact(_arguments(call)),
            output=f"{result.output}{gap}{result.error}" if result.error else result.output,
            exit_code=code,
            files=self._files(call) if result.success else (),
            raw=freeform.text({"receipt_id": result.receipt_id, **result.metadata}),
        )

    def _files(self, call: ToolCall) -> tuple[str, ...]:
        tool = self.tools.get(call.name)
        effects = () if tool is None else tool.effects(call.arguments)
        return tuple(effect.path for effect in effects if isinstance(effect, Writes))


def _arguments(call: ToolCall) -> str:
    try:
        return freeform.text(dict(call.arguments))
    except (UsageError, RecursionError):
        return ""


def added(one: Usage | None, other: Usage | None) -> Usage | None:
    """Return two counts together; what one of them does not know is taken for nothing."""
    if one is None or other is None:
        return one or other
    return Usage(
        _sum(one.input_tokens, other.input_tokens), _sum(one.output_tokens, other.output_tokens)
    )


def tokens(usage: Usage | None) -> int:
    """Return all tokens of a count."""
    return 0 if usage is None else (usage.input_tokens or 0) + (usage.output_tokens or 0)


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None and other is None else (one or 0) + (other or 0)
