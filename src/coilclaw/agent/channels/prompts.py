"""The approval prompt: the user decides about exact bytes, and no answer means no.

The content of a request is shown in rows that begin with ``|`` or after a fixed label, so that it
cannot look like a line of the prompt. Invisible characters are made visible. A long text is cut,
with a note of how much is missing and the digest of the whole; ``e`` shows all of it, and a yes
counts only after that.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TextIO

from coilclaw.agent.approvals import NO_ANSWERER
from coilclaw.agent.channels.visible import break_rows, harmless
from coilclaw.kernel import ApprovalAnswer, ApprovalReply, EnvironmentFault, digest_bytes
from coilclaw.policy import Autonomy
from coilclaw.workspace import this_person

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from coilclaw.kernel import ApprovalRequest

DEFAULT_COLUMNS: Final = 80
DEFAULT_LINES: Final = 24

_STYLES: Final = {
    "red": "\x1b[31m",
    "yellow": "\x1b[33m",
    "cyan": "\x1b[36m",
    "bold": "\x1b[1m",
    "dim": "\x1b[2m",
}
_RESET: Final = "\x1b[0m"


@dataclass(frozen=True, slots=True)
class Screen:
    """An output stream and what it can display."""

    stream: TextIO
    terminal: bool
    colour: bool
    smart: bool
    """Whether it is a terminal with control sequences."""

    @classmethod
    def of(cls, stream: TextIO, environ: Mapping[str, str]) -> Screen:
        """Return the screen of a stream, with colour only on a terminal that supports it."""
        terminal = stream.isatty()
        smart = terminal and environ.get("TERM", "") not in {"", "dumb"}
        return cls(stream, terminal, smart and "NO_COLOR" not in environ, smart)

    @property
    def size(self) -> tuple[int, int]:
        """The current number of columns and lines."""
        columns = lines = 0
        if self.terminal:
            with suppress(OSError, ValueError):
                columns, lines = os.get_terminal_size(self.stream.fileno())
        return columns or DEFAULT_COLUMNS, lines or DEFAULT_LINES

    @property
    def ascii_only(self) -> bool:
        """Whether the encoding cannot show non-ASCII letters."""
        name = (self.stream.encoding or "utf-8").lower()
        return name.replace("-", "").replace("_", "") != "utf8"

    def style_text(self, text: str, style: str) -> str:
        return f"{_STYLES[style]}{text}{_RESET}" if self.colour else text

    def write(self, text: str, style: str | None = None) -> None:
        """Write and flush a text; escape characters that the encoding does not have."""
        encoding = self.stream.encoding or "utf-8"
        text = text.encode(encoding, "backslashreplace").decode(encoding)
        self.stream.write(self.style_text(text, style) if style else text)
        self.stream.flush()

    def line(self, text: str = "", style: str | None = None) -> None:
        """Write a line; on a terminal without control characters."""
        self.write(harmless(text) if self.terminal else text, style)
        self.write("\n")


MAX_ANSWER: Final = 4096
"""Bytes of one answer, which is also the longest line of a terminal."""

_PASTE_ON: Final = "\x1b[?2004h"
_PASTE_OFF: Final = "\x1b[?2004l"
PASTED: Final = "\x1b[200~"
"""The mark before pasted text, if the terminal was asked to send it."""


class Keyboard:
    """The source of answers."""

    __slots__ = ("_source", "_trusted", "terminal")

    def __init__(self, source: TextIO, *, assume_terminal: bool = False) -> None:
        self._source = source
        self.terminal = not source.closed and source.isatty()
        self._trusted = assume_terminal

    @property
    def attended(self) -> bool:
        """Whether a user is present, or the caller vouches for one."""
        return self.terminal or self._trusted

    def answer(
        self, screen: Screen, prompt: str, *, also: Callable[[str], None] | None = None
    ) -> str | None:
        """Show a prompt and return the line typed after it; ``None`` at the end of input.

        ``also`` gets the prompt, to show it in a second place.
        """
        marks_paste = self.terminal and screen.smart
        self._forget()
        if also:
            also(prompt)
        screen.write(prompt + (_PASTE_ON if marks_paste else ""))
        try:
            typed = self._read_answer()
            if typed is not None and PASTED in typed:
                self._forget()  # the lines that were pasted with it
            return typed
        finally:
            if marks_paste:
                screen.write(_PASTE_OFF)

    def _forget(self) -> None:
        """Drop input that was typed or pasted before the question was shown."""
        if not self.terminal:
            return
        import termios

        try:
            termios.tcflush(self._source.fileno(), termios.TCIFLUSH)
        except termios.error as problem:
            raise EnvironmentFault(
                f"the terminal cannot be cleared of earlier input: {problem}",
                rule="terminal.flush",
            ) from problem

    def _read_answer(self) -> str | None:
        if not self.terminal:
            line = self._source.readline(MAX_ANSWER)
            return line.rstrip("\r\n") if line.endswith("\n") else None
        data = b""
        while len(data) < MAX_ANSWER and not data.endswith((b"\n", b"\r")):
            try:
                more = os.read(self._source.fileno(), MAX_ANSWER - len(data))
            except OSError:
                more = b""  # the terminal was closed
            if not more:
                return None
            data += more
        return data.decode("utf-8", "replace").rstrip("\r\n")


SHOWN_ARGUMENTS: Final = 1000
"""Characters of the arguments that are shown by default."""
SHOWN_DETAIL: Final = 6000
"""Characters of the detail that are shown by default."""
SHOWN_LINES: Final = 60
"""Lines of the detail that are shown by default."""

_CUT: Final = "… "
"""The beginning of a note about hidden text; no row of a request begins with it."""

UNATTENDED: Final = "no terminal is available to ask the user"
QUESTION: Final = "Approve? [y/N/a/e] "
_YES: Final = frozenset({"y", "yes"})
_ALWAYS: Final = frozenset({"a", "always", "always this exact call"})
_EXPLAIN: Final = frozenset({"e", "explain"})
_LEVELS: Final = {
    Autonomy.READONLY: "what is low risk runs, everything else is denied",
    Autonomy.SUPERVISED: "low risk runs unasked, medium risk is asked about, high risk is denied",
    Autonomy.FULL: "low, medium and high risk run unasked, unless a rule forbids or asks",
}


class TerminalPrompt:
    """The terminal at which the user is asked."""

    def __init__(
        self,
        environ: Mapping[str, str],
        *,
        autonomy: Autonomy = Autonomy.SUPERVISED,
        source: TextIO | None = None,
        out: TextIO | None = None,
        assume_terminal: bool = False,
    ) -> None:
        self._autonomy = autonomy
        self._source = sys.stdin if source is None else source
        self._keyboard = Keyboard(self._source, assume_terminal=assume_terminal)
        self._screen = Screen.of(sys.stderr if out is None else out, environ)


class TerminalApprover(TerminalPrompt):
    """Asks for approval at the terminal; without one, the answer is no."""

    def __call__(self, request: ApprovalRequest) -> ApprovalAnswer:
        """Return the user's answer about one call; ``KeyboardInterrupt`` also ends the turn."""
        if request.verdict.denied:
            reason = "the policy denies it, so it cannot be approved"
            return ApprovalAnswer(ApprovalReply.NO, NO_ANSWERER, reason)
        if not self._keyboard.attended:
            self._screen.line(
                f"Tool request denied: {request.tool} needs approval, and standard input is not a "
                "terminal where the user could be asked."
            )
            return ApprovalAnswer(ApprovalReply.NO, NO_ANSWERER, UNATTENDED)
        sys.stdout.flush()
        shown = self._request(request)
        self._print(shown)
        whole = not any(row.startswith(_CUT) for row in shown)
        question = self._screen.style_text(QUESTION.rstrip(), "bold") + " "
        while True:
            try:
                answer = self._keyboard.answer(self._screen, question, also=self._copy)
            except KeyboardInterrupt:
                self._screen.line("\nDenied.")
                raise
            word = "" if answer is None else answer.strip().lower()
            if word in _EXPLAIN:
                whole = self._page(list(self._explanation(request))) or whole
                continue
            if word in _YES | _ALWAYS and whole:
                reply = ApprovalReply.YES if word in _YES else ApprovalReply.ALWAYS
                return ApprovalAnswer(reply, this_person())
            if word not in _YES | _ALWAYS:
                break
            self._screen.line("Not all of it was shown yet: 'e' shows it, to the end.")
        self._screen.line("\nDenied." if answer is None else "Denied.")
        if answer is None:
            reason = "the terminal was closed without an answer"
            return ApprovalAnswer(ApprovalReply.NO, NO_ANSWERER, reason)
        return ApprovalAnswer(ApprovalReply.NO, this_person())

    def _request(self, request: ApprovalRequest) -> list[str]:
        shown = ["", "Tool request:", *self._facts(request)]
        shown += self._arguments(request.arguments, SHOWN_ARGUMENTS)
        shown += self._detail(request.detail, SHOWN_LINES, SHOWN_DETAIL)
        if any("<U+" in row for row in shown):
            shown.append("(<U+…>: a character that does not show, or passes for another)")
        return shown

    def _facts(self, request: ApprovalRequest) -> Iterator[str]:
        verdict = request.verdict
        for label, text in (
            ("tool", request.tool),
            ("risk", str(verdict.risk)),
            ("rule", verdict.rule),
            ("reason", verdict.reason),
        ):
            yield from self._rows(text, first=f"{label}: ")

    def _arguments(self, text: str, limit: int | None) -> Iterator[str]:
        yield from self._rows(text[:limit], first="args: ")
        if limit is not None and len(text) > limit:
            more = len(text) - limit
            yield f"{_CUT}{more} more characters of the arguments; {_describe_digest(text)}"

    def _detail(self, lines: Sequence[str], most: int | None, limit: int | None) -> Iterator[str]:
        kept = list(lines[:most])
        if limit is not None:
            kept = _cut_lines(kept, limit)
        for line in kept:
            yield from self._rows(line)
        missing = sum(map(len, lines)) - sum(map(len, kept))
        if len(kept) < len(lines) or missing:
            yield (
                f"{_CUT}{len(lines) - len(kept)} more lines, {missing} more characters; "
                f"{_describe_digest(chr(10).join(lines))}"
            )

    def _explanation(self, request: ApprovalRequest) -> Iterator[str]:
        yield from self._facts(request)
        yield f"autonomy: {self._autonomy.value}: {_LEVELS[self._autonomy]}"
        yield "y: runs it once"
        yield "a: runs it, and this exact call again without asking, until the program ends"
        yield "anything else, or nothing: denies it"
        yield f"bound to: sha256 {request.digest}"
        yield from self._arguments(request.arguments, None)
        yield from self._detail(request.detail, None, None)

    def _rows(self, text: str, *, first: str = "| ") -> Iterator[str]:
        width = self._screen.size[0]
        if self._keyboard.terminal and not self._screen.terminal:
            with suppress(OSError):
                width = os.get_terminal_size(self._source.fileno()).columns or width
        return break_rows(text, width, first=first, ascii_only=self._screen.ascii_only)

    def _print(self, lines: Sequence[str]) -> None:
        text = "".join(line + "\n" for line in lines)
        self._copy(text)
        self._screen.write(text)

    def _copy(self, text: str) -> None:
        """Show a text at the user's terminal as well, if the output is redirected."""
        if self._screen.terminal or not self._keyboard.terminal:
            return
        # A terminal without a name, as in some containers, cannot be opened again.
        with suppress(OSError):
            terminal = os.open(os.ttyname(self._source.fileno()), os.O_WRONLY | os.O_NOCTTY)
            with open(terminal, "w", encoding="utf-8", errors="backslashreplace") as stream:
                stream.write(text)

    def _page(self, lines: list[str]) -> bool:
        """Print the lines page by page on a terminal; return whether the end was shown."""
        if not (self._screen.terminal and self._keyboard.terminal):
            self._print(lines)
            return True
        height = max(self._screen.size[1] - 1, 5)
        while lines:
            self._print(lines[:height])
            lines = lines[height:]
            if lines:
                prompt = f"-- {len(lines)} more rows: Enter continues, q ends -- "
                answer = self._keyboard.answer(self._screen, prompt)
                if answer is None or answer.strip():
                    return False
        return True


