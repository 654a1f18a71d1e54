"""``CodexRunner``: Codex over its app-server, in a sandbox and a home of its own.

``CodexTurn`` is what a turn over the app-server and one of ``codex exec`` have in common.
"""

from __future__ import annotations

import os
import re
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import Usage, UsageError
from coilclaw.models import narrow_schema
from coilclaw.runners import agent_program, contract_policy, test_tool
from coilclaw.runners.agent_answer import object_of, text_of
from coilclaw.runners.agent_requests import CodexRequests
from coilclaw.runners.codex import home as codex_home
from coilclaw.runners.codex.items import Items, usage_of
from coilclaw.runners.codex.wire import Cancelled, CodexWire, TimeUp, WireProblem
from coilclaw.runners.external_agent import AgentProgress, start_agent
from coilclaw.runners.runner import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping
    from pathlib import Path
    from typing import TypeAlias

    from coilclaw.kernel import Json, Part
    from coilclaw.runners.codex.home import CodexHome
    from coilclaw.runners.external_agent import StartedAgent
    from coilclaw.runners.runner import Assignment, Ending, Means, Status
    from coilclaw.runners.test_tool import TestTool

    Arguments: TypeAlias = Callable[[Assignment, CodexHome, TestTool | None], list[str]]

_MOUNTED: Final = (".agents", ".aws", ".codex", ".git")
START_S: Final = 60.0
"""How long starting a thread may take."""
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


@dataclass(frozen=True, slots=True)
class CodexRunner:
    """Performs assignments with Codex, whose own sandbox needs a /tmp that can be written."""

    executable: Path | None = None
    """The program, or where it was installed; without one it is looked for."""
    base_home: Path | None = None
    """The template of the home that each task gets."""
    environ: Mapping[str, str] = field(default_factory=dict)
    """Where PATH and ``$COILCLAW_CODEX`` are looked up. Of the rest only the variables are passed
    on that the template names as holding the key of its model provider."""
    home: Path | None = None
    """Our own home, below which agents may be installed."""

    @property
    def name(self) -> str:
        return "codex"

    def perform(self, assignment: Assignment, means: Means) -> Generator[Part, None, Ending]:
        """Start Codex, give it the task, and return how the turn ended."""
        deadline = Deadline.of(assignment.budget)
        with ExitStack() as stack:
            agent, home = self.start(stack, assignment, means, deadline, _serve_arguments)
            wire = stack.enter_context(CodexWire(agent.child, means.cancel))
            bound = assignment.output_schema
            talk = CodexConversation(
                wire=wire,
                assignment=assignment,
                means=means,
                deadline=deadline,
                schema=None if bound is None else narrow_schema(bound),
            )
            ending = yield from talk.perform(home.forget_key)
        return agent.finish(ending, broken=talk.broken)

    def start(
        self,
        stack: ExitStack,
        assignment: Assignment,
        means: Means,
        deadline: Deadline,
        arguments: Arguments,
    ) -> tuple[StartedAgent, CodexHome]:
        """Start Codex with these arguments in a home that is made for the assignment."""
        program = self.find_program()
        stack.enter_context(tidy_mounts(assignment.directory))
        home = stack.enter_context(codex_home.prepare_home(assignment, self.base_home))
        tests = stack.enter_context(test_tool.offer_tool(means.run_tests, home.temporary))
        routed = assignment.network == "deny" and assignment.sandbox.kind != "none"
        agent = start_agent(
            stack,
            [str(program), *arguments(assignment, home, tests)],
            home.environment(assignment.environ, self.environ),
            # Around Codex, with room for a sandbox of its own.
            replace(assignment.sandbox.showing(program), network=True, nested=True),
            targets=codex_home.targets_of(home.settings) if routed else (),
            place=home.temporary,
            assignment=assignment,
            means=means,
            deadline=deadline,
        )
        return agent, home

    def find_program(self) -> Path:
        """Return the program of Codex."""
        return agent_program.find(
            agent_program.KNOWN["codex"], self.environ, self.home, self.executable
        )


def _serve_arguments(_: Assignment, __: CodexHome, tests: TestTool | None) -> list[str]:
    return ["app-server", *(tests.codex_options() if tests is not None else [])]


