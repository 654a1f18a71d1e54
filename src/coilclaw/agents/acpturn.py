"""One turn of an ACP agent: its parts, its requests, and how it ends."""

from __future__ import annotations

import queue
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from coilclaw.agents import answers
from coilclaw.agents.acppermission import Permissions
from coilclaw.agents.acptalk import Answered, Asked, Bell, Opened, Trouble, Updated
from coilclaw.agents.acpupdates import Updates
from coilclaw.agents.runner import Ending
from coilclaw.domain import freeform
from coilclaw.domain.messages import Usage
from coilclaw.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from coilclaw.agents.acptalk import Event, Talk
    from coilclaw.agents.deadline import Deadline
    from coilclaw.agents.runner import Assignment, Means, Status
    from coilclaw.agents.testtool import TestTool
    from coilclaw.domain.messages import Json
    from coilclaw.domain.parts import Part

START_S: Final = 120.0
"""How long it may take until a session is there."""
CANCEL_GRACE_S: Final = 3.0
"""How long a turn may take to end once it was told to, before the agent is killed."""

_MAX_REASON: Final = 500
_STOPS: Final[Mapping[str, tuple[Status, str]]] = {
    "end_turn": ("done", ""),
    "refusal": ("failed", "the agent refused to go on"),
    "max_tokens": ("failed", "the answer of the model was too long"),
    "max_turn_requests": ("failed", "the agent made as many requests as it may"),
    "cancelled": ("aborted", "the agent called the turn off"),
}


