"""``verify``: whether a journal is what was appended to it. It reads, and never writes.

Up to the anchor every byte counts. After it stand records that a crash kept from being anchored:
they must chain and be canonical, and are counted. What a crash leaves after those cannot be read as
a line; such bytes are counted too, and the next append moves them aside. Neither makes a journal
bad: a process that can write the file can add records after the anchor, and the report says how
many.
"""

from __future__ import annotations

import hmac
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from coilclaw.kernel.atomic_file import anchor_path, read_private
from coilclaw.kernel.errors import VerificationFailed
from coilclaw.kernel.journal_format import (
    FIRST_HASH,
    JournalForm,
    JournalHead,
    JournalLink,
    JournalView,
    LineFlaw,
    Signer,
    open_journal_view,
    read_lines,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from typing import BinaryIO

AnchorState: TypeAlias = Literal["valid", "missing", "edited", "wrong key"]

Observe: TypeAlias = "Callable[[int, dict[str, object]], None]"

_ATTEMPTS: Final = 8


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
class JournalBreak:
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
    line: JournalLink | LineFlaw
    expected: str
    """The hash of the line before."""
    cut: bool
    """It is the end of the file, and has no newline."""


@dataclass(frozen=True, slots=True)
class JournalScene:
    """A whole journal, to be looked at again."""

    file: BinaryIO
    size: int
    form: JournalForm
    anchored: JournalHead | None

    def explain(self, suspect: Suspect) -> JournalBreak:
        """Say what happened at the suspect line."""
        number, line = suspect.number, suspect.line
        if isinstance(line, LineFlaw) and line.reason == "unparsable":
            return self._break(number, "unparsable", f"line {number} cannot be read: {line.what}")
        found = self._trace(suspect)
        if isinstance(line, LineFlaw):
            if found.get("successor") == number + 1:
                return self._report_insertion(number, "the lines around it belong together")
            return self._break(number, "edited", f"line {number} was edited: {line.what}")
        if "twin" in found:
            return self._report_insertion(number, f"it repeats line {found['twin']}")
        predecessor = found.get("predecessor", 0)
        if predecessor > number:
            shifted = self.anchored and found.get("anchored", 0) > self.anchored.count
            if "rival" in found or shifted:
                why = f"it says that it follows line {predecessor}, which is behind it"
                return self._report_insertion(number, why)
            sentence = f"line {number} is out of order: it follows line {predecessor}"
            return self._break(number, "reordered", sentence)
        if "successor" in found or (self.anchored and number > self.anchored.count):
            return self._report_insertion(number, "it does not follow the line before it")
        if predecessor or line.previous == FIRST_HASH:
            return self._report_insertion(predecessor + 1, f"line {number} goes on from before it")
        # It follows a record that is not there: that one is gone, or was given a new hash. Where
        # the chain goes on to the anchored record, and that has its number, none is gone.
        count = -1 if self.anchored is None else self.anchored.count
        kept = found.get("anchored", 0) == count and "next_break" not in found
        if not kept and number != count:
            sentence = (
                f"a record was deleted before line {number}, which follows one that is not there"
            )
            return self._break(number, "deleted", sentence)
        if "follower" in found or found.get("anchored") == number:
            number = max(1, number - 1)
        sentence = f"line {number} was edited and given a new hash, which no later line knows"
        return self._break(number, "edited", sentence)

    def holds_anchored(self) -> bool:
        """Whether the anchored record stands anywhere in the file."""
        last = self.anchored.last_hash if self.anchored else None
        links = (self.form.check(line) for line in read_lines(self.file, 0, self.size))
        return any(isinstance(link, JournalLink) and link.own == last for link in links)

    def _trace(self, suspect: Suspect) -> dict[str, int]:
        """Return the numbers of the lines that tell one cause from another.

        ``twin``: another line with the suspect's own hash; ``predecessor``: the line that it says
        it follows; ``rival``: another line that says it follows the same; ``successor``: a later
        line that follows what it should have followed; ``follower``: the next line, if it follows
        the suspect; ``next_break``: the first line between the suspect's next and the anchored one
        that does not follow; ``anchored``: the first line with the anchored hash.
        """
        found: dict[str, int] = {}
        own = suspect.line.own if isinstance(suspect.line, JournalLink) else None
        last = self.anchored.last_hash if self.anchored else None
        before = None
        for number, line in enumerate(read_lines(self.file, 0, self.size), 1):
            link = self.form.check(line)
            follows = isinstance(link, JournalLink) and link.previous == before
            before = link.own if isinstance(link, JournalLink) else None
            if number > suspect.number + 1 and not follows and "anchored" not in found:
                found.setdefault("next_break", number)
            if isinstance(link, LineFlaw):
                continue
            other = number != suspect.number
            traces = {
                "anchored": link.own == last,
                "twin": other and link.own == own,
                "predecessor": other and link.own == suspect.line.previous,
                "rival": other and link.previous == suspect.line.previous,
                "successor": number > suspect.number and link.previous == suspect.expected,
                "follower": number == suspect.number + 1 and follows,
            }
            for name in (name for name, holds in traces.items() if holds):
                found.setdefault(name, number)
        return found

    def _report_insertion(self, number: int, why: str) -> JournalBreak:
        return self._break(number, "inserted", f"line {number} was inserted: {why}")

    def _break(self, number: int, reason: Reason, sentence: str) -> JournalBreak:
        for place, line in enumerate(read_lines(self.file, 0, self.size), 1):
            if place == number:
                name = self.form.identify(self.form.check(line).record)
                return JournalBreak(number, name, reason, sentence)
        return JournalBreak(number, None, reason, sentence)


@dataclass(frozen=True, slots=True)
class JournalReport:
    """What verification found."""

    ok: bool
    records: int
    """Whole records that hold, from the first on."""
    unanchored: int
    """Those of them that stand after the anchor."""
    torn_bytes: int
    """Bytes at the end that are not a record; the next append moves them aside."""
    anchor: AnchorState
    break_: JournalBreak | None


def verify_journal(
    path: Path,
    *,
    hash_field: str,
    id_field: str | None = None,
    key_path: Path,
    observe: Observe | None = None,
) -> JournalReport:
    """Check every line, every link and the anchor; name the first that is broken.

    ``observe`` is shown each record that holds, with its number from 1; it begins at 1 again if
    the journal has to be looked at again.
    """
    form = JournalForm(hash_field, id_field)
    attempts = 0
    while True:
        with open_journal_view(path) as view:
            report = _report(view, path, form, key_path, observe)
        attempts += 1
        # What stands after the anchor may be moved aside while it is read. Then look again.
        anchored = view.statement
        in_doubt = not report.ok and report.records >= (anchored.head.count if anchored else 0)
        if not in_doubt or attempts == _ATTEMPTS:
            return report
        with open_journal_view(path) as again:
            if (again.size, again.anchor) == (view.size, view.anchor):
                return report


def _report(
    view: JournalView, path: Path, form: JournalForm, key_path: Path, observe: Observe | None
) -> JournalReport:
    state, anchored = _read_anchor(view, key_path)
    if view.file is None:
        if anchored == JournalHead():  # its maker was killed before its first record
            return JournalReport(True, 0, 0, 0, state, None)
        raise VerificationFailed(
            f"the journal {path} is missing"
            + ("" if view.anchor is None else f", but there is {anchor_path(path).name}"),
            rule="journal.missing",
        )
    scene = JournalScene(view.file, view.size, form, anchored)
    head, suspect = _walk(scene, observe)
    break_ = _judge(scene, head, suspect)
    torn = view.size - head.size if suspect is not None and break_ is None else 0
    name = anchor_path(path).name
    flaws: dict[AnchorState, tuple[Reason, str]] = {
        "missing": ("anchor missing", f"there is no {name} beside {path}"),
        "wrong key": ("wrong key", f"{name} was not made with the key in {key_path}"),
        "edited": ("anchor edited", f"{name} is not what was written with the key"),
    }
    if break_ is None and state in flaws:
        break_ = JournalBreak(0, None, *flaws[state])
    return JournalReport(
        ok=break_ is None,
        records=head.count,
        unanchored=0 if anchored is None else max(0, head.count - anchored.count),
        torn_bytes=torn,
        anchor=state,
        break_=break_,
    )


def _read_anchor(view: JournalView, key_path: Path) -> tuple[AnchorState, JournalHead | None]:
    if view.anchor is None:
        return "missing", None
    statement = view.statement
    if statement is None:
        return "edited", None
    key = read_private(key_path)
    signer = None if key is None else Signer(key)
    if signer is None or signer.key_id != statement.key_id:
        return "wrong key", None
    signed = hmac.compare_digest(signer.render(statement.head), view.anchor)
    return ("valid", statement.head) if signed else ("edited", None)


def _walk(
    scene: JournalScene, observe: Observe | None = None
) -> tuple[JournalHead, Suspect | None]:
    """Follow the chain; return how far it holds, and the first line where it does not."""
    head = JournalHead()
    anchored = scene.anchored
    limit = -1 if anchored is None else anchored.count
    for line in read_lines(scene.file, 0, scene.size):
        link = scene.form.check(line, strict=0 <= limit <= head.count)
        if isinstance(link, LineFlaw) or link.previous != head.last_hash:
            cut = head.size + len(line) == scene.size and not line.endswith(b"\n")
            return head, Suspect(head.count + 1, link, head.last_hash, cut)
        following = JournalHead(head.count + 1, head.size + len(line), link.own)
        if following.count == limit and anchored != following:
            return head, Suspect(limit, link, head.last_hash, cut=False)
        head = following
        if observe is not None:
            observe(head.count, link.record)
    return head, None


def _judge(scene: JournalScene, head: JournalHead, suspect: Suspect | None) -> JournalBreak | None:
    anchored = scene.anchored
    if suspect is None:
        missing = anchored is not None and head.count < anchored.count
        return _report_truncation(head.count + 1, anchored) if anchored and missing else None
    line = suspect.line
    if anchored is None:
        return None if suspect.cut else scene.explain(suspect)
    if isinstance(line, LineFlaw):
        if head.count >= anchored.count and line.reason == "unparsable":
            return None
        if suspect.cut and scene.size < anchored.size:
            return _report_truncation(suspect.number, anchored)
    elif line.previous == suspect.expected:
        return _other_than_anchored(scene, suspect)
    return scene.explain(suspect)


def _other_than_anchored(scene: JournalScene, suspect: Suspect) -> JournalBreak:
    """The chain holds, but leads to another record than the anchored one."""
    if scene.holds_anchored():
        # That one comes later, so that lines were put in before it: find where the chain breaks.
        freely = replace(scene, anchored=None)
        _, broken = _walk(freely)
        if broken is not None:
            return freely.explain(broken)
    number, name = suspect.number, scene.form.identify(suspect.line.record)
    what = "it, or lines before it, were rewritten and given new hashes"
    sentence = f"line {number} is not the record that was anchored: {what}"
    return JournalBreak(number, name, "edited", sentence)


def _report_truncation(number: int, anchored: JournalHead) -> JournalBreak:
    what = f"the journal ends before record {number}, and its anchor says {anchored.count} records"
    return JournalBreak(number, None, "truncated", what)


def read_head(path: Path, *, key_path: Path) -> tuple[int, str] | None:
    """Return how many records the anchor vouches for, and the hash of the last of them.

    ``None`` where no anchor does: there is none, or it was not made with the key.
    """
    with open_journal_view(path) as view:
        _, head = _read_anchor(view, key_path)
    return None if head is None else (head.count, head.last_hash)


def read_raw_lines(path: Path) -> Iterator[bytes]:
    """Stream the lines of a journal as they stand, unchecked."""
    with open_journal_view(path) as view:
        if view.file is not None:
            yield from read_lines(view.file, 0, view.size)


def list_hashes(path: Path, *, hash_field: str) -> Iterator[str]:
    """Stream the hash that each line of a journal claims, unchecked; for matching with another.

    Much cheaper than reading the records: only ``verify`` says whether the claims are true.
    """
    pattern = re.compile(rb'"%b":"([0-9a-f]{64})"' % re.escape(hash_field).encode("ascii"))
    for line in read_raw_lines(path):
        found = pattern.search(line)
        yield found[1].decode("ascii") if found else ""