@contextmanager
def tidy_mounts(directory: Path) -> Iterator[None]:
    """Remove what Codex's own sandbox leaves in the directory when it is killed.

    It creates places that commands must not create, to mount something over them.
    """
    missing = [name for name in _MOUNTED if not os.path.lexists(directory / name)]
    try:
        yield
    finally:
        for name in missing:
            path = directory / name
            with suppress(OSError):  # Not empty, or not there: then it is work of the agent.
                if path.is_dir() and not path.is_symlink():
                    path.rmdir()
                elif path.lstat().st_size == 0:
                    path.unlink()


@dataclass(slots=True, kw_only=True)
class CodexTurn(AgentProgress):
    """A turn of Codex, from its start to its ending."""

    wire: CodexWire
    items: Items = field(init=False)

    def __post_init__(self) -> None:
        denied = self.assignment.shell == "deny"
        self.items = Items(self.assignment.workspace, shell_denied=denied)
        self.until = self.deadline.at

    def perform(self, on_thread: Callable[[], None]) -> Generator[Part, None, Ending]:
        """Perform the turn to its end; ``on_thread`` is called when Codex has read its key."""
        try:
            return (yield from self._converse(on_thread))
        except WireProblem as fault:
            self.broken = True
            return self._end("aborted", f"Codex did not finish: {fault}")
        except UsageError as fault:
            return self._end("aborted", f"Codex sent what cannot be kept: {fault.message}")
        except Cancelled:
            return self._end("aborted", f"it was cancelled: {self.means.cancel.reason}")
        except TimeUp:
            if self.deadline.passed:
                return self._end("exhausted", self.deadline.reason)
            return self._end("aborted", f"Codex was not ready within {START_S:g} s")

    def _converse(self, on_thread: Callable[[], None]) -> Generator[Part, None, Ending]:
        raise NotImplementedError

    def _end(self, status: Status, reason: str) -> Ending:
        return self.end(status, reason, self.items.text)


