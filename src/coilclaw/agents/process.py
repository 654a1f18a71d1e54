"""``ProcessRunner``: any program as an agent: the contract on its input, a result on its output.

It is started in the worktree, inside the sandbox of the assignment. Its output is one agent task
result in JSON and nothing else; what it has to say besides goes to its error output.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.agents import answers
from coilclaw.agents.deadline import Deadline
from coilclaw.agents.runner import Ending
from coilclaw.domain.parts import Part
from coilclaw.errors import AnswerError
from coilclaw.workspace import process

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

    from coilclaw.agents.runner import Assignment, Means
    from coilclaw.domain.messages import Json
    from coilclaw.workspace.process import ProcessResult

MAX_STDERR_BYTES: Final = 2**20
MAX_LINE_BYTES: Final = 64 * 2**10
MAX_LINES: Final = 2_000
"""Lines of error output that are told while the program runs; all of it is kept."""
_SIGNALLED: Final = 128
ERROR_OUTPUT: Final = "stderr"
"""The ``item_type`` of the part that holds what the program wrote besides its result."""


@dataclass(frozen=True, slots=True)
class ProcessRunner:
    """Starts one program for each assignment."""

    argv: tuple[str, ...]
    base: Path | None = None
    """What a program that is named by a relative path is relative to; else it is the worktree."""
    name: str = "process"

    def perform(self, assignment: Assignment, means: Means) -> Generator[Part, None, Ending]:
        """Run the program to its end."""
        deadline = Deadline.of(assignment.budget)
        argv = self.command_line()
        heard = OutputLines(means.on_output)
        result = process.run(
            argv,
            cwd=assignment.directory,
            timeout_s=deadline.remaining_s,
            env=assignment.environ,
            stdin=_given(assignment),
            # Half of what is kept is the head: only a stream that was kept whole is read.
            limit_bytes=answers.MAX_ANSWER_BYTES,
            sandbox=assignment.sandbox.showing(*argv),
            support=means.support,
            cancel=means.cancel,
            observe_errors=heard.take,
        )
        heard.finish()
        said = _errors(result)
        if said:
            yield Part("text", text=said, item_type=ERROR_OUTPUT)
        ending = _ending(result, deadline, means)
        if ending.result is not None and ending.text:
            yield Part("text", text=ending.text)
        return ending

    def command_line(self) -> tuple[str, ...]:
        """Return what is started."""
        program, *rest = self.argv
        if self.base is not None and "/" in program:
            program = os.path.join(self.base, program)
        return (program, *rest)


@dataclass(slots=True)
class OutputLines:
    """Cuts output into lines as it comes; what is longer than a line may be is told in part."""

    tell: Callable[[str], None]
    _rest: bytes = b""
    _told: int = 0

    def take(self, data: bytes) -> None:
        """Tell each line that is complete; after ``MAX_LINES`` nothing more is told."""
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[:MAX_LINE_BYTES]
        for line in lines:
            if self._told < MAX_LINES:
                self._told += 1
                self.tell(line[:MAX_LINE_BYTES].decode("utf-8", "replace"))

    def finish(self) -> None:
        """Tell a last line that has no end."""
        if self._rest:
            self.take(b"\n")


def _given(assignment: Assignment) -> bytes:
    """What the program reads: the contract, or what stands for one outside of orchestrated work."""
    contract: dict[str, Json] = dict(assignment.contract) or {
        "task_id": assignment.task_id,
        "inputs": {"spec": assignment.instruction, "artifacts": []},
    }
    return json.dumps(contract, ensure_ascii=True).encode("ascii") + b"\n"


def _errors(result: ProcessResult) -> str:
    text = result.stderr.text()
    if len(text) <= MAX_STDERR_BYTES:
        return text
    half = MAX_STDERR_BYTES // 2
    return f"{text[:half]}\n[… cut …]\n{text[-half:]}"


def _signal(result: ProcessResult) -> int | None:
    """The signal that ended the program; bubblewrap tells of it as a shell does."""
    code = result.exit_code
    if result.enforced.kind == "bubblewrap" and code is not None and code > _SIGNALLED:
        return code - _SIGNALLED
    return result.signal


def _ending(result: ProcessResult, deadline: Deadline, means: Means) -> Ending:
    held = (result.enforced,)
    if result.outcome == "cancelled":
        return Ending("aborted", f"cancelled: {means.cancel.reason}", enforced=held)
    if result.outcome == "timed_out":
        return Ending("exhausted", deadline.reason, enforced=held)
    signal = _signal(result)
    if signal is not None:
        return Ending("aborted", f"the program was ended by signal {signal}", enforced=held)
    if result.exit_code != 0:
        why = f"the program ended with exit code {result.exit_code}"
        return Ending("failed", why, enforced=held)
    if result.stdout.dropped:
        why = f"the program wrote more than {answers.MAX_ANSWER_BYTES:,} bytes"
        return Ending("failed", why, enforced=held)
    try:
        answer = answers.read_object(result.stdout.data, what="the program's output")
    except AnswerError as problem:
        return Ending("failed", f"{problem.message} [{problem.rule}]", enforced=held)
    status, reason = answers.verdict(answer)
    return Ending(status, reason, answer, str(answer.get("summary") or ""), enforced=held)
