"""``ScriptedRunner``: an agent that does what a file says, with real effects in a real sandbox.

One performance plays one turn. Files are touched by the player, a process in the sandbox of the
assignment; a command gets a process in the same sandbox for itself, and nothing of it stays.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, field
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from coilclaw.agents import answers, shellpolicy
from coilclaw.agents.deadline import Deadline
from coilclaw.agents.runner import Ending
from coilclaw.agents.script import attempt_of
from coilclaw.domain import freeform
from coilclaw.domain.parts import Part
from coilclaw.workspace import process

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from coilclaw.agents.runner import Assignment, Means, Status
    from coilclaw.agents.script import Action, Script, Turn
    from coilclaw.domain.messages import Json
    from coilclaw.workspace.process import LiveProcess, ProcessResult
    from coilclaw.workspace.sandbox import Enforced

COMMAND_TIMEOUT_S: Final = 600.0
OUTPUT_BYTES: Final = 2**20
MAX_REPLY_BYTES: Final = 64 * 2**20
ENDING_S: Final = 10.0
"""How long the end of a player is waited for, once its output has ended."""
TIMED_OUT_EXIT_CODE: Final = 124
_GIT_IDENTITY: Final = {
    "GIT_AUTHOR_NAME": "Scripted Agent",
    "GIT_AUTHOR_EMAIL": "scripted@coilclaw.invalid",
    "GIT_COMMITTER_NAME": "Scripted Agent",
    "GIT_COMMITTER_EMAIL": "scripted@coilclaw.invalid",
}


def attempt(assignment: Assignment) -> int:
    """The turn that is played, from the id of the task: the first one, then one a repair."""
    return attempt_of(assignment.task_id)


@dataclass(frozen=True, slots=True)
class ScriptedRunner:
    """Plays a script; ``turn`` says which of a task's turns an assignment is."""

    script: Script
    turn: Callable[[Assignment], int] = attempt
    command_timeout_s: float = COMMAND_TIMEOUT_S
    name: str = "scripted"

    def perform(self, assignment: Assignment, means: Means) -> Generator[Part, None, Ending]:
        """Play one turn."""
        turns = self.script.turns(assignment.task_id)
        number = self.turn(assignment)
        if not 0 <= number < len(turns):
            why = f"the script is over: it has {len(turns)} turns for this task"
            return Ending("failed", why)
        playing = _Playing(assignment, means, self.command_timeout_s)
        return (yield from playing.play(turns[number]))


