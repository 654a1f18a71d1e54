"""The approval prompt: a person decides about exact bytes, and silence is a no.

What the request holds is shown in rows that begin with ``|``, or behind a label of ours: nothing in
it can look like a line of the prompt. What does not show is made visible, what is too long is
cut with a note of how much is missing and the digest of the whole, and ``e`` shows all of it, which
must have been seen before a yes counts.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TextIO

from coilclaw.channels.keyboard import Keyboard
from coilclaw.channels.rows import rows
from coilclaw.channels.screen import Screen
from coilclaw.domain.canonical import digest
from coilclaw.domain.toolcalls import Answer, Reply
from coilclaw.runtime.identity import this_person
from coilclaw.security.autonomy import Autonomy

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from coilclaw.domain.toolcalls import ApprovalRequest

SHOWN_ARGUMENTS: Final = 1000
"""Characters of the arguments that are shown unasked."""
SHOWN_DETAIL: Final = 6000
"""Characters of the detail that are shown unasked."""
SHOWN_LINES: Final = 60
"""Lines of the detail that are shown unasked."""

_CUT: Final = "… "
"""What the note begins with that something is not shown; no row of a request does."""

UNATTENDED: Final = "there is no terminal where the user could be asked"
QUESTION: Final = "Approve? [y/N/a/e] "
_YES: Final = frozenset({"y", "yes"})
_ALWAYS: Final = frozenset({"a", "always", "always this exact call"})
_EXPLAIN: Final = frozenset({"e", "explain"})
_LEVELS: Final = {
    Autonomy.READONLY: "what is low risk runs, everything else is denied",
    Autonomy.SUPERVISED: "low risk runs unasked, medium risk is asked about, high risk is denied",
    Autonomy.FULL: "low, medium and high risk run unasked, unless a rule forbids or asks",
}


class TerminalApprover:
    """Asks at the terminal; without one, the answer is no."""

    __slots__ = ("_autonomy", "_keyboard", "_screen", "_source")

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

    def __call__(self, request: ApprovalRequest) -> Answer:
        """Ask about one call; ``KeyboardInterrupt`` is a no that ends the turn as well."""
        if request.verdict.denied:
            return Answer(Reply.NO, "nobody", "what policy denies is not asked about")
        if not self._keyboard.attended:
            self._screen.line(
                f"Tool request denied: {request.tool} needs approval, and standard input is not a "
                "terminal where the user could be asked."
            )
            return Answer(Reply.NO, "nobody", UNATTENDED)
        sys.stdout.flush()
        shown = self._request(request)
        self._print(shown)
        whole = not any(row.startswith(_CUT) for row in shown)
        while True:
            try:
                answer = self._ask()
            except KeyboardInterrupt:
                self._screen.line("\nDenied.")
                raise
            word = "" if answer is None else answer.strip().lower()
            if word in _EXPLAIN:
                whole = self._page(list(self._explanation(request))) or whole
                continue
            if word in _YES | _ALWAYS and not whole:
                self._screen.line("Not all of it was shown yet: 'e' shows it, to the end.")
                continue
            if word in _YES | _ALWAYS:
                reply = Reply.YES if word in _YES else Reply.ALWAYS
                return Answer(reply, this_person())
            if answer is None:
                self._screen.line("\nDenied.")
                return Answer(Reply.NO, "nobody", "the terminal was closed without an answer")
            self._screen.line("Denied.")
            return Answer(Reply.NO, this_person())

    def _ask(self) -> str | None:
        question = self._screen.styled(QUESTION.rstrip(), "bold") + " "
        return self._keyboard.answer(self._screen, question, also=self._copy)

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
            yield f"{_CUT}{len(text) - limit} more characters of the arguments; {_whole(text)}"

    def _detail(self, lines: Sequence[str], most: int | None, limit: int | None) -> Iterator[str]:
        kept = list(lines[:most])
        if limit is not None:
            kept = _within(kept, limit)
        for line in kept:
            yield from self._rows(line)
        missing = sum(map(len, lines)) - sum(map(len, kept))
        if len(kept) < len(lines) or missing:
            yield (
                f"{_CUT}{len(lines) - len(kept)} more lines, {missing} more characters; "
                f"{_whole(chr(10).join(lines))}"
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
        return rows(text, self._width(), first=first, ascii_only=self._screen.ascii_only)

    def _width(self) -> int:
        """Return the columns of where it is read."""
        width = self._screen.size[0]
        if self._keyboard.terminal and not self._screen.terminal:
            with suppress(OSError):
                width = os.get_terminal_size(self._source.fileno()).columns or width
        return width

    def _print(self, lines: Sequence[str]) -> None:
        text = "".join(line + "\n" for line in lines)
        self._copy(text)
        self._screen.write(text)

    def _copy(self, text: str) -> None:
        """Show it where the person sits, too, when our own stream leads somewhere else."""
        if self._screen.terminal or not self._keyboard.terminal:
            return
        # A terminal without a name, as in some containers, cannot be opened a second time.
        with suppress(OSError):
            terminal = os.open(os.ttyname(self._source.fileno()), os.O_WRONLY | os.O_NOCTTY)
            with open(terminal, "w", encoding="utf-8", errors="backslashreplace") as stream:
                stream.write(text)

    def _page(self, lines: list[str]) -> bool:
        """Print a screenful at a time, when there is a screen; say whether the end was seen."""
        if not (self._screen.terminal and self._keyboard.terminal):
            self._print(lines)
            return True
        height = max(self._screen.size[1] - 1, 5)
        while lines:
            self._print(lines[:height])
            lines = lines[height:]
            if lines:
                prompt = f"-- {len(lines)} more rows: Enter goes on, q ends -- "
                answer = self._keyboard.answer(self._screen, prompt)
                if answer is None or answer.strip():
                    return False
        return True


def _within(lines: list[str], limit: int) -> list[str]:
    """Return lines up to so many characters; the last one may be cut."""
    kept = []
    for line in lines:
        if limit <= 0 and line:
            break
        kept.append(line[:limit])
        limit -= len(line)
    return kept


def _whole(text: str) -> str:
    return f"sha256 of all {digest(text.encode('utf-8', 'surrogatepass'))}; e shows everything"
