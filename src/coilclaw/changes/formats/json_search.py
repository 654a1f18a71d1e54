"""Finding JSON deliveries: in a code block, or bare on a line of the answer.

JSON that is not a delivery is skipped. What cannot be read is skipped too, unless it has the keys
of a delivery: then the answer is refused, so that no intended change is lost.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.changes.formats import json_delivery, json_values
from coilclaw.changes.formats.answer_text import fence_at, malformed_error, next_fence
from coilclaw.changes.formats.json_values import Flaw, JsonDocument, JsonObject

if TYPE_CHECKING:
    from coilclaw.changes.formats.answer_text import BlockScan, CodeFence
    from coilclaw.kernel import AnswerError

LOOK_AHEAD: Final = 4096
"""Characters after a flaw in bare JSON that are searched for the keys of a delivery."""
MAX_VALUES: Final = 2_000_000
"""Values that all JSON of an answer may have together."""
MAX_STRAYS: Final = 10_000
"""JSON texts that an answer may have besides its deliveries, whole or broken."""

LABELS: Final = frozenset({"json", "jsonc", "json5", "aptix"})
"""Code blocks that say they are JSON: what is broken in one was meant."""
CODE_LABELS: Final = frozenset({"", "js", "javascript"})
"""Code blocks that hold JSON if they begin like it."""

# The keys of a delivery, but not the list of strings that package files have under the same name.
_MENTION: Final = re.compile(r"""["'](files|patches)["']\s*:(?!\s*\[\s*["'])""")

_BLOCK: Final = re.compile(r"^(?:[ \t]*(?:```|~~~)|\{|\^\^\^|\*\*\* |<{5})", re.MULTILINE)
_BLOCK_OR_BLANK: Final = re.compile(rf"{_BLOCK.pattern}|^[ \t\r]*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class FoundJson:
    """What came of looking at a place."""

    resume: int
    """The line start to go on from."""
    start: int = 0
    end: int = 0
    """Where the JSON stands, if it is a delivery."""
    document: JsonObject | None = None
    is_prose: bool = False
    """The code block is not used up: it may hold other things."""


@dataclass(slots=True)
class JsonSearch:
    """Looks for deliveries with some of the keys in one text."""

    scan: BlockScan
    keys: frozenset[str]
    strays: int = 0
    values: int = 0
    mentions: list[int] | None = None

    def _read(self, first: int) -> JsonDocument | Flaw:
        line = self.scan.line(first)
        read = json_values.read(self.scan.text, first, line)
        self.values += read.count
        if self.values > MAX_VALUES:
            raise malformed_error(
                line, "answer.bounds", f"the JSON of the answer has more than {MAX_VALUES:,} values"
            )
        return read

    def in_code_block(self, opener: CodeFence, body: int, *, is_other: bool) -> FoundJson:
        """Look at the content of a code block; ``is_other`` says it begins with another format."""
        first = self.scan.skip_space(body)
        if not self.scan.text.startswith("{", first):
            if opener.label in LABELS and not is_other:
                line = self.scan.line(first)
                flaw = Flaw("does not begin with '{'", "json.syntax", first, line)
                self._pass(flaw, body, next_fence(self.scan.text, body))
            return FoundJson(body, is_prose=True)
        read = self._read(first)
        if isinstance(read, JsonDocument):
            return self._tail(opener, first, read)
        line_start = self.scan.line_start(read.at, body)
        end = next_fence(self.scan.text, line_start)
        self._pass(read, first, end)
        if opener.label in LABELS and end == self.scan.end:
            raise _unclosed_error(read.line)
        return FoundJson(line_start, is_prose=True)

    def on_line(self, start: int) -> FoundJson:
        """Look at a line that begins with a brace."""
        first = self.scan.skip_space(start)
        read = self._read(first)
        if isinstance(read, JsonDocument):
            after = self.scan.after(read.end)
            if (
                json_delivery.find_delivery(read.value, self.keys)
                and self.scan.text[read.end : after].strip()
            ):
                raise _trailing(read.line)
            return self._make_found(after, first, read)
        end = self._reach(first, self.scan.after(read.at))
        self._pass(read, first, end)
        # Up to the flaw all is JSON, in which no other block can begin.
        return FoundJson(max(self.scan.line_start(read.at, start), self.scan.after(start)))

    def _reach(self, first: int, after: int) -> int:
        """Return how far a broken text may go on: up to another block, or to a blank line.

        Where an answer begins with it, blank lines do not end it, for it may be all JSON.
        """
        begins = first == self.scan.first
        limit = self.scan.end if begins else after + LOOK_AHEAD
        ends = (_BLOCK if begins else _BLOCK_OR_BLANK).search(self.scan.text, after, limit)
        return ends.start() if ends else limit

    def _tail(self, opener: CodeFence, first: int, read: JsonDocument) -> FoundJson:
        """Look at what follows a value in its code block: the end of the block, nothing else."""
        tail = self.scan.skip_space(read.end)
        line_start = self.scan.text.rfind("\n", read.end, tail) + 1
        line = fence_at(self.scan.text, line_start) if line_start else None
        if line is not None and opener.closed_by(line):
            return self._make_found(self.scan.after(line_start), first, read)
        if json_delivery.find_delivery(read.value, self.keys):
            if tail == self.scan.end:
                raise _unclosed_error(read.line)
            raise _trailing(self.scan.line(tail))
        flaw = Flaw(
            "is not the only thing in its code block", "json.trailing", tail, self.scan.line(tail)
        )
        self._pass(flaw, read.end, next_fence(self.scan.text, line_start or read.end))
        return FoundJson(line_start or self.scan.after(read.end), is_prose=True)

    def _make_found(self, resume: int, first: int, read: JsonDocument) -> FoundJson:
        found = json_delivery.find_delivery(read.value, self.keys)
        if found is None:
            self._count_stray(read.line)
            return FoundJson(resume)
        return FoundJson(resume, first, read.end, found)

    def _count_stray(self, line: int) -> None:
        self.strays += 1
        if self.strays > MAX_STRAYS:
            raise malformed_error(
                line,
                "answer.bounds",
                f"the answer holds more than the bound of {MAX_STRAYS:,} JSON texts besides "
                "its deliveries",
            )

    def _pass(self, flaw: Flaw, start: int, end: int) -> None:
        """Pass over a text that cannot be read, unless it was probably meant to be a delivery."""
        self._count_stray(flaw.line)
        if self.mentions is None:
            self.mentions = [
                match.start()
                for match in _MENTION.finditer(self.scan.text)
                if match[1] in self.keys
            ]
        place = bisect_left(self.mentions, start)
        if place < len(self.mentions) and self.mentions[place] < end:
            raise malformed_error(
                flaw.line,
                flaw.rule,
                f"the JSON of what looks like a delivery {flaw.reason}",
                hint="the block must be pure JSON: no comments, no trailing commas, no other text",
            )


def _unclosed_error(line: int) -> AnswerError:
    return malformed_error(line, "answer.unclosed", "the code block that holds JSON is not closed")


def _trailing(line: int) -> AnswerError:
    return malformed_error(line, "json.trailing", "something follows the JSON of a delivery")