class _Over(Exception):
    """Ends a turn before its last part; it never leaves this module."""

    def __init__(self, status: Status, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


@dataclass(slots=True)
class _Playing:
    """One turn while it is played."""

    assignment: Assignment
    means: Means
    command_timeout_s: float
    deadline: Deadline = field(init=False)
    contained: bool = field(init=False)
    text: str = ""
    result: Mapping[str, Json] | None = None
    enforced: list[Enforced] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.deadline = Deadline.of(self.assignment.budget)
        self.contained = shellpolicy.is_contained(self.assignment, self.means)

    def play(self, turn: Turn) -> Generator[Part, None, Ending]:
        if self.means.cancel.cancelled:
            return self._ending("aborted", f"cancelled: {self.means.cancel.reason}")
        status: Status = "done"
        reason = ""
        with self._player() as player:
            said = 0
            try:
                for number, action in enumerate(turn):
                    part = self._part(action, number, player)
                    if part is not None:
                        self._count(said)
                        said += 1
                        yield part
                self._check()
            except _Over as over:
                status, reason = over.status, over.reason
        ended = player.result
        if ended is not None:
            self._held(ended.enforced)
        return self._ending(status, reason)

    def _ending(self, status: Status, reason: str) -> Ending:
        result = None
        if status == "done":
            result = self._answer()
            status, reason = answers.verdict(result)
        return Ending(status, reason, result, self.text, enforced=tuple(self.enforced))

    def _answer(self) -> Mapping[str, Json]:
        task_id = self.assignment.task_id
        if self.result is None:
            return answers.task_result(task_id, self.text or "the turn was played")
        if "status" in self.result and "task_id" not in self.result:
            return {"task_id": task_id, **self.result}
        return self.result

    def _player(self) -> LiveProcess:
        source = files(__package__).joinpath("scriptplayer.py").read_text(encoding="utf-8")
        return process.open(
            # The interpreter itself: a virtual environment may lie where the sandbox covers it.
            (os.path.realpath(sys.executable), "-I", "-S", "-c", source),
            cwd=self.assignment.directory,
            timeout_s=self.deadline.remaining_s,
            env=self.assignment.environ,
            limit_bytes=OUTPUT_BYTES,
            sandbox=self.assignment.sandbox,
            support=self.means.support,
            cancel=self.means.cancel,
        )

    def _count(self, said: int) -> None:
        most = self.assignment.budget.parts
        if most is not None and said >= most:
            raise _Over("exhausted", f"the budget of {most} parts is used up")

    def _check(self) -> None:
        if self.means.cancel.cancelled:
            raise _Over("aborted", f"cancelled: {self.means.cancel.reason}")
        if self.deadline.passed:
            raise _Over("exhausted", self.deadline.reason)

    def _part(self, action: Action, number: int, player: LiveProcess) -> Part | None:
        self._check()
        value = action.value
        match action.kind:
            case "reasoning":
                return Part("reasoning", text=str(value))
            case "text":
                self.text = str(value)
                return Part("text", text=self.text)
            case "result":
                assert isinstance(value, dict), "the script was checked"
                self.result = value
                return None
            case "write" | "delete" | "sleep_s" | "crash":
                return self._done(action, number, player)
            case "run_tests":
                return self._tests(str(value), number)
            case "commit":
                return self._commit(str(value), number)
            case _:
                return self._shell(str(value), number)

    def _done(self, action: Action, number: int, player: LiveProcess) -> Part:
        """Have the player do it."""
        try:
            player.stdin.write(json.dumps({action.kind: action.value}).encode() + b"\n")
            line = player.stdout.readline(MAX_REPLY_BYTES)
        except BrokenPipeError:
            line = b""
        if not line.endswith(b"\n"):
            raise self._end_of(player)
        reply = answers.read_object(line, what="the player's reply", bound=MAX_REPLY_BYTES)
        names, code = reply.get("files"), reply.get("exit_code")
        return Part(
            "tool",
            tool=action.kind,
            call_id=f"call-{number}",
            input=freeform.text({_ARGUMENT[action.kind]: action.value}),
            output=str(reply.get("output")),
            exit_code=code if isinstance(code, int) else None,
            files=tuple(map(str, names)) if isinstance(names, list) else (),
        )

    def _end_of(self, player: LiveProcess) -> _Over:
        result = player.wait(ENDING_S)
        if result is not None and result.outcome == "timed_out":
            return _Over("exhausted", self.deadline.reason)
        if result is not None and result.outcome == "cancelled":
            return _Over("aborted", f"cancelled: {self.means.cancel.reason}")
        return _Over("aborted", "the agent crashed: its process ended in the middle of a turn")

    def _tests(self, path: str, number: int) -> Part:
        run = self.means.run_tests
        output = "there are no tests to run" if run is None else run(path)
        return Part(
            "tool",
            tool="run_tests",
            call_id=f"call-{number}",
            input=freeform.text({"path": path}),
            output=output,
            exit_code=None if run else 1,
        )

    def _shell(self, command: str, number: int) -> Part:
        arguments: dict[str, Json] = {"command": command}
        return self._run("shell", arguments, (("/bin/sh", "-c", command),), number)

    def _commit(self, message: str, number: int) -> Part:
        commands = (
            ("git", "add", "-A"),
            ("git", "-c", "commit.gpgSign=false", "commit", "-q", "-m", message),
        )
        return self._run("git commit", {"message": message}, commands, number)

    def _run(
        self,
        tool: str,
        arguments: dict[str, Json],
        commands: tuple[tuple[str, ...], ...],
        number: int,
    ) -> Part:
        """Run commands until one fails; one that may not run is a part that says so."""
        output, code = "", 0
        for argv in commands:
            refused = self._refused(argv)
            if refused:
                output, code = refused, shellpolicy.REFUSED_EXIT_CODE
                break
            result = self._started(argv)
            output += _written(result)
            code = _exit_code(result)
            if code:
                break
        return Part(
            "tool",
            tool=tool,
            call_id=f"call-{number}",
            input=freeform.text(arguments),
            output=output,
            exit_code=code,
        )

    def _refused(self, argv: tuple[str, ...]) -> str:
        assignment = self.assignment
        asked = shellpolicy.command_request(
            assignment.task_id, argv, directory=str(assignment.directory)
        )
        ruling = shellpolicy.settle(
            assignment.shell, asked, self.means.approve, contained=self.contained
        )
        return ruling.reason

    def _started(self, argv: tuple[str, ...]) -> ProcessResult:
        self._check()
        result = process.run(
            argv,
            cwd=self.assignment.directory,
            timeout_s=min(self.command_timeout_s, self.deadline.remaining_s),
            env={**self.assignment.environ, **_GIT_IDENTITY},
            limit_bytes=OUTPUT_BYTES,
            sandbox=self.assignment.sandbox,
            support=self.means.support,
            cancel=self.means.cancel,
        )
        self._held(result.enforced)
        # What was cut short by the end of everything is no complete part.
        self._check()
        return result

    def _held(self, enforced: Enforced) -> None:
        if enforced not in self.enforced:
            self.enforced.append(enforced)


_ARGUMENT: Final = {"write": "files", "delete": "paths", "sleep_s": "seconds", "crash": "crash"}


def _written(result: ProcessResult) -> str:
    text, errors = result.stdout.text(), result.stderr.text()
    if not errors:
        return text
    gap = "" if not text or text.endswith("\n") else "\n"
    return f"{text}{gap}[stderr]\n{errors}"


def _exit_code(result: ProcessResult) -> int:
    if result.outcome == "timed_out":
        return TIMED_OUT_EXIT_CODE
    if result.signal is not None:
        return 128 + result.signal
    return 1 if result.exit_code is None else result.exit_code
