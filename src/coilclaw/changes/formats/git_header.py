"""The header of one file in a git patch: its names, modes and ids, which must all agree.

A header starts with ``diff --git`` and may carry any of git's extended lines; a plain unified diff
has ``---`` and ``+++`` only. Names in a ``diff --git`` section carry the prefixes ``a/`` and
``b/``, or two others that differ; in a plain diff the prefixes are taken off where both names have
them, and so are two first folders that alone make the names differ (``old/x`` and ``new/x``). There
a time stamp of the epoch on a side without lines says that the file is not there, and a name with
``.orig`` or the like at its end is the backup of the other.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn

from coilclaw.changes.formats.answer_text import MAX_NAME_CHARS
from coilclaw.kernel import quote_text

if TYPE_CHECKING:
    from coilclaw.changes.formats.answer_text import Cursor

GIT_START: Final = "diff --git "
DEV_NULL: Final = "/dev/null"
PLAIN: Final = "100644"
EXECUTABLE: Final = "100755"
LINK: Final = "120000"
SUBMODULE: Final = "160000"
MODES: Final = (PLAIN, EXECUTABLE, LINK, SUBMODULE)

FIELDS: Final = (
    *("old mode ", "new mode ", "new file mode ", "deleted file mode "),
    *("similarity index ", "dissimilarity index "),
    *("rename from ", "rename to ", "copy from ", "copy to ", "index "),
)
_PAIRS: Final = (
    ("old mode ", "new mode "),
    ("rename from ", "rename to "),
    ("copy from ", "copy to "),
)
_PERCENT: Final = re.compile(r"(?:100|[0-9]{1,2})%")
_EPOCH: Final = re.compile(
    r"\t(1969-12-31|1970-01-01) ([0-2][0-9]):([0-5][0-9]):00(?:\.0+)? "
    r"([+-])([0-9]{2}):?([0-9]{2})?\s*$"
)
_PREFIXES: Final = ("a/", "b/")
_MAX_SEARCHED: Final = 8_192
"""Characters of a 'diff --git' line that is searched for other prefixes."""
_BACKUPS: Final = frozenset({".orig", ".old", ".bak", ".new", ".tmp", "~"})
# Models make these ids up, so for text they are read and not believed; binary patches check them.
_IDS: Final = re.compile(r"([0-9A-Za-z]{1,64})\.\.([0-9A-Za-z]{1,64})(?: ([0-7]{6}))?")
_QUOTED: Final = re.compile(r'"((?:[^"\\]|\\[0-3][0-7]{2}|\\[abfnrtv"\\])*)"')
_ESCAPE: Final = re.compile(rb"\\(?:([0-3][0-7]{2})|(.))")
_LETTERS: Final = dict(zip(b'abfnrtv"\\', b'\a\b\f\n\r\t\v"\\', strict=True))


@dataclass(frozen=True, slots=True)
class FileHeader:
    """What the header says about one file; a file that comes or goes has the same name twice."""

    line: int
    old: str
    new: str
    created: bool = False
    deleted: bool = False
    renamed: bool = False
    copied: bool = False
    named: bool = False
    """There are ``---`` and ``+++`` lines, so hunks must follow."""
    old_mode: str | None = None
    new_mode: str | None = None
    index_mode: str | None = None
    ids: tuple[str, str] | None = None


def starts(cursor: Cursor, ahead: int = 0) -> bool:
    """Say whether the header of a file starts here."""
    return (cursor.peek(ahead) or "").startswith(GIT_START) or starts_plain(cursor, ahead)


def starts_plain(cursor: Cursor, ahead: int = 0) -> bool:
    """Say whether the header of a plain unified diff starts here."""
    first, second = cursor.peek(ahead) or "", cursor.peek(ahead + 1) or ""
    return first.startswith("--- ") and second.startswith("+++ ")


def parse(cursor: Cursor) -> FileHeader:
    """Read the header that starts at the cursor."""
    if (cursor.peek() or "").startswith(GIT_START):
        return _GitHeader(cursor).parse()
    return _parse_plain(cursor)


def unquote(text: str) -> tuple[str, str] | None:
    """Read the quoted name at the start of a text: the name and what follows, or ``None``.

    Bytes that are not UTF-8 come back as surrogate escapes, which no path may hold.
    """
    quoted = _QUOTED.match(text)
    if quoted is None:
        return None
    raw = _ESCAPE.sub(
        lambda found: bytes([int(found[1], 8) if found[1] else _LETTERS[found[2][0]]]),
        quoted[1].encode("utf-8", "surrogatepass"),
    )
    return raw.decode("utf-8", "surrogateescape"), text[quoted.end() :]


def read_side(text: str) -> str | None:
    """Read the name on a ``---`` or ``+++`` line, where a tab ends a name that is not quoted."""
    if not text.startswith('"'):
        return text.split("\t", 1)[0]
    found = unquote(text)
    return found[0] if found is not None and found[1][:1] in {"", "\t"} else None


def read_name(text: str) -> str | None:
    """Read the name that takes the whole rest of a line, as after ``rename from``."""
    if not text.startswith('"'):
        return text
    found = unquote(text)
    return found[0] if found is not None and found[1] == "" else None


def read_pair(text: str) -> tuple[str, str] | None:
    """Read the two names of a ``diff --git`` line, prefixes included.

    Two raw names can only be told apart when they are the same but for their prefixes, as they are
    wherever no other line of the header names the file; ``None`` when they cannot.
    """
    if text.startswith('"'):
        first = unquote(text)
        if first is None or not first[1].startswith(" "):
            return None
        second = read_name(first[1][1:])
        return None if second is None else (first[0], second)
    if text.endswith('"'):
        # git quotes every name that holds a quote, so the first quote starts the second name.
        old, _, rest = text.partition(' "')
        second = read_name('"' + rest)
        return None if second is None else (old, second)
    half = len(text) // 2
    old, new = text[:half], text[half + 1 :]
    is_pair = len(text) % 2 and text[half] == " " and old[2:] == new[2:]
    return (old, new) if is_pair else None


def _parse_plain(cursor: Cursor) -> FileHeader:
    line = cursor.number
    hunk = cursor.peek(2) or ""
    # Some archives date every file so: only a side without lines is a side without the file.
    absent = [
        _is_epoch(cursor.peek(ahead) or "") and empty in hunk
        for ahead, empty in enumerate(("@@ -0,0 ", " +0,0 @@"))
    ]
    old, new = _read_sides(cursor)
    if old == DEV_NULL == new:
        raise cursor.failure("names", "the file is on neither side", line=line)
    created, deleted = old == DEV_NULL or absent[0], new == DEV_NULL or absent[1]
    below = old.partition("/")[2]
    if (old == DEV_NULL or old.startswith("a/")) and (new == DEV_NULL or new.startswith("b/")):
        old, new = old[2:], new[2:]
    elif DEV_NULL not in {old, new} and old != new and below == new.partition("/")[2] != "":
        old = new = below
    short, long = sorted((old, new), key=len)
    if short and long.startswith(short) and long[len(short) :] in _BACKUPS:
        old = new = short
    if created or deleted:
        name = new if created else old
        return FileHeader(line, name, name, created=created, deleted=deleted, named=True)
    if old != new:
        raise cursor.failure(
            "names",
            f"the names {quote_text(old)} and {quote_text(new)} of one file differ",
            line=line,
            path=new,
            hint="a rename needs a 'diff --git' header with 'rename from' and 'rename to'",
        )
    return FileHeader(line, old, new, named=True)


def _is_epoch(line: str) -> bool:
    """Say whether the time stamp on a name's line is the epoch, in whatever time zone."""
    found = _EPOCH.search(line)
    if found is None:
        return False
    minutes = 60 * int(found[2]) + int(found[3]) - (24 * 60 if found[1].startswith("1969") else 0)
    zone = 60 * int(found[5]) + int(found[6] or 0)
    return minutes == (zone if found[4] == "+" else -zone)


