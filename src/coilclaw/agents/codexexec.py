"""The ``codex-exec`` runner: Codex without anybody to ask, by ``codex exec --json``.

The unattended fallback of the app-server: it tells less (no diffs), and a command that would have
to be approved is refused. It is held as the other one is.
"""

from __future__ import annotations

import json
import os
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from coilclaw.agents import answers, codexhome, codexroute, finding, testtool
from coilclaw.agents.codex import finished, outer, tidied
from coilclaw.agents.codexcalls import Calls, text_of
from coilclaw.agents.codexexecitems import ExecItems, usage_of
from coilclaw.agents.codexrollout import COUNTED, Rollout
from coilclaw.agents.codexwire import Cancelled, TimeUp, Wire, WireProblem
from coilclaw.agents.deadline import Deadline
from coilclaw.agents.runner import Ending
from coilclaw.domain.messages import Usage
from coilclaw.errors import DeniedError, UsageError
from coilclaw.providers.outputschema import narrowed
from coilclaw.workspace import process

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from pathlib import Path

    from coilclaw.agents.codexhome import CodexHome
    from coilclaw.agents.runner import Assignment, Means, Status
    from coilclaw.agents.testtool import TestTool
    from coilclaw.domain.messages import Json
    from coilclaw.domain.parts import Part

LEAVE_S: Final = 3.0
"""How long Codex may take to write its thread down, once the turn is over."""

_STDERR_BYTES: Final = 64 * 2**10
_MAX_REASON: Final = 500
_MAX_NOTE_BYTES: Final = 4096
_SCHEMA, _NOTE = "output-schema.json", "codex-exec-usage.json"


@dataclass(frozen=True, slots=True)
class CodexExecRunner:
    """Performs assignments with Codex, whose own sandbox needs a /tmp that can be written."""

    executable: Path | None = None
    """The program, or where it was installed; without one it is looked for."""
    base_home: Path | None = None
    """The template of the home that each task gets."""
    environ: Mapping[str, str] = field(default_factory=dict)
    """Where PATH and ``$COILCLAW_CODEX`` are looked up, and the key of the model."""
    home: Path | None = None
    """Our own home, below which agents may be installed."""

    @property
    def name(self) -> str:
        return "codex-exec"

    def perform(self, assignment: Assignment, means: Means) -> Generator[Part, None, Ending]:
        """Start Codex, give it the task, and see it through."""
        if assignment.shell == "untrusted":
            raise DeniedError(
                "Each command shall be approved, and codex exec asks nobody.",
                rule="codex.exec",
                hint="Use the runner codex.",
            )
        deadline = Deadline.of(assignment.budget)
        program = finding.codex(self.environ, self.home, self.executable)
        with ExitStack() as stack:
            stack.enter_context(tidied(assignment.directory))
            home = stack.enter_context(codexhome.prepared(assignment, self.base_home))
            tests = stack.enter_context(testtool.offered(means.run_tests, home.temporary))
            argv = arguments(program, assignment, home, tests)
            env = home.environment(assignment.environ, self.environ)
            route = None
            if assignment.network == "deny" and assignment.sandbox.kind != "none":
                route = stack.enter_context(codexroute.opened(home.settings, home.temporary))
                argv, env = route.argv(argv), route.environment(env, assignment.workspace)
            box = outer(assignment.sandbox, program, network=route is None)
            child = stack.enter_context(
                process.open(
                    argv,
                    cwd=assignment.directory,
                    timeout_s=deadline.remaining_s + LEAVE_S,
                    env=env,
                    limit_bytes=_STDERR_BYTES,
                    sandbox=box,
                    support=means.support,
                )
            )
            wire = stack.enter_context(Wire(child, means.cancel))
            denied = assignment.shell == "deny"
            rollout = Rollout(home.path, Calls(denied), assignment.thread_id)
            listening = _Listening(wire, child, assignment, means, deadline, rollout)
            ending = yield from listening.perform(home)
            if ending.status in ("done", "failed"):
                child.wait(LEAVE_S)
            yield from listening.late()
        ended = finished(ending, child, route, broken=listening.broken)
        return replace(ended, version=finding.version_of(program, self.environ))


def arguments(
    program: Path, assignment: Assignment, home: CodexHome, tests: TestTool | None
) -> list[str]:
    """Return the command line; the task itself comes over the input."""
    settings: dict[str, Json] = {
        "sandbox_mode": assignment.filesystem,
        "sandbox_workspace_write.network_access": assignment.network == "allow",
        "sandbox_workspace_write.writable_roots": [*codexhome.writable_roots(assignment)],
        "sandbox_workspace_write.exclude_slash_tmp": not assignment.sandbox.private_tmp,
    }
    argv = [str(program), "exec"]
    argv += ["resume"] if assignment.thread_id else []
    argv += ["--json", "--skip-git-repo-check"]
    for name, value in settings.items():
        argv += ["-c", f"{name}={json.dumps(value)}"]
    argv += tests.codex_options() if tests is not None else []
    if assignment.model:
        argv += ["-m", assignment.model]
    if assignment.output_schema is not None:
        path = home.temporary / _SCHEMA
        path.unlink(missing_ok=True)
        path.write_text(json.dumps(narrowed(assignment.output_schema)), encoding="utf-8")
        argv += ["--output-schema", str(path)]
    return [*argv, *([assignment.thread_id] if assignment.thread_id else []), "-"]


