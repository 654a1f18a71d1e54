"""What agents that are programs of their own have in common: start, budget, halt and ending."""

from __future__ import annotations

import os
import re
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import DeniedError, UsageError
from coilclaw.runners import agent_answer
from coilclaw.runners.model_route import ModelProxy
from coilclaw.runners.runner import Ending
from coilclaw.workspace import command

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import ExitStack
    from pathlib import Path

    from coilclaw.kernel import Part, Usage
    from coilclaw.runners.model_route import RouteTarget
    from coilclaw.runners.runner import Assignment, Deadline, Means, Status
    from coilclaw.workspace import Sandbox

GRACE_S: Final = 3.0
"""How long a turn may take to end once it was told to, before the agent is killed."""
MAX_REASON: Final = 500
_STDERR_BYTES: Final = 64 * 2**10
_MAX_LAST_WORDS: Final = 300
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, slots=True)
class StartedAgent:
    """An agent that runs; it ends with the stack that it was started in."""

    child: command.LiveProcess
    proxy: ModelProxy | None

    def finish(self, ending: Ending, *, broken: bool) -> Ending:
        """Add to an ending what is known after the end of the process."""
        result = self.child.result
        assert result is not None, "a process that was left has ended"
        reason, held = ending.reason, result.enforced
        words = _COLOUR.sub("", result.stderr.text()).strip().rpartition("\n")[2]
        if broken and words:
            reason = f"{reason} Its last words: {words[:_MAX_LAST_WORDS]}"
        if self.proxy is not None:
            held = replace(held, notes=(*held.notes, self.proxy.note))
        return replace(ending, reason=reason, enforced=(held,))


def start_agent(
    stack: ExitStack,
    argv: list[str],
    env: Mapping[str, str],
    sandbox: Sandbox,
    *,
    targets: tuple[RouteTarget, ...],
    place: Path,
    assignment: Assignment,
    means: Means,
    deadline: Deadline,
) -> StartedAgent:
    """Start a program in its sandbox; with ``targets``, it reaches them and no other address.

    ``place`` is a directory of the sandbox that the agent can write.
    """
    proxy = None
    if targets:
        proxy = stack.enter_context(ModelProxy(place, targets))
        argv, env = proxy.wrap_command(argv), proxy.make_environment(env, assignment.workspace)
        sandbox = replace(sandbox, network=False)
    child = command.open(
        argv,
        cwd=assignment.directory,
        timeout_s=deadline.remaining_s + 2 * GRACE_S,
        env=env,
        limit_bytes=_STDERR_BYTES,
        sandbox=sandbox,
        support=means.support,
    )
    return StartedAgent(stack.enter_context(child), proxy)


@dataclass(slots=True, kw_only=True)
class AgentProgress:
    """What one turn of an agent has used and said so far, and how it ends."""

    assignment: Assignment
    means: Means
    deadline: Deadline
    session: str = ""
    session_lost: bool = False
    version: str = ""
    usage: Usage | None = None
    broken: bool = False
    """Whether the agent went away, or did not keep to the protocol."""
    stop: tuple[Status, str] | None = None
    """How it is to end, once it was told to."""
    until: float = 0.0
    """When waiting for the agent makes no sense any more."""
    _parts: int = 0
    _tools: int = 0

    def interrupt(self) -> None:
        """Tell the agent to end its turn."""
        raise NotImplementedError

    def halt(self, status: Status, reason: str) -> None:
        """Have the turn end; the first reason stands."""
        if self.stop is None:
            self.stop = (status, reason)
            self.until = time.monotonic() + GRACE_S
            self.interrupt()

    def count(self, part: Part) -> str:
        """Count a part; return why the budget has no room for it, if so."""
        budget = self.assignment.budget
        self._parts += 1
        self._tools += part.kind in ("tool", "patch")
        if budget.parts is not None and self._parts > budget.parts:
            return f"the {budget.parts} parts of the budget are used up"
        if budget.tool_rounds is not None and self._tools > budget.tool_rounds:
            return f"the {budget.tool_rounds} tool calls are used up"
        return ""

    def allows(self, part: Part) -> bool:
        """Whether the budget has room for a part; if not, the turn is told to end."""
        excess = self.count(part)
        if excess:
            self.halt("exhausted", excess)
        return not excess

    def find_token_excess(self) -> str:
        """Return why no more tokens may be used, if so."""
        limit, used = self.assignment.budget.tokens, self.usage
        spent = 0 if used is None else (used.input_tokens or 0) + (used.output_tokens or 0)
        over = limit is not None and spent > limit
        return f"the {limit} tokens of the budget are used up" if over else ""

    def end(self, status: Status, reason: str, text: str, answer: str | None = None) -> Ending:
        """Make the ending; ``answer`` is the text that holds the result, if it is another one."""
        result = None
        if status == "done" and self.assignment.output_schema is not None:
            data = (text if answer is None else answer).encode("utf-8", "replace")
            try:
                result = agent_answer.read_object(data, what="the answer")
            except UsageError as problem:
                status, reason = "failed", problem.message
        said = f"{reason[:1].upper()}{reason[1:MAX_REASON].rstrip('.')}." if reason else ""
        if result is not None:
            status, said = agent_answer.verdict(result)
        return Ending(
            status,
            said,
            result=result,
            text=text,
            thread_id=self.session,
            usage=self.usage,
            version=self.version,
            session_lost=self.session_lost,
        )


@dataclass(frozen=True, slots=True)
class HomeFolder:
    """A directory in the private home of an agent that only we fill.

    The agent could write around it in turns before: no link is followed.
    """

    path: Path
    title: str
    """What it is called in messages: ``Codex home``."""
    rule: str

    @contextmanager
    def open(self) -> Iterator[int]:
        """Open the directory itself."""
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as problem:
            raise DeniedError(
                f"The {self.title} {str(self.path)!r} is not our directory: {problem.strerror}.",
                rule=self.rule,
            ) from problem
        try:
            yield fd
        finally:
            os.close(fd)

    def make(self, name: str) -> HomeFolder:
        """Return a directory in it, which is made if it is missing."""
        with self.open() as here, suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=here)
        made = replace(self, path=self.path / name)
        with made.open():
            return made

    def write(self, name: str, data: bytes) -> None:
        """Write a file anew, for its owner alone."""
        self.remove(name)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with self.open() as here, open(os.open(name, flags, 0o600, dir_fd=here), "wb") as file:
            file.write(data)

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        with self.open() as here, suppress(FileNotFoundError):
            try:
                os.unlink(name, dir_fd=here)
            except IsADirectoryError as problem:
                raise DeniedError(
                    f"{name} in the {self.title} is a directory.", rule=self.rule
                ) from problem


def read_start(path: Path, limit: int, rule: str, *, what: str = "") -> bytes:
    """Read a file that the user names, up to one byte more than ``limit``."""
    try:
        with path.open("rb") as file:
            return file.read(limit + 1)
    except OSError as problem:
        raise UsageError(f"cannot read {what}{path}: {problem.strerror}", rule=rule) from problem


def read_bounded(path: Path, limit: int, rule: str) -> bytes:
    """Read a file that the user names; one that is unreadable or too large is a ``UsageError``."""
    data = read_start(path, limit, rule)
    if len(data) > limit:
        raise UsageError(f"{path} is larger than {limit} bytes", rule=rule)
    return data