@dataclass(slots=True, kw_only=True)
class CodexConversation(CodexTurn):
    """The conversation about one assignment over the app-server."""

    schema: dict[str, Json] | None
    """What the answer shall fit."""
    _turn: str = ""
    _before: Usage | None = None

    def _converse(self, on_thread: Callable[[], None]) -> Generator[Part, None, Ending]:
        problem = self._begin()
        on_thread()
        if problem:
            return self._end("failed", problem)
        asked = self._start_turn()
        while (received := self._receive()) is not None:
            message, raw = received
            if "method" not in message:
                if message.get("id") == asked and (problem := self._take_turn(message)):
                    return self._end("failed", problem)
                continue
            if "id" in message:
                self._answer(message)
                continue
            method, params = text_of(message["method"]), object_of(message.get("params"))
            if params.get("threadId") != self.session:
                continue
            for part in self._heard(method, params, raw):
                if self.allows(part):
                    yield part
            if method == "turn/completed":
                return self._complete(object_of(params.get("turn")))
        assert self.stop is not None, "only a turn that was told to end is not waited for"
        return self._end(*self.stop)

    def _receive(self) -> tuple[dict[str, Json], str] | None:
        """Return the next message; ``None`` if a turn that was told to end takes too long."""
        while True:
            try:
                return self.wire.receive(self.until, heed_cancel=self.stop is None)
            except Cancelled:
                self.halt("aborted", f"it was cancelled: {self.means.cancel.reason}")
            except TimeUp:
                if self.stop is not None:
                    return None
                self.halt("exhausted", self.deadline.reason)

    def _begin(self) -> str:
        """Start or resume a thread; return why that failed, or nothing."""
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
            return _explain("Codex did not start", said.get("error"))
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
        thread = object_of(object_of(said.get("result")).get("thread"))
        self.session = text_of(thread.get("id"))
        if self.session and known in ("", self.session):
            self.means.on_session(self.session)
            return ""
        self.session_lost = bool(known)
        return _explain("Codex has no such thread" if known else "no thread", said.get("error"))

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
            "threadId": self.session,
            "input": [{"type": "text", "text": task.instruction}],
            "cwd": str(task.workspace),
            "approvalPolicy": approval_policy(task),
            "approvalsReviewer": "user",
            "sandboxPolicy": sandbox_policy(task),
        }
        if task.model:
            params["model"] = task.model
        if self.schema is not None:
            params["outputSchema"] = self.schema
        return self.wire.request("turn/start", params)

    def _take_turn(self, answer: dict[str, Json]) -> str:
        """Remember the turn that was started; return why it did not start, or nothing."""
        turn = object_of(answer.get("result")).get("turn")
        if not isinstance(turn, dict):
            return _explain("Codex did not take the task", answer.get("error"))
        self._turn = text_of(turn.get("id"))
        if self.stop is not None:
            self.interrupt()
        return ""

    def _heard(self, method: str, params: dict[str, Json], raw: str) -> list[Part]:
        item, part = params.get("item"), None
        # A resumed thread first reports the tokens of its earlier turns.
        if method == "thread/tokenUsage/updated" and params.get("turnId") == self._turn:
            self._count(object_of(params.get("tokenUsage")))
        elif method == "turn/completed":
            return self.items.list_unfinished()
        elif isinstance(item, dict) and method == "item/started":
            self.items.began(item, raw)
        elif isinstance(item, dict) and method == "item/completed":
            part = self.items.read_completed(item, raw)
        elif isinstance(item, dict) and method == "rawResponseItem/completed":
            part = self.items.read_call(item, raw)
        return [] if part is None else [part]

    def _answer(self, message: dict[str, Json]) -> None:
        params, answer = object_of(message.get("params")), None
        if self._turn and self.stop is None and params.get("threadId") == self.session:
            requests = CodexRequests(self.assignment, self.means, self.items)
            answer = requests.answer(text_of(message["method"]), params)
        if answer is None:
            self.wire.refuse(message["id"], "this request is not supported")
        else:
            self.wire.answer(message["id"], answer)

    def _count(self, counted: dict[str, Json]) -> None:
        """Count the tokens of this turn; Codex reports the totals of the thread."""
        total, last = usage_of(counted.get("total")), usage_of(counted.get("last"))
        if total is None or last is None:
            return
        if self._before is None:
            self._before = subtract_usage(total, last)
        self.usage = subtract_usage(total, self._before)
        self.means.on_usage(self.usage)
        if excess := self.find_token_excess():
            self.halt("exhausted", excess)

    def interrupt(self) -> None:
        if self._turn:
            ids: dict[str, Json] = {"threadId": self.session, "turnId": self._turn}
            self.wire.request("turn/interrupt", ids)

    def _complete(self, turn: dict[str, Json]) -> Ending:
        if self.stop is not None:
            return self._end(*self.stop)
        status, error = turn.get("status"), turn.get("error")
        if status == "completed":
            return self._end("done", "")
        if status == "failed":
            return self._end("failed", _explain("Codex failed", error))
        return self._end("aborted", _explain("Codex was interrupted", error))


def approval_policy(assignment: Assignment) -> str:
    """Return when Codex asks; without a shell each command asks, and is then declined."""
    return contract_policy.terms(assignment.shell).approval_policy or "untrusted"


def sandbox_policy(assignment: Assignment) -> dict[str, Json]:
    """Return the sandbox that Codex puts around its commands, inside its own."""
    network = assignment.network == "allow"
    if assignment.filesystem != "workspace-write":
        return {"type": "readOnly", "networkAccess": network}
    return {
        "type": "workspaceWrite",
        "networkAccess": network,
        "writableRoots": [*codex_home.writable_roots(assignment)],
        "excludeSlashTmp": not assignment.sandbox.private_tmp,
        "excludeTmpdirEnvVar": False,
    }


def subtract_usage(one: Usage, other: Usage) -> Usage:
    """Return the tokens used since an earlier count."""
    return Usage(
        (one.input_tokens or 0) - (other.input_tokens or 0),
        (one.output_tokens or 0) - (other.output_tokens or 0),
    )


def _explain(what: str, error: Json) -> str:
    return f"{what}: {text_of(object_of(error).get('message')) or 'it gave no reason'}"
