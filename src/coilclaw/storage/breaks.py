"""The first thing that is wrong with a journal, and what somebody must have done to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from coilclaw.storage.chain import FIRST_HASH, Flaw, Form, Head, Link, lines

if TYPE_CHECKING:
    from typing import BinaryIO

Reason: TypeAlias = Literal[
    "edited",
    "deleted",
    "reordered",
    "inserted",
    "truncated",
    "unparsable",
    "wrong key",
    "anchor missing",
    "anchor edited",
]


@dataclass(frozen=True, slots=True)
class Break:
    """The first broken link."""

    number: int
    """The line to blame, from 1; 0 where it is the anchor or the key."""
    id: str | None
    """The id on that line, where it can be read."""
    reason: Reason
    sentence: str


@dataclass(frozen=True, slots=True)
class Suspect:
    """A line that does not hold, or does not follow the one before it."""

    number: int
    line: Link | Flaw
    expected: str
    """The hash of the line before."""
    cut: bool
    """It is the end of the file, and has no newline."""


@dataclass(slots=True)
class _Traces:
    """Numbers of the lines that tell one cause from another; 0 is none."""

    twin: int = 0
    """Another line with the suspect's own hash."""
    predecessor: int = 0
    """The line that the suspect says it follows."""
    rival: int = 0
    """Another line that says it follows the same."""
    successor: int = 0
    """A later line that follows what the suspect should have followed."""
    follower: int = 0
    """The next line, if it follows the suspect."""
    next_break: int = 0
    """The first line between the suspect's next and the anchored one that does not follow."""
    anchored: int = 0
    """The first line with the anchored hash."""


@dataclass(frozen=True, slots=True)
class Scene:
    """A whole journal, to be looked at again."""

    file: BinaryIO
    size: int
    form: Form
    anchored: Head | None

    def explain(self, suspect: Suspect) -> Break:
        """Say what happened at the suspect line."""
        number, line = suspect.number, suspect.line
        if isinstance(line, Flaw) and line.reason == "unparsable":
            return self._break(number, "unparsable", f"line {number} cannot be read: {line.what}")
        traces = self._trace(suspect)
        if isinstance(line, Flaw):
            if traces.successor == number + 1:
                return self._inserted(number, "the lines around it belong together")
            return self._break(number, "edited", f"line {number} was edited: {line.what}")
        if traces.twin:
            return self._inserted(number, f"it repeats line {traces.twin}")
        if traces.predecessor > number:
            shifted = self.anchored is not None and traces.anchored > self.anchored.count
            if traces.rival or shifted:
                why = f"it says that it follows line {traces.predecessor}, which is behind it"
                return self._inserted(number, why)
            return self._break(
                number,
                "reordered",
                f"line {number} is out of order: it follows line {traces.predecessor}",
            )
        if traces.successor or (self.anchored is not None and number > self.anchored.count):
            return self._inserted(number, "it does not follow the line before it")
        if traces.predecessor or line.previous == FIRST_HASH:
            first = traces.predecessor + 1
            return self._inserted(first, f"line {number} goes on from before it")
        return self._missing(suspect, traces)

    def holds_anchored(self) -> bool:
        """Whether the anchored record stands anywhere in the file."""
        last = self.anchored.last_hash if self.anchored else None
        links = (self.form.check(line) for line in lines(self.file, 0, self.size))
        return any(isinstance(link, Link) and link.own == last for link in links)

    def _missing(self, suspect: Suspect, traces: _Traces) -> Break:
        """The suspect follows a record that is not there: it is gone, or was given a new hash."""
        number = suspect.number
        count = -1 if self.anchored is None else self.anchored.count
        # Where the chain goes on to the anchored record, and that has its number, none is gone.
        kept = traces.anchored == count and not traces.next_break
        if not kept and number != count:
            return self._break(
                number,
                "deleted",
                f"a record was deleted before line {number}, which follows one that is not there",
            )
        if traces.follower or traces.anchored == number:
            number = max(1, number - 1)
        return self._break(
            number,
            "edited",
            f"line {number} was edited and given a new hash, which no later line knows",
        )

    def _trace(self, suspect: Suspect) -> _Traces:
        traces = _Traces()
        own = suspect.line.own if isinstance(suspect.line, Link) else None
        last = self.anchored.last_hash if self.anchored else None
        before = None
        for number, line in enumerate(lines(self.file, 0, self.size), 1):
            link = self.form.check(line)
            follows = isinstance(link, Link) and link.previous == before
            before = link.own if isinstance(link, Link) else None
            if number > suspect.number + 1 and not follows and not traces.anchored:
                traces.next_break = traces.next_break or number
            if isinstance(link, Flaw):
                continue
            if link.own == last:
                traces.anchored = traces.anchored or number
            if number == suspect.number:
                continue
            if link.own == own:
                traces.twin = traces.twin or number
            if link.own == suspect.line.previous:
                traces.predecessor = traces.predecessor or number
            if link.previous == suspect.line.previous:
                traces.rival = traces.rival or number
            if link.previous == suspect.expected and number > suspect.number:
                traces.successor = traces.successor or number
            if number == suspect.number + 1 and follows:
                traces.follower = number
        return traces

    def _inserted(self, number: int, why: str) -> Break:
        return self._break(number, "inserted", f"line {number} was inserted: {why}")

    def _break(self, number: int, reason: Reason, sentence: str) -> Break:
        for place, line in enumerate(lines(self.file, 0, self.size), 1):
            if place == number:
                return Break(
                    number, self.form.identify(self.form.check(line).record), reason, sentence
                )
        return Break(number, None, reason, sentence)
