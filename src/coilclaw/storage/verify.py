"""``verify``: whether a journal is what was appended to it. It reads, and never writes.

Up to the anchor every byte counts. After it stand records that a crash kept from being anchored:
they must chain and be canonical, and are counted. What a crash leaves after those cannot be read as
a line; such bytes are counted too, and the next append moves them aside. Neither makes a journal
bad: whoever can write the file can add records after the anchor, and the report says how many.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from coilclaw.errors import VerificationFailed
from coilclaw.storage import anchor as anchors
from coilclaw.storage.atomic import read_private
from coilclaw.storage.breaks import Break, Reason, Scene, Suspect
from coilclaw.storage.chain import FIRST_HASH, Flaw, Form, Head, lines
from coilclaw.storage.paths import anchor_path
from coilclaw.storage.view import View, open_view

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = [
    "AnchorState",
    "Break",
    "JournalReport",
    "Observe",
    "Reason",
    "hashes",
    "raw_lines",
    "read_head",
    "verify",
]

AnchorState: TypeAlias = Literal["valid", "missing", "edited", "wrong key"]

Observe: TypeAlias = "Callable[[int, dict[str, object]], None]"

_ATTEMPTS: Final = 8


@dataclass(frozen=True, slots=True)
class JournalReport:
    """What verification found."""

    ok: bool
    records: int
    """Whole records that hold, from the first on."""
    unanchored: int
    """Those of them that stand after the anchor."""
    torn_bytes: int
    """Bytes at the end that are no record; the next append moves them aside."""
    anchor: AnchorState
    break_: Break | None


def verify(
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
    form = Form(hash_field, id_field)
    attempts = 0
    while True:
        with open_view(path) as view:
            report = _report(view, path, form, key_path, observe)
        attempts += 1
        # What stands after the anchor may be moved aside while it is read. Then look again.
        in_doubt = not report.ok and report.records >= _anchored_count(view)
        if not in_doubt or attempts == _ATTEMPTS or _unchanged(path, view):
            return report


def _report(
    view: View, path: Path, form: Form, key_path: Path, observe: Observe | None
) -> JournalReport:
    state, anchored = _read_anchor(view, key_path)
    if view.file is None:
        if anchored == Head():  # whoever made the journal was killed before its first record
            return JournalReport(True, 0, 0, 0, state, None)
        raise VerificationFailed(
            f"there is no journal {path}"
            + ("" if view.anchor is None else f", but there is {anchor_path(path).name}"),
            rule="journal.missing",
        )
    scene = Scene(view.file, view.size, form, anchored)
    head, suspect = _walk(scene, observe)
    break_ = _judge(scene, head, suspect)
    torn = view.size - head.size if suspect is not None and break_ is None else 0
    if break_ is None and state != "valid":
        break_ = _anchor_break(path, key_path, state)
    return JournalReport(
        ok=break_ is None,
        records=head.count,
        unanchored=0 if anchored is None else max(0, head.count - anchored.count),
        torn_bytes=torn,
        anchor=state,
        break_=break_,
    )


def _read_anchor(view: View, key_path: Path) -> tuple[AnchorState, Head | None]:
    if view.anchor is None:
        return "missing", None
    statement = anchors.parse(view.anchor)
    if statement is None:
        return "edited", None
    key = read_private(key_path)
    signer = None if key is None else anchors.Signer(key)
    if signer is None or signer.key_id != statement.key_id:
        return "wrong key", None
    return ("valid", statement.head) if signer.made(statement) else ("edited", None)


def _walk(scene: Scene, observe: Observe | None = None) -> tuple[Head, Suspect | None]:
    """Follow the chain; return how far it holds, and the first line where it does not."""
    count, offset, last = 0, 0, FIRST_HASH
    limit = -1 if scene.anchored is None else scene.anchored.count
    check = scene.form.check
    for line in lines(scene.file, 0, scene.size):
        link = check(line, strict=0 <= limit <= count)
        if isinstance(link, Flaw) or link.previous != last:
            cut = offset + len(line) == scene.size and not line.endswith(b"\n")
            return Head(count, offset, last), Suspect(count + 1, link, last, cut)
        count += 1
        offset += len(line)
        if count == limit and scene.anchored != Head(count, offset, link.own):
            return Head(count - 1, offset - len(line), last), Suspect(count, link, last, cut=False)
        last = link.own
        if observe is not None:
            observe(count, link.record)
    return Head(count, offset, last), None


def _judge(scene: Scene, head: Head, suspect: Suspect | None) -> Break | None:
    anchored = scene.anchored
    if suspect is None:
        missing = anchored is not None and head.count < anchored.count
        return _truncated(head.count + 1, anchored) if anchored and missing else None
    line = suspect.line
    if anchored is None:
        return None if suspect.cut else scene.explain(suspect)
    if isinstance(line, Flaw):
        if head.count >= anchored.count and line.reason == "unparsable":
            return None
        if suspect.cut and scene.size < anchored.size:
            return _truncated(suspect.number, anchored)
    elif line.previous == suspect.expected:
        return _other_than_anchored(scene, suspect)
    return scene.explain(suspect)


def _other_than_anchored(scene: Scene, suspect: Suspect) -> Break:
    """The chain holds, but leads to another record than the anchored one."""
    if scene.holds_anchored():
        # That one comes later, so that lines were put in before it: find where the chain breaks.
        freely = replace(scene, anchored=None)
        _, broken = _walk(freely)
        if broken is not None:
            return freely.explain(broken)
    return Break(
        suspect.number,
        scene.form.identify(suspect.line.record),
        "edited",
        f"line {suspect.number} is not the record that was anchored: "
        "it, or lines before it, were rewritten and given new hashes",
    )


def _truncated(number: int, anchored: Head) -> Break:
    return Break(
        number,
        None,
        "truncated",
        f"the journal ends before record {number}, and its anchor says {anchored.count} records",
    )


def _anchor_break(path: Path, key_path: Path, state: AnchorState) -> Break:
    name = anchor_path(path).name
    if state == "missing":
        return Break(0, None, "anchor missing", f"there is no {name} beside {path}")
    if state == "wrong key":
        return Break(0, None, "wrong key", f"{name} was not made with the key in {key_path}")
    return Break(0, None, "anchor edited", f"{name} is not what was written with the key")


def _anchored_count(view: View) -> int:
    statement = None if view.anchor is None else anchors.parse(view.anchor)
    return 0 if statement is None else statement.head.count


def _unchanged(path: Path, view: View) -> bool:
    with open_view(path) as again:
        return (again.size, again.anchor) == (view.size, view.anchor)


def read_head(path: Path, *, key_path: Path) -> tuple[int, str] | None:
    """Return how many records the anchor vouches for, and the hash of the last of them.

    ``None`` where no anchor does: there is none, or it was not made with the key.
    """
    with open_view(path) as view:
        _, head = _read_anchor(view, key_path)
    return None if head is None else (head.count, head.last_hash)


def raw_lines(path: Path) -> Iterator[bytes]:
    """Stream the lines of a journal as they stand, unchecked."""
    with open_view(path) as view:
        if view.file is not None:
            yield from lines(view.file, 0, view.size)


def hashes(path: Path, *, hash_field: str) -> Iterator[str]:
    """Stream the hash that each line of a journal claims, unchecked; for matching with another.

    Much cheaper than reading the records: only ``verify`` says whether the claims are true.
    """
    pattern = re.compile(rb'"%b":"([0-9a-f]{64})"' % re.escape(hash_field).encode("ascii"))
    for line in raw_lines(path):
        found = pattern.search(line)
        yield found[1].decode("ascii") if found else ""