def _cut_lines(lines: list[str], limit: int) -> list[str]:
    """Return lines with at most ``limit`` characters in total; the last one may be cut."""
    kept = []
    for line in lines:
        if limit <= 0 and line:
            break
        kept.append(line[:limit])
        limit -= len(line)
    return kept


def _describe_digest(text: str) -> str:
    return (
        f"sha256 of all {digest_bytes(text.encode('utf-8', 'surrogatepass'))}; e shows everything"
    )


SHOWN_QUESTION: Final = 4000
"""Characters of a question that are shown."""
SHOWN_QUESTION_LINES: Final = 40
"""Lines of a question that are shown."""
_PASTE_ENDS: Final = "\x1b[201~"


class TerminalAsker(TerminalPrompt):
    """Asks the user a question at the terminal."""

    def __call__(self, question: str) -> str | None:
        """Return the user's answer; ``None`` without a terminal or an answer."""
        if not self._keyboard.attended:
            return None
        sys.stdout.flush()
        width = self._screen.size[0]
        self._screen.write("\nThe model asks:\n")
        shown = "\n".join(question[:SHOWN_QUESTION].split("\n")[:SHOWN_QUESTION_LINES])
        for line in shown.split("\n"):
            for row in break_rows(line, width, ascii_only=self._screen.ascii_only):
                self._screen.write(row + "\n")
        if len(question) > len(shown):
            self._screen.write(f"… {len(question) - len(shown)} more characters\n")
        prompt = self._screen.style_text("Your answer, which the model is given:", "bold") + " "
        answer = self._keyboard.answer(self._screen, prompt)
        if answer is None:
            self._screen.write("\n")
            return None
        return answer.replace(PASTED, "").replace(_PASTE_ENDS, "")