@dataclass(slots=True)
class _Listening:
    """Takes what Codex prints, until its end."""

    wire: Wire
    child: process.LiveProcess
    assignment: Assignment
    means: Means
    deadline: Deadline
    rollout: Rollout
    items: ExecItems = field(init=False)
    broken: bool = False
    _thread: str = ""
    _begun: bool = False
    _full: bool = False
    _printed: int = 0
    _parts: int = 0
    _tools: int = 0
    _usage: Usage | None = None

    def __post_init__(self) -> None:
        denied = self.assignment.shell == "deny"
        self.items = ExecItems(self.assignment.workspace, shell_denied=denied)

    def perform(self, home: CodexHome) -> Generator[Part, None, Ending]:
        try:
            self._tell()
            while True:
                event, raw = self.wire.receive(self.deadline.at, heed_cancel=True)
                kind = text_of(event.get("type"))
                if kind == "thread.started":
                    self._thread = text_of(event.get("thread_id"))
                    self.means.on_session(self._thread)
                elif kind == "turn.started":
                    self._begun = True
                    home.forget_key()
                for part in self._parts_of(kind, event, raw):
                    full = self._over_budget(part)
                    if full:
                        return self._ending("exhausted", full)
                    yield part
                if kind == "turn.completed":
                    self._count(event.get("usage"))
                    return self._completed()
                if kind == "turn.failed":
                    return self._ending("failed", _reason(event.get("error"), self.items.warning))
        except WireProblem as fault:
            self.broken = True
            for part in self.items.unfinished():
                yield part
            return self._ending("aborted", f"Codex did not finish: {fault}")
        except Cancelled:
            return self._ending("aborted", f"It was cancelled: {self.means.cancel.reason}")
        except TimeUp:
            return self._ending("exhausted", self.deadline.reason)

    def late(self) -> Generator[Part, None, None]:
        """Yield the calls that nothing was printed of, and that were not seen before the end."""
        if not self._full:
            for part in self.rollout.parts(self._thread, None):
                if self._over_budget(part):
                    return
                yield part

    def _tell(self) -> None:
        try:
            self.child.stdin.write(self.assignment.instruction.encode("utf-8", "replace"))
        except BrokenPipeError as problem:
            raise WireProblem("it ended before it was told its task") from problem
        self.child.stdin.close()

    def _parts_of(self, kind: str, event: Mapping[str, Json], raw: str) -> list[Part]:
        item = event.get("item")
        found = self.rollout.parts(self._thread, self._printed)
        if kind in ("turn.completed", "turn.failed"):
            found += self.items.unfinished()
        elif isinstance(item, dict) and kind == "item.started":
            self.items.began(item, raw)
        elif isinstance(item, dict) and kind == "item.completed":
            self._printed += item.get("type") in COUNTED
            part = self.items.completed(item, raw)
            found += [] if part is None else [part]
        elif kind == "error":
            self.items.warning = text_of(event.get("message"))
        return found

    def _over_budget(self, part: Part) -> str:
        budget = self.assignment.budget
        self._parts += 1
        self._tools += part.kind in ("tool", "patch")
        full = ""
        if budget.parts is not None and self._parts > budget.parts:
            full = f"the {budget.parts} parts of the budget are used up"
        elif budget.tool_rounds is not None and self._tools > budget.tool_rounds:
            full = f"the {budget.tool_rounds} tool calls are used up"
        self._full = bool(full)
        return full

    def _count(self, counted: Json) -> None:
        """Take note of the tokens of this turn; Codex tells those of the whole thread."""
        total = usage_of(counted)
        if total is None:
            return
        note = self.assignment.home / _NOTE
        before = _noted(note, self._thread)
        self._usage = Usage(
            max((total.input_tokens or 0) - (before.input_tokens or 0), 0),
            max((total.output_tokens or 0) - (before.output_tokens or 0), 0),
        )
        said = [self._thread, total.input_tokens, total.output_tokens]
        with suppress(OSError):  # It only makes the next count exact.
            note.unlink(missing_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(note, flags, 0o600), "w", encoding="utf-8") as file:
                json.dump(said, file)

    def _completed(self) -> Ending:
        limit = self.assignment.budget.tokens
        spent = self._usage or Usage(0, 0)
        if limit is not None and (spent.input_tokens or 0) + (spent.output_tokens or 0) > limit:
            return self._ending("exhausted", f"the {limit} tokens of the budget are used up")
        return self._ending("done", "")

    def _ending(self, status: Status, reason: str) -> Ending:
        result = None
        if status == "done" and self.assignment.output_schema is not None:
            try:
                result = answers.read_object(self.items.text.encode(), what="the answer")
            except UsageError as problem:
                status, reason = "failed", problem.message
            else:
                status, reason = answers.verdict(result)
        short = reason[:_MAX_REASON]
        return Ending(
            status,
            short[:1].upper() + short[1:].rstrip(".") + "." if short else "",
            result=result,
            text=self.items.text,
            thread_id=self._thread or self.assignment.thread_id,
            usage=self._usage,
            session_lost=bool(self.assignment.thread_id) and self.broken and not self._begun,
        )


def _noted(path: Path, thread: str) -> Usage:
    """Return what a thread had taken before; the agent could write there, so nothing is believed
    that is no count."""
    said: Any = None
    with suppress(OSError, ValueError, RecursionError):
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            said = json.loads(file.read(_MAX_NOTE_BYTES))
    match said:
        case [str(whose), int(read), int(written)] if whose == thread and min(read, written) >= 0:
            return Usage(read, written)
    return Usage(0, 0)


def _reason(error: Json, warning: str) -> str:
    said = text_of(error.get("message")) if isinstance(error, dict) else ""
    return f"Codex failed: {said or warning or 'it gave no reason'}"