def _read_sides(cursor: Cursor) -> tuple[str, str]:
    """Read the ``---`` and ``+++`` lines."""
    names = []
    for _ in range(2):
        text = (cursor.peek() or "")[4:]
        name = read_side(text) if len(text) <= MAX_NAME_CHARS else None
        if name is None:
            raise cursor.failure("quoting", f"the file name {quote_text(text)} cannot be read")
        names.append(name)
        cursor.take()
    return names[0], names[1]


class _GitHeader:
    """The lines of one header while they are read."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self._line = cursor.number
        self._fields: dict[str, str] = {}
        self._names: tuple[str, str] | None = None
        self._moved: tuple[str, str] | None = None
        self._first = cursor.take()[len(GIT_START) :]
        if len(self._first) > 2 * MAX_NAME_CHARS:
            self._fail("quoting", "the file names of the header are far too long")
        self._prefixes = _find_prefixes(self._first)
        """What the names of the two sides begin with."""

    def parse(self) -> FileHeader:
        cursor, fields = self._cursor, self._fields
        while key := next(filter((cursor.peek() or "").startswith, FIELDS), None):
            if key in fields:
                raise cursor.failure("header", f"the header has a second '{key.strip()}' line")
            fields[key] = self._read_value(key, (cursor.peek() or "")[len(key) :])
            cursor.take()
        if starts_plain(cursor):
            self._names = _read_sides(cursor)
        self._check_combination()
        for verb in ("copy", "rename"):
            if f"{verb} from " in fields:
                self._moved = fields[f"{verb} from "], fields[f"{verb} to "]
        old, new = self._resolve_names()
        return self._make_header(old, new)

    def _read_value(self, key: str, text: str) -> str:
        """Check one extended header line, and read the name on it if it has one."""
        mode = text if key.endswith("mode ") else None
        if key == "index ":
            ids = _IDS.fullmatch(text)
            if ids is None:
                raise self._cursor.failure(
                    "header", f"the index line {quote_text(text)} cannot be read"
                )
            mode = ids[3]
        elif key.endswith("index ") and not _PERCENT.fullmatch(text):
            raise self._cursor.failure("header", f"{quote_text(text)} is not a percentage")
        if mode is not None and mode not in MODES:
            raise self._cursor.failure(
                "mode",
                f"mode {quote_text(mode)} is none of {', '.join(MODES)}",
                hint="write 100644 for a plain file and 100755 for an executable one",
            )
        if not key.endswith((" from ", " to ")):
            return text
        name = read_name(text) if len(text) <= MAX_NAME_CHARS else None
        if not name:
            raise self._cursor.failure(
                "quoting", f"the file name {quote_text(text)} cannot be read"
            )
        return name

    def _check_combination(self) -> None:
        has = self._fields.keys()
        for pair in _PAIRS:
            present, absent = sorted(pair, key=lambda key: key not in has)
            if present in has and absent not in has:
                self._fail(
                    "header", f"the header has '{present.strip()}' but no '{absent.strip()}'"
                )
        whole = [key for key in ("new file mode ", "deleted file mode ") if key in has]
        moved = [key for key in ("rename from ", "copy from ") if key in has]
        if len(moved) == 2 or len(whole) == 2 or (whole and (moved or "old mode " in has)):
            keys = [key.strip() for key in (*whole, *moved, "old mode ") if key in has]
            self._fail("header", f"'{keys[0]}' and '{keys[1]}' contradict each other")
        if "old mode " in has and self._fields["old mode "] == self._fields["new mode "]:
            self._fail("header", "the old mode and the new mode are the same")

    def _resolve_names(self) -> tuple[str, str]:
        """Find the one pair of names that all lines of the header agree on."""
        sides = self._strip_sides()
        if self._moved is not None:
            if sides is not None and sides != self._moved:
                self._fail(
                    "names", f"the header names both {_both(self._moved)} and {_both(sides)}"
                )
            names = self._moved
        elif sides is not None:
            known = sides[0] if sides[0] is not None else sides[1]
            if known is None or (None not in sides and sides[0] != sides[1]):
                self._fail(
                    "names", f"the names {_both(sides)} differ, but the header says no rename"
                )
            names = (known, known)
        else:
            names = self._split_first()
        old, new = self._prefixes
        spelled = [(old + names[0], new + names[1])]
        if self._names is not None and DEV_NULL in self._names:
            # Without prefixes of its own, git names the side that is there twice.
            spelled += [(old + names[0], old + names[1]), (new + names[0], new + names[1])]
        if read_pair(self._first) not in spelled and self._first not in map(" ".join, spelled):
            self._fail(
                "names",
                f"the 'diff --git' line names {quote_text(self._first)}, the rest of the header "
                f"{_both(names)}",
                hint="names in a git patch start with a/ and b/",
            )
        return names

    def _strip_sides(self) -> tuple[str | None, str | None] | None:
        if self._names is None:
            return None
        old, new = (
            None if name == DEV_NULL else self._strip_prefix(name, prefix)
            for name, prefix in zip(self._names, self._prefixes, strict=True)
        )
        return old, new

    def _split_first(self) -> tuple[str, str]:
        old, new = self._prefixes
        if self._prefixes != _PREFIXES:
            length = (len(self._first) - len(old) - len(new) - 1) // 2
            return (self._first[len(old) : len(old) + length],) * 2
        names = read_pair(self._first)
        if names is None:
            self._fail(
                "names",
                f"the two names in {quote_text(self._first)} cannot be told apart, and no other "
                "line "
                "of the header names the file",
            )
        bare = self._strip_prefix(names[0], old), self._strip_prefix(names[1], new)
        if bare[0] != bare[1]:
            self._fail("names", f"the names {_both(names)} differ, but the header says no rename")
        return bare

    def _make_header(self, old: str, new: str) -> FileHeader:
        fields = self._fields
        created = fields.get("new file mode ")
        deleted = fields.get("deleted file mode ")
        from_null, to_null = (name == DEV_NULL for name in self._names or ("", ""))
        stays = self._moved or "old mode " in fields
        if self._names is not None and (
            (created and not from_null)
            or (deleted and not to_null)
            or (from_null and (deleted or stays))
            or (to_null and (created or stays))
        ):
            self._fail(
                "header", f"the modes and the /dev/null lines of {quote_text(new)} contradict"
            )
        ids = _IDS.fullmatch(fields.get("index ", ""))
        return FileHeader(
            line=self._line,
            old=old,
            new=new,
            created=created is not None or from_null,
            deleted=deleted is not None or to_null,
            renamed="rename from " in fields,
            copied="copy from " in fields,
            named=self._names is not None,
            old_mode=fields.get("old mode ", deleted),
            new_mode=fields.get("new mode ", created),
            index_mode=ids[3] if ids else None,
            ids=(ids[1], ids[2]) if ids else None,
        )

    def _strip_prefix(self, name: str, prefix: str) -> str:
        if not name.startswith(prefix):
            self._fail(
                "prefix",
                f"the name {quote_text(name)} does not start with {prefix}",
                hint="write names in a git patch as a/… and b/… (git diff without --no-prefix)",
            )
        return name[len(prefix) :]

    def _fail(self, rule: str, message: str, *, hint: str | None = None) -> NoReturn:
        raise self._cursor.failure(rule, message, line=self._line, hint=hint)


def _find_prefixes(first: str) -> tuple[str, str]:
    """Return the first folders of two names that differ in these alone, or git's prefixes."""
    if len(first) > _MAX_SEARCHED or first.startswith('"'):
        return _PREFIXES
    for space in re.finditer(" ", first):
        old, new = first[: space.start()].partition("/"), first[space.end() :].partition("/")
        if old[2] == new[2] != "" and old[0] != new[0] and old[0] and new[0]:
            return f"{old[0]}/", f"{new[0]}/"
    return _PREFIXES


def _both(names: tuple[str | None, str | None]) -> str:
    return " and ".join(DEV_NULL if name is None else quote_text(name) for name in names)
