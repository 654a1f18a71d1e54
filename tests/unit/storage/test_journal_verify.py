"""Verification: every way to tamper is named by number, id and reason, and nothing is written."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from coilclaw.errors import EnvironmentFault, UsageError, VerificationFailed
from coilclaw.storage.anchor import Signer
from coilclaw.storage.chain import FIRST_HASH, Form, Head, Link
from coilclaw.storage.lock import FileLock
from coilclaw.storage.verify import Break, JournalReport, verify
from tests.unit.storage.worlds import HASH_FIELD, ID_FIELD, World, fork, reap, record, sound

COUNT = 9
Lines = list[bytes]

FORM = Form(HASH_FIELD, ID_FIELD)


def _link(line: bytes) -> Link:
    link = FORM.check(line)
    assert isinstance(link, Link)
    return link


def _sealed(number: int, previous: str, name: str = "forged") -> bytes:
    """A line with a right hash, as anybody can make it."""
    return FORM.seal(FORM.draft({**record(number), "id": name}), previous)[0]


def _rechained(lines: Lines, start: int, tool: str) -> Lines:
    """Rewrite everything from a line on, with all hashes made new."""
    out = lines[: start - 1]
    previous = _link(out[-1]).own if out else FIRST_HASH
    for line in lines[start - 1 :]:
        body = dict(_link(line).record)
        del body[HASH_FIELD], body["previous_hash"]
        sealed, previous = FORM.seal(FORM.draft({**body, "tool": tool}), previous)
        out.append(sealed)
    return out


def _put(lines: Lines, place: int, *new: bytes) -> Lines:
    """Insert before line ``place``, counted from 1."""
    return [*lines[: place - 1], *new, *lines[place - 1 :]]


def _first(lines: Lines, count: int) -> Lines:
    return lines[:count]


def _without(lines: Lines, places: tuple[int, ...]) -> Lines:
    return [line for number, line in enumerate(lines, 1) if number not in places]


def _instead(lines: Lines, place: int, *new: bytes) -> Lines:
    return _put(_without(lines, (place,)), place, *new)


def _edit(lines: Lines, place: int) -> Lines:
    return _instead(lines, place, lines[place - 1].replace(b"shell", b"SHELL"))


def _rehash(lines: Lines, place: int) -> Lines:
    """Edit one record and give it a right hash, but leave the next as it was."""
    previous = _link(lines[place - 1]).previous
    return _instead(lines, place, _sealed(99, previous, f"r-{place}"))


def _own(lines: Lines, place: int) -> str:
    return _link(lines[place - 1]).own


REWRITTEN = (
    "line 9 is not the record that was anchored: "
    "it, or lines before it, were rewritten and given new hashes"
)
EDITED = "its content does not have its receipt_hash"

TAMPERS: dict[str, tuple[Callable[[Lines], Lines], tuple[int, str | None, str], str]] = {
    **{
        f"edit {n}": (
            partial(_edit, place=n),
            (n, f"r-{n}", "edited"),
            f"line {n} was edited: {EDITED}",
        )
        for n in (1, 5, 9)
    },
    **{
        f"edit and rehash {n}": (
            partial(_rehash, place=n),
            (n, f"r-{n}", "edited"),
            f"line {n} was edited and given a new hash, which no later line knows",
        )
        for n in (1, 5, 8)
    },
    "edit and rehash the last": (
        lambda lines: _rehash(lines, 9),
        (9, "r-9", "edited"),
        REWRITTEN,
    ),
    "give one another predecessor and rehash it": (
        lambda lines: _instead(lines, 5, _sealed(5, "f" * 64, "r-5")),
        (5, "r-5", "edited"),
        "line 5 was edited and given a new hash, which no later line knows",
    ),
    "give the last another predecessor and rehash it": (
        lambda lines: _instead(lines, 9, _sealed(9, "f" * 64, "r-9")),
        (9, "r-9", "edited"),
        "line 9 was edited and given a new hash, which no later line knows",
    ),
    **{
        f"rewrite everything from {n} on": (
            partial(_rechained, start=n, tool="forged"),
            (9, "r-9", "edited"),
            REWRITTEN,
        )
        for n in (1, 5, 9)
    },
    "rewrite everything and add": (
        lambda lines: _rechained([*lines, _sealed(10, _own(lines, 9))], 3, "forged"),
        (9, "r-9", "edited"),
        REWRITTEN,
    ),
    "rewrite with one less": (
        lambda lines: _rechained(lines, 3, "forged")[:8],
        (9, None, "truncated"),
        "the journal ends before record 9, and its anchor says 9 records",
    ),
    **{
        f"delete {n}": (
            partial(_without, places=(n,)),
            (n, f"r-{n + 1}", "deleted"),
            f"a record was deleted before line {n}, which follows one that is not there",
        )
        for n in (1, 2, 8)
    },
    "delete several": (
        lambda lines: _without(
            lines,
            (
                3,
                4,
                7,
            ),
        ),
        (3, "r-5", "deleted"),
        "a record was deleted before line 3, which follows one that is not there",
    ),
    "delete one and the last": (
        lambda lines: _without(
            lines,
            (
                4,
                9,
            ),
        ),
        (4, "r-5", "deleted"),
        "a record was deleted before line 4, which follows one that is not there",
    ),
    **{
        f"keep {n}": (
            partial(_first, count=n),
            (n + 1, None, "truncated"),
            f"the journal ends before record {n + 1}, and its anchor says 9 records",
        )
        for n in (0, 1, 8)
    },
    "cut in the middle of a line": (
        lambda lines: [*lines[:4], lines[4][:50]],
        (5, None, "truncated"),
        "the journal ends before record 5, and its anchor says 9 records",
    ),
    "cut the last newline": (
        lambda lines: [*lines[:8], lines[8][:-1]],
        (9, None, "truncated"),
        "the journal ends before record 9, and its anchor says 9 records",
    ),
    "swap two": (
        lambda lines: [*lines[:3], lines[4], lines[3], *lines[5:]],
        (4, "r-5", "reordered"),
        "line 4 is out of order: it follows line 5",
    ),
    "swap the first two": (
        lambda lines: [lines[1], lines[0], *lines[2:]],
        (1, "r-2", "reordered"),
        "line 1 is out of order: it follows line 2",
    ),
    "swap the last two": (
        lambda lines: [*lines[:7], lines[8], lines[7]],
        (8, "r-9", "reordered"),
        "line 8 is out of order: it follows line 9",
    ),
    "move one to the front": (
        lambda lines: _put(_without(lines, (7,)), 3, lines[6]),
        (3, "r-7", "reordered"),
        "line 3 is out of order: it follows line 7",
    ),
    "move one to the back": (
        lambda lines: _put(_without(lines, (3,)), 7, lines[2]),
        (3, "r-4", "reordered"),
        "line 3 is out of order: it follows line 7",
    ),
    "turn all around": (
        lambda lines: lines[::-1],
        (1, "r-9", "reordered"),
        "line 1 is out of order: it follows line 2",
    ),
    "repeat one": (
        lambda lines: _put(lines, 5, lines[3]),
        (5, "r-4", "inserted"),
        "line 5 was inserted: it repeats line 4",
    ),
    "repeat the first": (
        lambda lines: _put(lines, 2, lines[0]),
        (2, "r-1", "inserted"),
        "line 2 was inserted: it repeats line 1",
    ),
    "repeat the last": (
        lambda lines: [*lines, lines[8]],
        (10, "r-9", "inserted"),
        "line 10 was inserted: it repeats line 9",
    ),
    "repeat one far behind": (
        lambda lines: _put(lines, 9, lines[1]),
        (9, "r-2", "inserted"),
        "line 9 was inserted: it repeats line 2",
    ),
    "repeat one far before": (
        lambda lines: _put(lines, 3, lines[7]),
        (3, "r-8", "inserted"),
        "line 3 was inserted: it repeats line 9",
    ),
    "insert one that follows": (
        lambda lines: _put(lines, 5, _sealed(0, _own(lines, 4))),
        (5, "forged", "inserted"),
        "line 5 was inserted: line 6 goes on from before it",
    ),
    "insert one before all": (
        lambda lines: _put(lines, 1, _sealed(0, FIRST_HASH)),
        (1, "forged", "inserted"),
        "line 1 was inserted: line 2 goes on from before it",
    ),
    "insert two that follow": (
        lambda lines: _put(
            lines, 5, *(f := [_sealed(0, _own(lines, 4))]), _sealed(0, _own(f, 1), "more")
        ),
        (5, "forged", "inserted"),
        "line 5 was inserted: line 7 goes on from before it",
    ),
    "insert one from another journal": (
        lambda lines: _put(lines, 5, _sealed(0, "e" * 64)),
        (5, "forged", "inserted"),
        "line 5 was inserted: it does not follow the line before it",
    ),
    "insert the beginning of another journal": (
        lambda lines: _put(lines, 5, _sealed(0, FIRST_HASH)),
        (5, "forged", "inserted"),
        "line 5 was inserted: it does not follow the line before it",
    ),
    "insert a fork from before": (
        lambda lines: _put(lines, 7, _sealed(0, _own(lines, 2))),
        (7, "forged", "inserted"),
        "line 7 was inserted: it does not follow the line before it",
    ),
    "insert a fork from behind": (
        lambda lines: _put(lines, 3, _sealed(0, _own(lines, 7))),
        (3, "forged", "inserted"),
        "line 3 was inserted: it claims the place of line 9 after 8",
    ),
    "insert one with a wrong hash": (
        lambda lines: _put(lines, 5, _sealed(0, _own(lines, 4)).replace(b"shell", b"SHELL")),
        (5, "forged", "inserted"),
        "line 5 was inserted: the lines around it belong together",
    ),
    "insert one after the last that does not follow": (
        lambda lines: [*lines, _sealed(0, _own(lines, 5))],
        (10, "forged", "inserted"),
        "line 10 was inserted: it does not follow the line before it",
    ),
    "insert nonsense": (
        lambda lines: _put(lines, 5, b"nonsense\n"),
        (5, None, "unparsable"),
        "line 5 cannot be read: it is not JSON",
    ),
    "insert an empty line": (
        lambda lines: _put(lines, 5, b"\n"),
        (5, None, "unparsable"),
        "line 5 cannot be read: it is not JSON",
    ),
    "join two lines": (
        lambda lines: [*lines[:4], lines[4][:-1], *lines[5:]],
        (5, None, "unparsable"),
        "line 5 cannot be read: it is not JSON",
    ),
    "overwrite the last newline": (
        lambda lines: [*lines[:8], lines[8][:-1] + b" "],
        (9, None, "unparsable"),
        "line 9 cannot be read: it does not end with a newline",
    ),
    "name a key twice": (
        lambda lines: _instead(lines, 5, b'{"ok":false,' + lines[4][1:]),
        (5, "r-5", "unparsable"),
        "line 5 cannot be read: it names a key twice",
    ),
    "one line that is endless": (
        lambda lines: [*lines[:4], b"x" * (17 * 2**20), *lines[4:]],
        (5, None, "unparsable"),
        "line 5 cannot be read: it is longer than 16777216 bytes",
    ),
    "remove a hash": (
        lambda lines: _instead(lines, 5, b'{"id":"r-5","previous_hash":"x"}\n'),
        (5, "r-5", "edited"),
        "line 5 was edited: it has no receipt_hash",
    ),
}


@pytest.mark.parametrize("name", TAMPERS)
def test_tampering_is_found(world: World, name: str) -> None:
    tamper, (number, identity, reason), sentence = TAMPERS[name]
    world.fill(COUNT)
    world.put(tamper(world.lines()))
    report = world.verify()
    assert report.break_ is not None
    shown = report.break_.number, report.break_.id, report.break_.reason, report.break_.sentence
    assert shown == (number, identity, reason, sentence)
    assert (report.ok, report.anchor, report.torn_bytes) == (False, "valid", 0)
    assert report == world.verify()  # nothing was healed, and nothing depends on the time


def test_a_whole_report_names_the_first_break(world: World) -> None:
    world.fill(COUNT)
    world.put(_edit(_edit(_without(world.lines(), (8,)), 6), 3))
    sentence = f"line 3 was edited: {EDITED}"
    assert world.verify() == JournalReport(
        ok=False,
        records=2,
        unanchored=0,
        torn_bytes=0,
        anchor="valid",
        break_=Break(3, "r-3", "edited", sentence),
    )


def test_every_cut_is_found(world: World) -> None:
    world.fill(3)
    whole = world.path.read_bytes()
    for length in range(len(whole)):
        world.path.write_bytes(whole[:length])
        report = world.verify()
        number = whole[:length].count(b"\n") + 1
        assert report.break_ is not None
        assert (report.break_.number, report.break_.reason) == (number, "truncated")
        assert report.records == number - 1


@pytest.mark.parametrize("value", [b"", b"{}", b"x" * 512, b"\xff" * 512])
def test_an_anchor_that_is_none_is_edited(world: World, value: bytes) -> None:
    world.fill(2).anchor.write_bytes(value)
    sentence = "receipts.jsonl.anchor is not what was written with the key"
    broken = Break(0, None, "anchor edited", sentence)
    assert world.verify() == JournalReport(False, 2, 0, 0, "edited", broken)


def test_an_anchor_with_another_count_is_edited(world: World) -> None:
    world.fill(2)
    world.anchor.write_bytes(world.anchor.read_bytes().replace(b'"count":2', b'"count":1'))
    report = world.verify()
    assert report.break_ is not None
    assert (report.anchor, report.break_.reason) == ("edited", "anchor edited")


def test_a_missing_anchor_is_named(world: World) -> None:
    world.fill(2).anchor.unlink()
    broken = Break(
        0, None, "anchor missing", f"there is no receipts.jsonl.anchor beside {world.path}"
    )
    assert world.verify() == JournalReport(False, 2, 0, 0, "missing", broken)
    world.path.write_bytes(b"")
    assert world.verify() == JournalReport(False, 0, 0, 0, "missing", broken)


@pytest.mark.parametrize("key", [None, b"", b"k" * 32])
def test_a_wrong_or_missing_key_is_named(world: World, key: bytes | None) -> None:
    world.fill(2)
    world.key.unlink()
    if key is not None:
        world.key.write_bytes(key)
    sentence = f"receipts.jsonl.anchor was not made with the key in {world.key}"
    broken = Break(0, None, "wrong key", sentence)
    assert world.verify() == JournalReport(False, 2, 0, 0, "wrong key", broken)
    assert world.key.exists() is (key is not None)


def test_an_anchor_forged_with_another_key_is_a_wrong_key(world: World) -> None:
    world.fill(3)
    world.put(world.lines()[:2])
    size = world.path.stat().st_size
    forger = World(world.directory / "forger")
    forger.directory.mkdir()
    forger.fill(1)
    head = Head(2, size, _own(world.lines(), 2))
    world.anchor.write_bytes(Signer(forger.key.read_bytes()).render(head))
    report = world.verify()
    assert report.break_ is not None
    assert (report.ok, report.break_.reason) == (False, "wrong key")


@pytest.mark.parametrize("without", ["anchor", "key"])
def test_a_broken_line_is_named_even_where_the_anchor_cannot_be_believed(
    world: World, without: str
) -> None:
    world.fill(COUNT)
    (world.anchor if without == "anchor" else world.key).unlink()
    whole = world.lines()
    for lines, expected in (
        (_edit(whole, 3), (3, "r-3", "edited")),
        (_without(whole, (3,)), (3, "r-4", "deleted")),
        (_put(whole, 3, b"x\n"), (3, None, "unparsable")),
        ([whole[1], whole[0], *whole[2:]], (1, "r-2", "reordered")),
    ):
        world.put(lines)
        report = world.verify()
        assert report.break_ is not None
        assert (report.break_.number, report.break_.id, report.break_.reason) == expected
    world.put([*whole, b"torn"])
    report = world.verify()
    assert report.break_ is not None
    assert (report.torn_bytes, report.break_.number) == (4, 0)


def test_a_journal_that_does_not_exist_is_not_good(world: World) -> None:
    with pytest.raises(VerificationFailed, match="there is no journal") as caught:
        world.verify()
    assert (caught.value.rule, world.names()) == ("journal.missing", set())
    world.fill(1).path.unlink()
    with pytest.raises(VerificationFailed, match=r"but there is receipts\.jsonl\.anchor"):
        world.verify()


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo], ids=["directory", "fifo"])
def test_what_is_no_file_is_a_fault(world: World, make: Callable[[Path], None]) -> None:
    make(world.path)
    with pytest.raises(EnvironmentFault, match="is not a regular file"):
        world.verify()


def test_the_wrong_field_name_does_not_verify(world: World) -> None:
    world.fill(2)
    report = verify(world.path, hash_field="event_hash", key_path=world.key)
    assert report.break_ is not None
    assert report.break_.sentence == "line 1 was edited: it has no event_hash"
    with pytest.raises(UsageError):
        verify(world.path, hash_field="previous_hash", key_path=world.key)


def test_a_good_journal_is_good(world: World) -> None:
    world.journal().open()
    assert world.verify() == sound(0)
    for count in range(1, 4):
        world.fill(1, start=count)
        assert world.verify() == sound(count)


def test_what_stands_after_the_anchor_is_counted(world: World) -> None:
    world.fill(2)
    anchor = world.anchor.read_bytes()
    world.fill(3, start=3)
    world.anchor.write_bytes(anchor)
    whole = world.lines()
    assert world.verify() == sound(5, unanchored=3)
    for torn in (b"{", b"\0" * 4096, b"nonsense\n", b"\n\n", whole[4][:-1]):
        world.put([*whole[:4], torn])
        assert world.verify() == sound(4, unanchored=2, torn_bytes=len(torn))


def test_a_readable_line_after_the_anchor_must_hold(world: World) -> None:
    world.fill(2)
    anchor = world.anchor.read_bytes()
    world.fill(3, start=3)
    world.anchor.write_bytes(anchor)
    whole = world.lines()
    for lines, expected in (
        (_edit(whole, 4), (4, "r-4", "edited")),
        (_put(whole, 4, whole[2]), (4, "r-3", "inserted")),
        (_put(whole, 6, b'{"id":"x"}\n'), (6, "x", "edited")),
    ):
        world.put(lines)
        report = world.verify()
        assert report.break_ is not None
        assert (report.break_.number, report.break_.id, report.break_.reason) == expected


def _picture(directory: Path) -> dict[str, tuple[int, int, int, int, bytes]]:
    """Everything that writing would change: times, inodes, modes, contents."""
    paths = [directory, *sorted(directory.iterdir())]
    return {
        path.name: (
            (status := path.lstat()).st_mtime_ns,
            status.st_ctime_ns,
            status.st_ino,
            status.st_mode,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in paths
    }


@pytest.mark.parametrize("torn", [b"", b"torn"])
@pytest.mark.parametrize("missing", [None, "key", "receipts.jsonl.anchor", "receipts.jsonl.lock"])
def test_verifying_writes_nothing(world: World, torn: bytes, missing: str | None) -> None:
    world.fill(3)
    world.put([*world.lines(), torn])
    if missing:
        (world.directory / missing).unlink()
    before = _picture(world.directory)
    world.verify()
    assert _picture(world.directory) == before


def test_verifying_works_where_nothing_may_be_written() -> None:
    nobody = pwd.getpwnam("nobody").pw_uid if os.getuid() == 0 else os.getuid()
    directory = Path(tempfile.mkdtemp(prefix="coilclaw-read-only-"))
    try:
        world = World(directory).fill(3)
        for path in directory.iterdir():
            os.chown(path, nobody, -1)
            path.chmod(stat.S_IRUSR)
        os.chown(directory, nobody, -1)
        directory.chmod(stat.S_IRUSR | stat.S_IXUSR)

        def work() -> None:
            if os.getuid() == 0:
                os.setuid(nobody)
            with pytest.raises(PermissionError):
                (directory / "new").touch()
            assert world.verify() == sound(3)
            assert len(list(world.journal().read())) == 3

        assert reap(fork(work)) == 0
    finally:
        directory.chmod(stat.S_IRWXU)
        shutil.rmtree(directory)


def test_verifying_waits_for_a_writer_only_to_begin(world: World) -> None:
    world.fill(2)
    with FileLock(Path(f"{world.path}.lock"), shared=True):
        assert world.verify() == sound(2)


def test_verifying_beside_writers_finds_no_fault(world: World) -> None:
    world.fill(1)

    def work() -> None:
        with world.journal() as journal:
            for number in range(80):
                journal.append(record(number))

    children = [fork(work) for _ in range(3)]
    while children:
        if os.waitpid(children[0], os.WNOHANG) != (0, 0):
            children.pop(0)
        report = world.verify()
        assert report == sound(report.records)
    assert world.verify() == sound(1 + 3 * 80)
