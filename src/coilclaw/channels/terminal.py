"""The terminal as a channel: one message, or a conversation that goes on until somebody leaves."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Final, TextIO

from coilclaw.channels.answers import AnswerWriter
from coilclaw.channels.screen import Screen
from coilclaw.errors import CoilClawError, UsageError
from coilclaw.runtime.message_text import check_message

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from coilclaw.channels.commands import Commands
    from coilclaw.channels.lines import Lines
    from coilclaw.runtime.handle import RuntimeHandle, TurnOutcome

PROMPT: Final = "> "
CONTINUED: Final = "... "
MAX_MESSAGE: Final = 2**20
"""Characters of one message, with all the lines it goes on in."""

_CANCELLED: Final = "Turn cancelled; the conversation goes on."
_HINT: Final = "To leave, type /exit or press Ctrl-D."


def one_shot(
    handle: RuntimeHandle,
    message: str,
    *,
    out: TextIO,
    environ: Mapping[str, str],
    conversation_id: str | None = None,
) -> TurnOutcome:
    """Run one turn and show its answer; on a terminal, as it comes."""
    return _turn(handle, message, conversation_id, Screen.of(out, environ))


def _turn(
    handle: RuntimeHandle, message: str, conversation_id: str | None, screen: Screen
) -> TurnOutcome:
    answer = AnswerWriter(screen)
    try:
        outcome = handle.turn(message, conversation_id=conversation_id, draft=answer.draft)
    except BaseException:
        answer.leave()
        raise
    answer.finish(outcome.text)
    return outcome


class Repl:
    """A conversation at the terminal, or with whoever writes lines into our standard input."""

    name = "cli"

    def __init__(
        self,
        environ: Mapping[str, str],
        *,
        source: TextIO | None = None,
        out: TextIO | None = None,
        err: TextIO | None = None,
        history: Path | None = None,
        conversation_id: str | None = None,
    ) -> None:
        self._source = sys.stdin if source is None else source
        self._out = Screen.of(sys.stdout if out is None else out, environ)
        self._err = Screen.of(sys.stderr if err is None else err, environ)
        self._history = history
        self._busy = False
        self._hinted = False
        self._broken = False
        self._left = False
        self._note = ""
        self._ended = False
        self.conversation_id = conversation_id
        self.problem: CoilClawError | None = None
        """The last one that a message or a command ended in."""

    @property
    def supports_draft_updates(self) -> bool:
        return self._out.terminal

    @property
    def _interactive(self) -> bool:
        # Line editing happens on the program's own streams and nowhere else.
        own = self._source is sys.stdin and self._out.stream is sys.stdout
        return own and self._out.terminal and self._source.isatty()

    def send(self, conversation_id: str, message: str) -> None:
        """Print a message; one of another conversation says so."""
        if conversation_id != self.conversation_id:
            self._out.line(f"[{conversation_id}]", "dim")
        AnswerWriter(self._out).finish(message)

    def start(self, runtime_handle: RuntimeHandle) -> None:
        """Take messages and commands until the end of input or ``/exit``."""
        from coilclaw.channels.commands import Commands
        from coilclaw.channels.history import History
        from coilclaw.channels.interrupts import heard_endings
        from coilclaw.channels.lines import EditedLines, PipedLines

        if self.conversation_id is None:
            self.conversation_id = runtime_handle.new_conversation()
        commands = Commands(runtime_handle, self.conversation_id)
        editing: AbstractContextManager[None] = nullcontext()
        lines: Lines = PipedLines(self._source)
        if self._interactive:
            history = History(self._history) if self._history else None
            edited = EditedLines(history, marks_paste=self._out.smart)
            editing, lines = edited.editing(commands.complete), edited
        with heard_endings(self._end), editing:
            self._greet()
            self._converse(runtime_handle, commands, lines)

    def _end(self) -> None:
        self._ended = True

    def _greet(self) -> None:
        self._err.line(f"Conversation {self.conversation_id}", "dim")
        self._err.line(
            f"Resume it with: coilclaw agent --conversation {self.conversation_id}", "dim"
        )
        if self._interactive:
            self._err.line("/help lists the commands, Ctrl-D leaves.", "dim")

    def _converse(self, handle: RuntimeHandle, commands: Commands, lines: Lines) -> None:
        while not self._left:
            # What is said about an interruption can be interrupted as well: therefore the
            # handlers only make a note, and the next round says it.
            try:
                self._say()
                self._round(handle, commands, lines)
            except KeyboardInterrupt:
                if self._ended or not self._interactive:
                    raise
                self._note = _CANCELLED if self._busy else "" if self._hinted else _HINT
                self._hinted = True
                self._broken = True
            except CoilClawError as problem:
                self.problem = problem
                self._note = _sentence(problem)

    def _round(self, handle: RuntimeHandle, commands: Commands, lines: Lines) -> None:
        self._busy = False
        message = self._message(lines)
        self._hinted = False
        if message is None:
            self._left = True
            if self._interactive:
                self._out.line()
        elif message.rstrip() == "/exit":
            self._left = True
        elif message.startswith("/"):
            for line in commands.perform(message):
                self._out.line(line)
        elif message.strip():
            self._busy = True
            _turn(handle, message, self.conversation_id, self._out)

    def _message(self, lines: Lines) -> str | None:
        """Return the next message, its continued lines joined; ``None`` when there are no more."""
        parts: list[str] = []
        size = 0
        prompt = PROMPT
        while (line := lines.read(self._prompt(prompt))) is not None:
            goes_on = (len(line) - len(line.rstrip("\\"))) % 2 == 1
            size += len(line)
            if size <= MAX_MESSAGE:
                parts.append(line[:-1] if goes_on else line)
            if not goes_on:
                break
            prompt = CONTINUED
        if size > MAX_MESSAGE:
            raise UsageError(
                f"the message is longer than {MAX_MESSAGE} characters", rule="message.large"
            )
        check_message("\n".join(parts))
        return "\n".join(parts) if parts else None

    def _prompt(self, text: str) -> str:
        # The bytes around a style tell the line editor that it takes no cells.
        return f"\x01\x1b[1m\x02{text}\x01\x1b[0m\x02" if self._out.colour else text

    def _say(self) -> None:
        """Say what the last round ended in."""
        broken, self._broken = self._broken, False
        note, self._note = self._note, ""
        if broken:
            self._err.write("\n")
        if note:
            self._err.line(note, "yellow")


def _sentence(problem: CoilClawError) -> str:
    hint = f"\n  hint: {problem.hint}" if problem.hint else ""
    return f"coilclaw: {' '.join(problem.message.split())} [{problem.rule}]{hint}"