@dataclass(slots=True)
class Turn:
    """Takes what happens in a conversation, until its end."""

    title: str
    """What the agent is called in sentences."""
    talk: Talk
    assignment: Assignment
    means: Means
    deadline: Deadline
    tests: TestTool | None = None
    updates: Updates = field(init=False)
    permissions: Permissions = field(init=False)
    version: str = ""
    broken: bool = False
    """Whether the agent went away, or did not keep to the protocol."""
    _session: str = ""
    _lost: bool = False
    _until: float = 0.0
    _stop: tuple[Status, str] | None = None
    _parts: int = 0
    _tools: int = 0
    _usage: Usage | None = None

    def __post_init__(self) -> None:
        denied = self.assignment.shell == "deny"
        self.updates = Updates(self.assignment.workspace, shell_denied=denied)
        self.permissions = Permissions(self.assignment, self.means, self.updates, self.tests)
        self._until = min(time.monotonic() + START_S, self.deadline.at)

    def perform(self, on_session: Callable[[], None]) -> Generator[Part, None, Ending]:
        """Go through it; ``on_session`` is called before the agent hears of its task."""
        bell = Bell(self.talk.events)
        self.means.cancel.attach(bell)
        try:
            while True:
                event = self._next()
                if event is None:
                    return self._out_of_time()
                for part in self._heard(event, on_session):
                    if self._allowed(part):
                        yield part
                if isinstance(event, Answered):
                    return self._answered(event)
                if isinstance(event, Trouble):
                    return self._failed(event)
                if self._stop is not None and not self._session:
                    return self._ending(*self._stop)
        except UsageError as fault:
            return self._ending("aborted", f"{self.title} sent what cannot be kept: {fault}")
        finally:
            self.means.cancel.detach(bell)
            bell.close()

    def _next(self) -> Event | None:
        """Wait for what happens next; nothing if it is too late for anything."""
        while True:
            if self.means.cancel.cancelled:
                # Before what came in the meantime, and may be much.
                self._halt("aborted", f"it was cancelled: {self.means.cancel.reason}")
            try:
                return self.talk.events.get(timeout=max(self._until - time.monotonic(), 0.0))
            except queue.Empty:
                if self._stop is not None or not self.deadline.passed:
                    return None
                self._halt("exhausted", self.deadline.reason)
                if not self._session:
                    return None

    def _heard(self, event: Event, on_session: Callable[[], None]) -> list[Part]:
        match event:
            case Updated():
                # Before there is a session, it is the history of one.
                return self.updates.heard(event.update, event.raw) if self._session else []
            case Asked():
                event.reply(self._chosen(event))
            case Opened():
                self._session, self.version = event.session_id, event.version
                self.means.on_session(self._session)
                self._until = self.deadline.at
                on_session()
                if self._stop is None:
                    self.talk.go()
            case Answered() | Trouble():
                return self.updates.finish()
        return []

    def _chosen(self, event: Asked) -> str | None:
        if self._stop is not None or not self._session:
            return None
        return self.permissions.choose(event.tool_call, event.options)

    def _allowed(self, part: Part) -> bool:
        """Whether the budget has room for a part; if not, this is the end."""
        budget = self.assignment.budget
        self._parts += 1
        self._tools += part.kind in ("tool", "patch")
        if budget.parts is not None and self._parts > budget.parts:
            self._halt("exhausted", f"the {budget.parts} parts of the budget are used up")
            return False
        if budget.tool_rounds is not None and self._tools > budget.tool_rounds:
            self._halt("exhausted", f"the {budget.tool_rounds} tool calls are used up")
            return False
        return True

    def _halt(self, status: Status, reason: str) -> None:
        """Have the turn end; the first reason stands."""
        if self._stop is None:
            self._stop = (status, reason)
            self._until = time.monotonic() + CANCEL_GRACE_S
            self.talk.cancel()

    def _out_of_time(self) -> Ending:
        if self._stop is not None:
            return self._ending(*self._stop)
        return self._ending("aborted", f"{self.title} was not ready within {START_S:g} s")

    def _answered(self, event: Answered) -> Ending:
        usage = event.usage or {}
        read, written = usage.get("input_tokens"), usage.get("output_tokens")
        if isinstance(read, int) and isinstance(written, int):
            self._usage = Usage(read, written)
            self.means.on_usage(self._usage)
        if self._stop is not None:
            return self._ending(*self._stop)
        limit = self.assignment.budget.tokens
        if limit is not None and self._usage is not None and _sum(self._usage) > limit:
            return self._ending("exhausted", f"the {limit} tokens of the budget are used up")
        unknown: tuple[Status, str] = ("failed", f"it stopped: {event.stop_reason}")
        status, reason = _STOPS.get(event.stop_reason, unknown)
        if _is_system_error(event.meta):
            # One agent tells of a model in trouble as if that were an answer.
            status, reason = "failed", f"{self.title} failed: {self.updates.text}"
        return self._ending(status, reason)

    def _failed(self, event: Trouble) -> Ending:
        self.broken = event.gone
        if self._stop is not None:
            return self._ending(*self._stop)
        self._lost = bool(self.assignment.thread_id) and not self._session
        if event.gone:
            return self._ending("aborted", f"{self.title} did not finish: {event.reason}")
        return self._ending("failed", f"{self.title} failed: {event.reason}")

    def _ending(self, status: Status, reason: str) -> Ending:
        result = None
        if status == "done" and self.assignment.output_schema is not None:
            try:
                result = answers.read_object(_bare(self.updates.text), what="the answer")
            except UsageError as problem:
                status, reason = "failed", problem.message
            else:
                status, reason = answers.verdict(result)
        return Ending(
            status,
            _sentence(reason),
            result=result,
            text=self.updates.text,
            thread_id=self._session,
            usage=self._usage,
            version=self.version,
            session_lost=self._lost,
        )


def instruction_of(assignment: Assignment) -> str:
    """Return what the agent is told; the protocol has no field for the form of an answer."""
    if assignment.output_schema is None:
        return assignment.instruction
    return (
        f"{assignment.instruction}\n\nWhen you are done, answer with one JSON object and nothing "
        f"else. It fits this JSON Schema:\n{freeform.text(dict(assignment.output_schema))}\n"
    )


def _bare(text: str) -> bytes:
    """Return an answer without the fence that models like to put around it."""
    bare = text.strip()
    if bare.startswith("```") and bare.endswith("```"):
        bare = bare.partition("\n")[2].rpartition("```")[0]
    return bare.encode("utf-8", "replace")


def _is_system_error(meta: Mapping[str, Json] | None) -> bool:
    value: Json = dict(meta or {})
    for name in ("codex", "threadStatus", "type"):
        value = value.get(name) if isinstance(value, dict) else None
    return value == "systemError"


def _sum(usage: Usage) -> int:
    return (usage.input_tokens or 0) + (usage.output_tokens or 0)


def _sentence(text: str) -> str:
    short = text[:_MAX_REASON]
    return short[:1].upper() + short[1:].rstrip(".") + "." if short else ""
