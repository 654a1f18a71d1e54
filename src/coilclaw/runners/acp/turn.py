"""One turn of an ACP agent: its parts, its requests, and how it ends."""

from __future__ import annotations

import queue
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import Usage, UsageError, canonical_json
from coilclaw.runners.acp.session import AcpAnswer, AcpOpened, AcpQuestion, Bell, Trouble, Updated
from coilclaw.runners.acp.updates import Updates
from coilclaw.runners.agent_answer import object_of
from coilclaw.runners.agent_requests import AcpRequests
from coilclaw.runners.external_agent import AgentProgress

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from coilclaw.kernel import Json, Part
    from coilclaw.runners.acp.session import AcpConversation, Event
    from coilclaw.runners.runner import Assignment, Ending, Status
    from coilclaw.runners.test_tool import TestTool

START_S: Final = 120.0
"""How long it may take until a session is there."""
_STOPS: Final[Mapping[str, tuple[Status, str]]] = {
    "end_turn": ("done", ""),
    "refusal": ("failed", "the agent refused to go on"),
    "max_tokens": ("failed", "the answer of the model was too long"),
    "max_turn_requests": ("failed", "the agent made as many requests as it may"),
    "cancelled": ("aborted", "the agent called the turn off"),
}


@dataclass(slots=True, kw_only=True)
class AcpTurn(AgentProgress):
    """Takes what happens in a conversation, until its end."""

    title: str
    """What the agent is called in sentences."""
    talk: AcpConversation
    tests: TestTool | None = None
    updates: Updates = field(init=False)
    requests: AcpRequests = field(init=False)

    def __post_init__(self) -> None:
        denied = self.assignment.shell == "deny"
        self.updates = Updates(self.assignment.workspace, shell_denied=denied)
        self.requests = AcpRequests(self.assignment, self.means, self.updates, self.tests)
        self.until = min(time.monotonic() + START_S, self.deadline.at)

    def perform(self, on_session: Callable[[], None]) -> Generator[Part, None, Ending]:
        """Go through it; ``on_session`` is called before the agent hears of its task."""
        bell = Bell(self.talk.events)
        self.means.cancel.attach(bell)
        try:
            while True:
                event = self._next()
                if event is None:
                    late = f"{self.title} was not ready within {START_S:g} s"
                    return self._end(*(self.stop or ("aborted", late)))
                for part in self._heard(event, on_session):
                    if self.allows(part):
                        yield part
                if isinstance(event, AcpAnswer):
                    return self._answered(event)
                if isinstance(event, Trouble):
                    return self._failed(event)
                if self.stop is not None and not self.session:
                    return self._end(*self.stop)
        except UsageError as fault:
            return self._end("aborted", f"{self.title} sent what cannot be kept: {fault}")
        finally:
            self.means.cancel.detach(bell)
            bell.close()

    def interrupt(self) -> None:
        self.talk.cancel()

    def _next(self) -> Event | None:
        """Wait for what happens next; nothing if it is too late for anything."""
        while True:
            if self.means.cancel.cancelled:
                # Before what came in the meantime, and may be much.
                self.halt("aborted", f"it was cancelled: {self.means.cancel.reason}")
            try:
                return self.talk.events.get(timeout=max(self.until - time.monotonic(), 0.0))
            except queue.Empty:
                if self.stop is not None or not self.deadline.passed:
                    return None
                self.halt("exhausted", self.deadline.reason)
                if not self.session:
                    return None

    def _heard(self, event: Event, on_session: Callable[[], None]) -> list[Part]:
        match event:
            case Updated():
                # Before there is a session, it is the history of one.
                return self.updates.heard(event.update, event.raw) if self.session else []
            case AcpQuestion():
                answered = self.stop is None and self.session
                chosen = self.requests.choose(event.tool_call, event.options) if answered else None
                event.reply(chosen)
            case AcpOpened():
                self.session, self.version = event.session_id, event.version
                self.means.on_session(self.session)
                self.until = self.deadline.at
                on_session()
                if self.stop is None:
                    self.talk.go()
            case AcpAnswer() | Trouble():
                return self.updates.finish()
        return []

    def _answered(self, event: AcpAnswer) -> Ending:
        usage = event.usage or {}
        read, written = usage.get("input_tokens"), usage.get("output_tokens")
        if isinstance(read, int) and isinstance(written, int):
            self.usage = Usage(read, written)
            self.means.on_usage(self.usage)
        if self.stop is not None:
            return self._end(*self.stop)
        if excess := self.find_token_excess():
            return self._end("exhausted", excess)
        if _is_system_error(event.meta):
            # One agent tells of a failed model as if that were an answer.
            return self._end("failed", f"{self.title} failed: {self.updates.text}")
        unknown: tuple[Status, str] = ("failed", f"it stopped: {event.stop_reason}")
        return self._end(*_STOPS.get(event.stop_reason, unknown))

    def _failed(self, event: Trouble) -> Ending:
        self.broken = event.gone
        if self.stop is not None:
            return self._end(*self.stop)
        self.session_lost = bool(self.assignment.thread_id) and not self.session
        if event.gone:
            return self._end("aborted", f"{self.title} did not finish: {event.reason}")
        return self._end("failed", f"{self.title} failed: {event.reason}")

    def _end(self, status: Status, reason: str) -> Ending:
        answer = self.updates.text.strip()
        if answer.startswith("```") and answer.endswith("```"):
            # The fence that models like to put around it.
            answer = answer.partition("\n")[2].rpartition("```")[0]
        return self.end(status, reason, self.updates.text, answer)


def instruction_of(assignment: Assignment) -> str:
    """Return what the agent is told; the protocol has no field for the form of an answer."""
    if assignment.output_schema is None:
        return assignment.instruction
    return (
        f"{assignment.instruction}\n\nWhen you are done, answer with one JSON object and nothing "
        "else. It fits this JSON "
        f"Schema:\n{canonical_json.render_json(dict(assignment.output_schema))}\n"
    )


def _is_system_error(meta: Mapping[str, Json] | None) -> bool:
    codex = object_of(dict(meta or {}).get("codex"))
    return object_of(codex.get("threadStatus")).get("type") == "systemError"
