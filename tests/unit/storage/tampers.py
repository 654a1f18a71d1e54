"""Every way to tamper with a journal of nine records, and what verification says to it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from coilclaw.kernel.journal_format import FIRST_HASH, JournalForm, JournalLink
from tests.unit.storage.worlds import HASH_FIELD, ID_FIELD, record

COUNT = 9
Lines = list[bytes]

FORM = JournalForm(HASH_FIELD, ID_FIELD)


def _link(line: bytes) -> JournalLink:
    link = FORM.check(line)
    assert isinstance(link, JournalLink)
    return link


def sealed(number: int, previous: str, name: str = "forged") -> bytes:
    """A line with a right hash, as anybody can make it."""
    return FORM.seal(FORM.draft({**record(number), "id": name}), previous)[0]


def _rechained(lines: Lines, start: int, tool: str) -> Lines:
    """Rewrite everything from a line on, with all hashes made new."""
    out = lines[: start - 1]
    previous = _link(out[-1]).own if out else FIRST_HASH
    for line in lines[start - 1 :]:
        body = dict(_link(line).record)
        del body[HASH_FIELD], body["previous_hash"]
        line, previous = FORM.seal(FORM.draft({**body, "tool": tool}), previous)
        out.append(line)
    return out


def put_in(lines: Lines, place: int, *new: bytes) -> Lines:
    """Insert before line ``place``, counted from 1."""
    return [*lines[: place - 1], *new, *lines[place - 1 :]]


def _first(lines: Lines, count: int) -> Lines:
    return lines[:count]


def without(lines: Lines, places: tuple[int, ...]) -> Lines:
    return [line for number, line in enumerate(lines, 1) if number not in places]


def _instead(lines: Lines, place: int, *new: bytes) -> Lines:
    return put_in(without(lines, (place,)), place, *new)


def edit(lines: Lines, place: int) -> Lines:
    return _instead(lines, place, lines[place - 1].replace(b"shell", b"SHELL"))


def rehash(lines: Lines, place: int) -> Lines:
    """Edit one record and give it a right hash, but leave the next as it was."""
    previous = _link(lines[place - 1]).previous
    return _instead(lines, place, sealed(99, previous, f"r-{place}"))


def own_hash(lines: Lines, place: int) -> str:
    return _link(lines[place - 1]).own


REWRITTEN = (
    "line 9 is not the record that was anchored: "
    "it, or lines before it, were rewritten and given new hashes"
)
EDITED = "its content does not have its receipt_hash"

TAMPERS: dict[str, tuple[Callable[[Lines], Lines], tuple[int, str | None, str], str]] = {
    **{
        f"edit {n}": (
            partial(edit, place=n),
            (n, f"r-{n}", "edited"),
            f"line {n} was edited: {EDITED}",
        )
        for n in (1, 5, 9)
    },
    **{
        f"edit and rehash {n}": (
            partial(rehash, place=n),
            (n, f"r-{n}", "edited"),
            f"line {n} was edited and given a new hash, which no later line knows",
        )
        for n in (1, 5, 8)
    },
    "edit and rehash the last": (
        lambda lines: rehash(lines, 9),
        (9, "r-9", "edited"),
        REWRITTEN,
    ),
    "give one another predecessor and rehash it": (
        lambda lines: _instead(lines, 5, sealed(5, "f" * 64, "r-5")),
        (5, "r-5", "edited"),
        "line 5 was edited and given a new hash, which no later line knows",
    ),
    "give the last another predecessor and rehash it": (
        lambda lines: _instead(lines, 9, sealed(9, "f" * 64, "r-9")),
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
        lambda lines: _rechained([*lines, sealed(10, own_hash(lines, 9))], 3, "forged"),
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
            partial(without, places=(n,)),
            (n, f"r-{n + 1}", "deleted"),
            f"a record was deleted before line {n}, which follows one that is not there",
        )
        for n in (1, 2, 8)
    },
    "delete several": (
        lambda lines: without(
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
        lambda lines: without(
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
        lambda lines: put_in(without(lines, (7,)), 3, lines[6]),
        (3, "r-7", "reordered"),
        "line 3 is out of order: it follows line 7",
    ),
    "move one to the back": (
        lambda lines: put_in(without(lines, (3,)), 7, lines[2]),
        (3, "r-4", "reordered"),
        "line 3 is out of order: it follows line 7",
    ),
    "turn all around": (
        lambda lines: lines[::-1],
        (1, "r-9", "reordered"),
        "line 1 is out of order: it follows line 2",
    ),
    "repeat one": (
        lambda lines: put_in(lines, 5, lines[3]),
        (5, "r-4", "inserted"),
        "line 5 was inserted: it repeats line 4",
    ),
    "repeat the first": (
        lambda lines: put_in(lines, 2, lines[0]),
        (2, "r-1", "inserted"),
        "line 2 was inserted: it repeats line 1",
    ),
    "repeat the last": (
        lambda lines: [*lines, lines[8]],
        (10, "r-9", "inserted"),
        "line 10 was inserted: it repeats line 9",
    ),
    "repeat one far behind": (
        lambda lines: put_in(lines, 9, lines[1]),
        (9, "r-2", "inserted"),
        "line 9 was inserted: it repeats line 2",
    ),
    "repeat one far before": (
        lambda lines: put_in(lines, 3, lines[7]),
        (3, "r-8", "inserted"),
        "line 3 was inserted: it repeats line 9",
    ),
    "insert one that follows": (
        lambda lines: put_in(lines, 5, sealed(0, own_hash(lines, 4))),
        (5, "forged", "inserted"),
        "line 5 was inserted: line 6 goes on from before it",
    ),
    "insert one before all": (
        lambda lines: put_in(lines, 1, sealed(0, FIRST_HASH)),
        (1, "forged", "inserted"),
        "line 1 was inserted: line 2 goes on from before it",
    ),
    "insert two that follow": (
        lambda lines: put_in(
            lines, 5, *(f := [sealed(0, own_hash(lines, 4))]), sealed(0, own_hash(f, 1), "more")
        ),
        (5, "forged", "inserted"),
        "line 5 was inserted: line 7 goes on from before it",
    ),
    "insert one that follows before the last": (
        lambda lines: put_in(lines, 9, sealed(0, own_hash(lines, 8))),
        (9, "forged", "inserted"),
        "line 9 was inserted: line 10 goes on from before it",
    ),
    "insert as many that follow as there are behind": (
        lambda lines: [*_rechained(lines, 6, "forged"), *lines[5:]],
        (6, "r-6", "inserted"),
        "line 6 was inserted: line 10 goes on from before it",
    ),
    "insert one from another journal": (
        lambda lines: put_in(lines, 5, sealed(0, "e" * 64)),
        (5, "forged", "inserted"),
        "line 5 was inserted: it does not follow the line before it",
    ),
    "insert the beginning of another journal": (
        lambda lines: put_in(lines, 5, sealed(0, FIRST_HASH)),
        (5, "forged", "inserted"),
        "line 5 was inserted: it does not follow the line before it",
    ),
    "insert a fork from before": (
        lambda lines: put_in(lines, 7, sealed(0, own_hash(lines, 2))),
        (7, "forged", "inserted"),
        "line 7 was inserted: it does not follow the line before it",
    ),
    "insert a fork from behind": (
        lambda lines: put_in(lines, 3, sealed(0, own_hash(lines, 7))),
        (3, "forged", "inserted"),
        "line 3 was inserted: it says that it follows line 8, which is behind it",
    ),
    "insert one with a wrong hash": (
        lambda lines: put_in(lines, 5, sealed(0, own_hash(lines, 4)).replace(b"shell", b"SHELL")),
        (5, "forged", "inserted"),
        "line 5 was inserted: the lines around it belong together",
    ),
    "insert one after the last that does not follow": (
        lambda lines: [*lines, sealed(0, own_hash(lines, 5))],
        (10, "forged", "inserted"),
        "line 10 was inserted: it does not follow the line before it",
    ),
    "insert nonsense": (
        lambda lines: put_in(lines, 5, b"nonsense\n"),
        (5, None, "unparsable"),
        "line 5 cannot be read: it is not JSON",
    ),
    "insert an empty line": (
        lambda lines: put_in(lines, 5, b"\n"),
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
