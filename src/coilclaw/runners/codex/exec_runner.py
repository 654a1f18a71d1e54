"""``CodexExecRunner``: Codex without its app-server, for work where no user can be asked.

``codex exec --json`` prints what it does, except for calls that it refuses: these are read from
the file of its thread.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections import deque
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from coilclaw.kernel import DeniedError, EnvironmentFault, Usage, read_private, write_atomic
from coilclaw.models import narrow_schema
from coilclaw.runners import agent_program
from coilclaw.runners.agent_answer import object_of, text_of
from coilclaw.runners.codex import home as codex_home
from coilclaw.runners.codex.items import Calls, usage_of
from coilclaw.runners.codex.runner import CodexRunner, CodexTurn, subtract_usage
from coilclaw.runners.codex.wire import CodexWire, WireProblem
from coilclaw.runners.external_agent import GRACE_S
from coilclaw.runners.runner import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping
    from pathlib import Path

    from coilclaw.kernel import Json, Part
    from coilclaw.runners.codex.home import CodexHome
    from coilclaw.runners.runner import Assignment, Ending, Means, Status
    from coilclaw.runners.test_tool import TestTool
    from coilclaw.workspace import LiveProcess

COUNTED: Final = frozenset(
    {"agent_message", "command_execution", "file_change", "mcp_tool_call", "web_search"}
)
"""The kinds of printed items by which the two are kept at the same place."""
MAX_LINE_BYTES: Final = 16 * 2**20
MAX_BYTES: Final = 2 * 2**30
"""All that is read of one turn."""

_WRITTEN: Final = frozenset(
    {"AgentMessage", "CommandExecution", "FileChange", "McpToolCall", "WebSearch"}
)
"""The same kinds as they are written down."""
_THREAD: Final = re.compile(r"[0-9A-Za-z-]{1,100}")
_CHUNK: Final = 1 << 20
_SCHEMA, _NOTE = "output-schema.json", "codex-exec-usage.json"


@dataclass(frozen=True, slots=True)
class CodexExecRunner(CodexRunner):
    """Performs assignments with ``codex exec``."""

    @property
    def name(self) -> str:
        return "codex-exec"

    def perform(self, assignment: Assignment, means: Means) -> Generator[Part, None, Ending]:
        """Start Codex, give it the task, and return how the turn ended."""
        if assignment.shell == "untrusted":
            raise DeniedError(
                "Each command needs an approval, and codex exec cannot ask for one.",
                rule="codex.exec",
                hint="Use the runner codex.",
            )
        deadline = Deadline.of(assignment.budget)
        with ExitStack() as stack:
            # Named, because a dataclass with slots is another class than the one being written.
            agent, home = CodexRunner.start(self, stack, assignment, means, deadline, arguments)
            turn = _ExecTurn(
                assignment=assignment,
                means=means,
                deadline=deadline,
                session=assignment.thread_id,
                wire=stack.enter_context(CodexWire(agent.child, means.cancel)),
                child=agent.child,
                rollout=Rollout(home.path, Calls(assignment.shell == "deny"), assignment.thread_id),
            )
            ending = yield from turn.perform(home.forget_key)
            if ending.status in ("done", "failed"):
                agent.child.wait(GRACE_S)  # It still writes its thread down.
            yield from turn.late()
        ended = agent.finish(ending, broken=turn.broken)
        return replace(ended, version=agent_program.version_of(self.find_program(), self.environ))


def arguments(assignment: Assignment, home: CodexHome, tests: TestTool | None) -> list[str]:
    """Return the arguments; the task itself comes over the input."""
    settings: dict[str, Json] = {
        "sandbox_mode": assignment.filesystem,
        "sandbox_workspace_write.network_access": assignment.network == "allow",
        "sandbox_workspace_write.writable_roots": [*codex_home.writable_roots(assignment)],
        "sandbox_workspace_write.exclude_slash_tmp": not assignment.sandbox.private_tmp,
    }
    argv = ["exec", *(["resume"] if assignment.thread_id else [])]
    argv += ["--json", "--skip-git-repo-check"]
    for name, value in settings.items():
        argv += ["-c", f"{name}={json.dumps(value)}"]
    argv += tests.codex_options() if tests is not None else []
    if assignment.model:
        argv += ["-m", assignment.model]
    if assignment.output_schema is not None:
        path = home.temporary / _SCHEMA
        path.unlink(missing_ok=True)
        path.write_text(json.dumps(narrow_schema(assignment.output_schema)), encoding="utf-8")
        argv += ["--output-schema", str(path)]
    return [*argv, *([assignment.thread_id] if assignment.thread_id else []), "-"]


@dataclass(slots=True, kw_only=True)
class _ExecTurn(CodexTurn):
    """Takes what Codex prints, until its end."""

    child: LiveProcess
    rollout: Rollout
    _thread: str = ""
    _begun: bool = False
    _full: bool = False
    _printed: int = 0

    def _converse(self, on_thread: Callable[[], None]) -> Generator[Part, None, Ending]:
        try:
            self.child.stdin.write(self.assignment.instruction.encode("utf-8", "replace"))
        except BrokenPipeError as problem:
            raise WireProblem("it ended before it got its task") from problem
        self.child.stdin.close()
        while True:
            try:
                event, raw = self.wire.receive(self.deadline.at, heed_cancel=True)
            except WireProblem:
                yield from self.items.list_unfinished()
                raise
            kind = text_of(event.get("type"))
            if kind == "thread.started":
                self.session = self._thread = text_of(event.get("thread_id"))
                self.means.on_session(self._thread)
            elif kind == "turn.started":
                self._begun = True
                on_thread()
            for part in self._parts_of(kind, event, raw):
                if excess := self._exceed(part):
                    return self._end("exhausted", excess)
                yield part
            if kind == "turn.completed":
                self._count(event.get("usage"))
                excess = self.find_token_excess()
                return self._end("exhausted" if excess else "done", excess)
            if kind == "turn.failed":
                said = text_of(object_of(event.get("error")).get("message"))
                why = said or self.items.warning or "it gave no reason"
                return self._end("failed", f"Codex failed: {why}")

    def late(self) -> Generator[Part, None, None]:
        """Yield the calls that Codex did not print and that were not seen before the end."""
        if not self._full:
            for part in self.rollout.parts(self._thread, None):
                if self._exceed(part):
                    return
                yield part

    def _parts_of(self, kind: str, event: Mapping[str, Json], raw: str) -> list[Part]:
        item = event.get("item")
        found = self.rollout.parts(self._thread, self._printed)
        if kind in ("turn.completed", "turn.failed"):
            found += self.items.list_unfinished()
        elif isinstance(item, dict) and kind == "item.started":
            self.items.began(item, raw)
        elif isinstance(item, dict) and kind == "item.completed":
            self._printed += item.get("type") in COUNTED
            part = self.items.read_completed(item, raw)
            found += [] if part is None else [part]
        elif kind == "error":
            self.items.warning = text_of(event.get("message"))
        return found

    def _exceed(self, part: Part) -> str:
        excess = self.count(part)
        self._full = bool(excess)
        return excess

    def _count(self, counted: Json) -> None:
        """Count the tokens of this turn; Codex reports those of the whole thread."""
        total = usage_of(counted)
        if total is None:
            return
        note = self.assignment.home / _NOTE
        used = subtract_usage(total, _read_note(note, self._thread))
        self.usage = Usage(max(used.input_tokens or 0, 0), max(used.output_tokens or 0, 0))
        said = [self._thread, total.input_tokens, total.output_tokens]
        with suppress(EnvironmentFault):  # It only makes the next count exact.
            write_atomic(note, json.dumps(said).encode(), mode=0o600, sync=False)

    def _end(self, status: Status, reason: str) -> Ending:
        self.session_lost = bool(self.assignment.thread_id) and self.broken and not self._begun
        return self.end(status, reason, self.items.text)


def _read_note(path: Path, thread: str) -> Usage:
    """Return the tokens that a thread used before, from our note.

    The agent can write the file, so that only a count of this thread is accepted.
    """
    said: Any = None
    with suppress(EnvironmentFault, ValueError, RecursionError):
        said = json.loads(read_private(path) or b"")
    match said:
        case [str(whose), int(read), int(written)] if whose == thread and min(read, written) >= 0:
            return Usage(read, written)
    return Usage(0, 0)


@dataclass(slots=True)
class Rollout:
    """The file of one thread, from the beginning of this turn on."""

    home: Path
    """``$CODEX_HOME``."""
    calls: Calls
    resumed: str = ""
    """The thread that is resumed; its earlier turns are skipped."""
    _path: Path | None = None
    _at: int = 0
    _read: int = 0
    _rest: bytes = b""
    _skip: bool = False
    _waiting: deque[tuple[dict[str, Json], str]] = field(default_factory=deque)
    _items: set[str] = field(default_factory=set)
    _count: int = 0
    _closed: bool = False

    def __post_init__(self) -> None:
        if self.resumed:
            self.begin(self.resumed)
            if self._path is None:
                self._closed = True  # The start of this turn is unknown.
            else:
                with suppress(OSError):
                    self._at = self._path.lstat().st_size

    def begin(self, thread: str) -> None:
        """Find the file of a thread, once its name is known."""
        if self._path is None and _THREAD.fullmatch(thread):
            found = sorted(self.home.glob(f"sessions/*/*/*/rollout-*-{thread}.jsonl"))
            self._path = found[0] if found else None

    def parts(self, thread: str, printed: int | None) -> list[Part]:
        """Return the calls that became no item, as far as ``printed`` counted items reach.

        ``None`` is for the end, when nothing more will be printed.
        """
        if self._closed:
            return []
        self.begin(thread)
        self._look()
        found: list[Part] = []
        while self._waiting:
            payload, raw = self._waiting[0]
            item = payload.get("item")
            if payload.get("type") == "item_completed" and isinstance(item, dict):
                if item.get("type") in _WRITTEN:
                    if printed is not None and self._count >= printed:
                        break
                    self._count += 1
                self._items.add(text_of(item.get("id")))
            elif self._items:
                # The first item of a turn is the question. A Codex that writes down no items does
                # not tell which calls became one.
                part = self.calls.heard(payload, raw, self._items)
                found += [part] if part is not None else []
            self._waiting.popleft()
        return found

    def _look(self) -> None:
        """Take in what was written since the last look."""
        if self._path is None:
            return
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return
        with open(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return
            file.seek(self._at)
            while self._read < MAX_BYTES and (data := file.read(_CHUNK)):
                self._at += len(data)
                self._read += len(data)
                self._take(data)

    def _take(self, data: bytes) -> None:
        *lines, rest = (self._rest + data).split(b"\n")
        for line in lines:
            if not self._skip:
                self._keep(line)
            self._skip = False
        # A line that is too long is passed over, up to its end.
        self._skip = self._skip or len(rest) > MAX_LINE_BYTES
        self._rest = b"" if self._skip else rest

    def _keep(self, line: bytes) -> None:
        with suppress(ValueError, RecursionError):
            raw = line.decode("utf-8")
            value = json.loads(raw)
            payload = value.get("payload") if isinstance(value, dict) else None
            if isinstance(payload, dict) and value.get("type") in ("response_item", "event_msg"):
                self._waiting.append((payload, raw))
