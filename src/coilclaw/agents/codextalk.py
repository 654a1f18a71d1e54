"""One turn of Codex over its app-server: what is said, what comes of it, and how it ends."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from coilclaw.agents import answers, codexhome, shellpolicy
from coilclaw.agents.codexapproval import Approvals
from coilclaw.agents.codexcalls import text_of
from coilclaw.agents.codexitems import Items, usage_of
from coilclaw.agents.codexwire import Cancelled, TimeUp, WireProblem
from coilclaw.agents.runner import Ending
from coilclaw.domain.messages import Usage
from coilclaw.errors import UsageError
from coilclaw.providers.outputschema import narrowed

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from coilclaw.agents.codexwire import Wire
    from coilclaw.agents.deadline import Deadline
    from coilclaw.agents.runner import Assignment, Means, Status
    from coilclaw.domain.messages import Json
    from coilclaw.domain.parts import Part

START_S: Final = 60.0
"""How long it may take until a thread is there."""
INTERRUPT_GRACE_S: Final = 2.0
"""How long a turn may take to end once it was told to, before it is killed."""

_MAX_REASON: Final = 500
_VERSION: Final = re.compile(r"/(\d[\w.+-]*)")
_UNHEARD: Final = (
    "command/exec/outputDelta",
    "item/agentMessage/delta",
    "item/commandExecution/outputDelta",
    "item/fileChange/outputDelta",
    "item/plan/delta",
    "item/reasoning/summaryTextDelta",
    "item/reasoning/textDelta",
    "turn/diff/updated",
)
"""Pieces of what comes whole later."""


@dataclass(slots=True)
class Talk:
    """The conversation about one assignment."""

    wire: Wire
    assignment: Assignment
    means: Means
    deadline: Deadline
    items: Items = field(init=False)
    approvals: Approvals = field(init=False)
    version: str = ""
    broken: bool = False
    """Whether Codex went away, or did not keep to the protocol."""
    _thread: str = ""
    _lost: bool = False
    _turn: str = ""
    _until: float = 0.0
    _stop: tuple[Status, str] | None = None
    _parts: int = 0
    _tools: int = 0
    _before: Usage | None = None
    _usage: Usage | None = None
    _schema: dict[str, Json] | None = None

    def __post_init__(self) -> None:
        denied = self.assignment.shell == "deny"
        self.items = Items(self.assignment.workspace, shell_denied=denied)
        self.approvals = Approvals(self.assignment, self.means, self.items)
        self._until = self.deadline.at
        schema = self.assignment.output_schema
        self._schema = None if schema is None else narrowed(schema)

    def perform(self, on_thread: Callable[[], None]) -> Generator[Part, None, Ending]:
        """Go through one turn; ``on_thread`` is called before Codex hears of its task."""
        try:
            problem = self._begin()
            on_thread()
            if problem:
                return self._ending("failed", problem)
            return (yield from self._go(self._start_turn()))
        except WireProblem as fault:
            self.broken = True
            return self._ending("aborted", f"Codex did not finish: {fault}.")
        except UsageError as fault:
            return self._ending("aborted", f"Codex sent what cannot be kept: {fault.message}.")
        except Cancelled:
            return self._ending("aborted", f"It was cancelled: {self.means.cancel.reason}.")
        except TimeUp:
            if self.deadline.passed:
                return self._ending("exhausted", _sentence(self.deadline.reason))
            return self._ending("aborted", f"Codex was not ready within {START_S:g} s.")

    def _begin(self) -> str:
        """Get a thread; return why there is none."""
        said = self._call(
            "initialize",
            {
                "clientInfo": {"name": "coilclaw", "title": "CoilClaw", "version": "1"},
                "capabilities": {
                    "experimentalApi": True,
                    "optOutNotificationMethods": list(_UNHEARD),
                },
            },
        )
        result = said.get("result")
        if not isinstance(result, dict):
            return _reason("Codex did not start", said.get("error"))
        found = _VERSION.search(text_of(result.get("userAgent")))
        self.version = found[1] if found else ""
        self.wire.notify("initialized")
        known = self.assignment.thread_id
        params: dict[str, Json] = {
            "cwd": str(self.assignment.workspace),
            "sandbox": self.assignment.filesystem,
            "approvalPolicy": approval_policy(self.assignment),
            "approvalsReviewer": "user",
            "experimentalRawEvents": True,
            **({"threadId": known, "excludeTurns": True} if known else {}),
            **({"model": self.assignment.model} if self.assignment.model else {}),
        }
        said = self._call("thread/resume" if known else "thread/start", params)
        result = said.get("result")
        thread = result.get("thread") if isinstance(result, dict) else None
        self._thread = text_of(thread.get("id")) if isinstance(thread, dict) else ""
        if self._thread and known in ("", self._thread):
            self.means.on_session(self._thread)
            return ""
        self._lost = bool(known)
        return _reason("Codex has no such thread" if known else "no thread", said.get("error"))

    def _call(self, method: str, params: dict[str, Json]) -> dict[str, Json]:
        asked = self.wire.request(method, params)
        until = min(time.monotonic() + START_S, self.deadline.at)
        while True:
            message, _ = self.wire.receive(until, heed_cancel=True)
            if "method" in message:
                if "id" in message:
                    self._answer(message)
            elif message.get("id") == asked:
                return message

    def _start_turn(self) -> int:
        task = self.assignment
        params: dict[str, Json] = {
            "threadId": self._thread,
            "input": [{"type": "text", "text": task.instruction}],
            "cwd": str(task.workspace),
            "approvalPolicy": approval_policy(task),
            "approvalsReviewer": "user",
            "sandboxPolicy": sandbox_policy(task),
        }
        if task.model:
            params["model"] = task.model
        if self._schema is not None:
            params["outputSchema"] = self._schema
        return self.wire.request("turn/start", params)

    def _go(self, asked: int) -> Generator[Part, None, Ending]:
        while True:
            try:
                message, raw = self.wire.receive(self._until, heed_cancel=self._stop is None)
            except Cancelled:
                self._halt("aborted", f"It was cancelled: {self.means.cancel.reason}.")
                continue
            except TimeUp:
                if self._stop is not None:
                    return self._ending(*self._stop)
                self._halt("exhausted", _sentence(self.deadline.reason))
                continue
            if "method" not in message:
                if message.get("id") == asked and (problem := self._turn_of(message)):
                    return self._ending("failed", problem)
                continue
            if "id" in message:
                self._answer(message)
                continue
            method, params = text_of(message["method"]), message.get("params")
            if not isinstance(params, dict) or params.get("threadId") != self._thread:
                continue
            for part in self._heard(method, params, raw):
                if self._allowed(part):
                    yield part
            if method == "turn/completed":
                return self._completed(params.get("turn"))

    def _turn_of(self, answer: dict[str, Json]) -> str:
        """Remember the turn that was started; return why there is none."""
        result = answer.get("result")
        turn = result.get("turn") if isinstance(result, dict) else None
        if not isinstance(turn, dict):
            return _reason("Codex did not take the task", answer.get("error"))
        self._turn = text_of(turn.get("id"))
        if self._stop is not None:
            self._interrupt()
        return ""

    def _heard(self, method: str, params: dict[str, Json], raw: str) -> list[Part]:
        item = params.get("item")
        if method == "thread/tokenUsage/updated":
            # A thread that is resumed first tells what its earlier turns took.
            if params.get("turnId") == self._turn:
                self._count(params.get("tokenUsage"))
        elif method == "turn/completed":
            return self.items.unfinished()
        elif isinstance(item, dict):
            part = None
            if method == "item/started":
                self.items.began(item, raw)
            elif method == "item/completed":
                part = self.items.completed(item, raw)
            elif method == "rawResponseItem/completed":
                part = self.items.called(item, raw)
            return [part] if part is not None else []
        return []

    def _answer(self, message: dict[str, Json]) -> None:
        params, answer = message.get("params"), None
        if (
            isinstance(params, dict)
            and self._turn
            and self._stop is None
            and params.get("threadId") == self._thread
        ):
            answer = self.approvals.answer(text_of(message["method"]), params)
        if answer is None:
            self.wire.refuse(message["id"], "nobody here does this")
        else:
            self.wire.answer(message["id"], answer)

    def _allowed(self, part: Part) -> bool:
        """Whether the budget has room for a part; if not, this is the end."""
        budget = self.assignment.budget
        self._parts += 1
        self._tools += part.kind in ("tool", "patch")
        if budget.parts is not None and self._parts > budget.parts:
            self._halt("exhausted", f"The {budget.parts} parts of the budget are used up.")
            return False
        if budget.tool_rounds is not None and self._tools > budget.tool_rounds:
            self._halt("exhausted", f"The {budget.tool_rounds} tool calls are used up.")
            return False
        return True

    def _count(self, counted: Json) -> None:
        """Take note of the tokens of this turn; those of the thread go on from turns before."""
        if not isinstance(counted, dict):
            return
        total, last = usage_of(counted.get("total")), usage_of(counted.get("last"))
        if total is None or last is None:
            return
        if self._before is None:
            self._before = _less(total, last)
        self._usage = _less(total, self._before)
        self.means.on_usage(self._usage)
        limit = self.assignment.budget.tokens
        spent = (self._usage.input_tokens or 0) + (self._usage.output_tokens or 0)
        if limit is not None and spent > limit:
            self._halt("exhausted", f"The {limit} tokens of the budget are used up.")

    def _halt(self, status: Status, reason: str) -> None:
        """Have the turn end; the first reason stands."""
        if self._stop is None:
            self._stop = (status, reason)
            self._until = time.monotonic() + INTERRUPT_GRACE_S
            self._interrupt()

    def _interrupt(self) -> None:
        if self._turn:
            ids: dict[str, Json] = {"threadId": self._thread, "turnId": self._turn}
            self.wire.request("turn/interrupt", ids)

    def _completed(self, turn: Json) -> Ending:
        if self._stop is not None:
            return self._ending(*self._stop)
        status = turn.get("status") if isinstance(turn, dict) else None
        error = turn.get("error") if isinstance(turn, dict) else None
        if status == "completed":
            return self._ending("done", "")
        if status == "failed":
            return self._ending("failed", _reason("Codex failed", error))
        return self._ending("aborted", _reason("Codex was interrupted", error))

    def _ending(self, status: Status, reason: str) -> Ending:
        result = None
        if status == "done" and self.assignment.output_schema is not None:
            try:
                result = answers.read_object(self.items.text.encode(), what="the answer")
            except UsageError as problem:
                status, reason = "failed", _sentence(problem.message)
            else:
                status, reason = answers.verdict(result)
        return Ending(
            status,
            reason,
            result=result,
            text=self.items.text,
            thread_id=self._thread,
            usage=self._usage,
            version=self.version,
            session_lost=self._lost,
        )


def approval_policy(assignment: Assignment) -> str:
    """When Codex asks. Without any shell each command shall ask, for each is declined then."""
    return shellpolicy.terms(assignment.shell).approval_policy or "untrusted"


def sandbox_policy(assignment: Assignment) -> dict[str, Json]:
    """What Codex holds its commands to, inside the sandbox that holds Codex."""
    network = assignment.network == "allow"
    if assignment.filesystem != "workspace-write":
        return {"type": "readOnly", "networkAccess": network}
    return {
        "type": "workspaceWrite",
        "networkAccess": network,
        "writableRoots": [*codexhome.writable_roots(assignment)],
        "excludeSlashTmp": not assignment.sandbox.private_tmp,
        "excludeTmpdirEnvVar": False,
    }


def _less(one: Usage, other: Usage) -> Usage:
    return Usage(
        (one.input_tokens or 0) - (other.input_tokens or 0),
        (one.output_tokens or 0) - (other.output_tokens or 0),
    )


def _reason(what: str, error: Json) -> str:
    said = text_of(error.get("message")) if isinstance(error, dict) else ""
    return _sentence(f"{what}: {said or 'it gave no reason'}"[:_MAX_REASON])


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".") + "."
