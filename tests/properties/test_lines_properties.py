"""The line engine against the plainest way to say the same thing with lists."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from coilclaw.changes import line_edits
from coilclaw.changes.operations import Hunk, HunkLine
from coilclaw.kernel.errors import PlanRefused
from tests.support.scale import scaled

BOM = b"\xef\xbb\xbf"

row = st.sampled_from([b"", b"a", b"b", b"c", b" a", b"ab"])
rows = st.lists(row, max_size=10)
hunk_line = st.builds(HunkLine, st.sampled_from([" ", "-", "+"]), row)
hunk_lines = st.lists(hunk_line, min_size=1, max_size=4).map(tuple)
loose_hunk = st.builds(
    Hunk, hunk_lines, heading=st.sampled_from([b"", b"", b"a", b"b\nc"]), at_end=st.booleans()
)


def outcome(content: bytes, hunks: Sequence[Hunk]) -> bytes | str:
    try:
        return line_edits.apply_hunks(content, hunks, path="f")
    except PlanRefused as refusal:
        return refusal.rule


def joined(texts: Sequence[bytes]) -> bytes:
    return b"".join(text + b"\n" for text in texts)


def places(texts: list[bytes], old: list[bytes], floor: int) -> list[int]:
    last = len(texts) - len(old)
    return [at for at in range(floor, last + 1) if texts[at : at + len(old)] == old]


def one(found: list[int]) -> int | str:
    if len(found) == 1:
        return found[0]
    return "lines.ambiguous" if found else "lines.missing"


def place(texts: list[bytes], hunk: Hunk, floor: int) -> int | str:
    old = [line.text for line in hunk.old]
    bare = not hunk.heading and not hunk.at_end and all(line.mark != " " for line in hunk.lines)
    if bare and old:
        return one(places(texts, old, 0))
    for heading in filter(None, hunk.heading.split(b"\n")):
        at = one([n for n in range(floor, len(texts)) if texts[n].strip() == heading])
        if isinstance(at, str):
            return at
        floor = at + 1
    if hunk.at_end:
        start = len(texts) - len(old)
        return start if start >= floor and texts[start:] == old else "lines.missing"
    if not old:
        return floor if hunk.heading else "lines.no_context"
    return one(places(texts, old, floor))


def reference(texts: list[bytes], hunks: Sequence[Hunk]) -> bytes | str:
    texts, floor = list(texts), 0
    for hunk in hunks:
        at = place(texts, hunk, floor)
        if isinstance(at, str):
            return at
        new = [line.text for line in hunk.new]
        texts[at : at + len(hunk.old)] = new
        floor = at + len(new)
    return joined(texts)


@settings(max_examples=scaled(full=1000, default=700), deadline=None)
@given(rows, st.lists(loose_hunk, max_size=3))
def test_unnumbered_hunks_do_what_lists_do(texts: list[bytes], hunks: list[Hunk]) -> None:
    assert outcome(joined(texts), hunks) == reference(texts, hunks)


def numbered_place(
    texts: list[bytes], hunk: Hunk, old: list[bytes], floor: int, gaps: list[tuple[int, int]]
) -> int | str:
    assert hunk.old_start is not None

    def anchored(at: int) -> bool:
        if hunk.old_start in {0, 1} and at > 0:
            return False
        return hunk.lines[-1].mark == " " or at + len(old) == len(texts)

    stated = hunk.old_start - 1
    if hunk.old_start > floor and texts[stated:][: len(old)] == old and anchored(stated):
        return stated
    found = places(texts, old, floor)
    fitting = [at for at in found if anchored(at)]
    if found and not fitting:
        return "lines.anchor"
    above = [
        at
        for low, high in gaps
        for at in places(texts[:high], old, low)
        if len(fitting) == 1 and anchored(at)
    ]
    return one([*above, *fitting])


def numbered_reference(texts: list[bytes], hunks: Sequence[Hunk]) -> bytes | str:
    out: list[bytes] = []
    floor, end = 0, 0
    gaps: list[tuple[int, int]] = []
    for hunk in hunks:
        assert hunk.old_start is not None
        if hunk.old_start < end:
            return "lines.order"
        end = hunk.old_start + len(hunk.old)
    for hunk in hunks:
        assert hunk.old_start is not None
        old = [line.text for line in hunk.old]
        if not old:
            if texts:
                return "lines.no_context"
            at: int | str = 0
        else:
            at = numbered_place(texts, hunk, old, floor, gaps)
        if isinstance(at, str):
            return at
        gaps.append((floor, at))
        out += texts[floor:at] + [line.text for line in hunk.new]
        floor = at + len(old)
    return joined([*out, *texts[floor:]])


numbered_hunk = st.builds(Hunk, hunk_lines, old_start=st.integers(0, 12))


@settings(max_examples=scaled(full=1000, default=700), deadline=None)
@given(rows, st.lists(numbered_hunk, max_size=3))
def test_numbered_hunks_do_what_lists_do(texts: list[bytes], hunks: list[Hunk]) -> None:
    assert outcome(joined(texts), hunks) == numbered_reference(texts, hunks)


@settings(max_examples=scaled(full=1200, default=250), deadline=None)
@given(rows, st.lists(loose_hunk, max_size=3))
def test_crlf_survives(texts: list[bytes], hunks: list[Hunk]) -> None:
    plain = outcome(joined(texts), hunks)
    crlf = outcome(joined(texts).replace(b"\n", b"\r\n"), hunks)
    expected = plain.replace(b"\n", b"\r\n") if isinstance(plain, bytes) and texts else plain
    assert crlf == expected


@settings(max_examples=scaled(full=1200, default=250), deadline=None)
@given(rows, st.lists(loose_hunk, max_size=3))
def test_a_byte_order_mark_survives(texts: list[bytes], hunks: list[Hunk]) -> None:
    plain = outcome(joined(texts), hunks)
    marked = outcome(BOM + joined(texts), hunks)
    if texts:
        assert marked == (BOM + plain if isinstance(plain, bytes) else plain)


@settings(max_examples=scaled(full=1200, default=250), deadline=None)
@given(rows, st.lists(loose_hunk, max_size=3), st.sampled_from([b"a", b"z"]))
def test_a_missing_final_newline_survives(
    texts: list[bytes], hunks: list[Hunk], last: bytes
) -> None:
    whole = outcome(joined([*texts, last]), hunks)
    unended = outcome(joined(texts) + last, hunks)
    if isinstance(whole, bytes) and whole[-2:] not in {b"\n", b"\n\n"}:
        whole = whole.removesuffix(b"\n")
    assert unended == whole
