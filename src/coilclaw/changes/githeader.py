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

from coilclaw.changes import gitquote
from coilclaw.changes.cursor import MAX_NAME_CHARS
from coilclaw.domain.treepath import shown

if TYPE_CHECKING:
    from coilclaw.changes.cursor import Cursor

GIT_START: Final = "diff --git "
DEV_NULL: Final = "/dev/null"
PLAIN: Final = "100644"
EXECUTABLE: Final = "100755"
LINK: Final = "120000"
SUBMODULE: Final = "160000"
MODES: Final = (PLAIN, EXECUTABLE, LINK, SUBMODULE)

FIELDS: Final = (
    "old mode ",
    "new mode ",
    "new file mode ",
    "deleted file mode ",
    "similarity index ",
    "dissimilarity index ",
    "rename from ",
    "rename to ",
    "copy from ",
    "copy to ",
    "index ",
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

    @property
    def modes(self) -> frozenset[str]:
        return frozenset(
            mode for mode in (self.old_mode, self.new_mode, self.index_mode) if mode is not None
        )


def starts(cursor: Cursor, ahead: int = 0) -> bool:
    """Say whether the header of a file starts here."""
    line = cursor.peek(ahead)
    return line is not None and (line.startswith(GIT_START) or starts_plain(cursor, ahead))


def starts_plain(cursor: Cursor, ahead: int = 0) -> bool:
    """Say whether the header of a plain unified diff starts here."""
    line, following = cursor.peek(ahead), cursor.peek(ahead + 1)
    return (
        line is not None
        and line.startswith("--- ")
        and following is not None
        and following.startswith("+++ ")
    )


def parse(cursor: Cursor) -> FileHeader:
    """Read the header that starts at the cursor."""
    line = cursor.peek()
    assert line is not None
    if line.startswith(GIT_START):
        return _GitHeader(cursor).parse()
    return _plain(cursor)


def _plain(cursor: Cursor) -> FileHeader:
    line = cursor.number
    hunk = cursor.peek(2) or ""
    # Some archives date every file so: only a side without lines is a side without the file.
    absent = [
        _is_epoch(cursor.peek(ahead) or "") and empty in hunk
        for ahead, empty in enumerate(("@@ -0,0 ", " +0,0 @@"))
    ]
    old, new = _sides(cursor)
    if old == DEV_NULL == new:
        raise cursor.failure("names", "the file is on neither side", line=line)
    created, deleted = old == DEV_NULL or absent[0], new == DEV_NULL or absent[1]
    if (old == DEV_NULL or old.startswith("a/")) and (new == DEV_NULL or new.startswith("b/")):
        old, new = old[2:], new[2:]
    elif DEV_NULL not in {old, new} and old != new and _below(old) == _below(new) != "":
        old = new = _below(old)
    if shared := _without_backup(old, new):
        old = new = shared
    if created or deleted:
        name = new if created else old
        return FileHeader(line, name, name, created=created, deleted=deleted, named=True)
    if old != new:
        raise cursor.failure(
            "names",
            f"the names {shown(old)} and {shown(new)} of one file differ",
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


def _below(name: str) -> str:
    """Return a name without its first folder; empty if it has none."""
    return name.partition("/")[2]


def _without_backup(old: str, new: str) -> str | None:
    """Return the shorter of two names if the other is a backup of it."""
    short, long = sorted((old, new), key=len)
    return short if long.startswith(short) and long[len(short) :] in _BACKUPS else None


def _sides(cursor: Cursor) -> tuple[str, str]:
    """Read the ``---`` and ``+++`` lines."""
    names = []
    for _ in range(2):
        text = cursor.peek()
        assert text is not None
        name = gitquote.side(text[4:]) if len(text) <= MAX_NAME_CHARS else None
        if name is None:
            raise cursor.failure("quoting", f"the file name {shown(text[4:])} cannot be read")
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
        self._first = ""
        self._prefixes = _PREFIXES
        """What the names of the two sides begin with."""

    def parse(self) -> FileHeader:
        cursor = self._cursor
        first = cursor.take()[len(GIT_START) :]
        if len(first) > 2 * MAX_NAME_CHARS:
            self._fail("quoting", "the file names of the header are far too long")
        self._first = first
        self._prefixes = _prefixes(first)
        self._read_fields()
        if starts_plain(cursor):
            self._names = _sides(cursor)
        self._check_combination()
        old, new = self._resolve()
        return self._header(old, new)

    def _read_fields(self) -> None:
        cursor = self._cursor
        while (line := cursor.peek()) is not None:
            key = next((field for field in FIELDS if line.startswith(field)), None)
            if key is None:
                return
            if key in self._fields:
                raise cursor.failure("header", f"the header has a second '{key.strip()}' line")
            self._fields[key] = self._value(key, line[len(key) :])
            cursor.take()

    def _value(self, key: str, text: str) -> str:
        """Check one extended header line, and read the name on it if it has one."""
        cursor = self._cursor
        if key.endswith("mode "):
            if text not in MODES:
                raise cursor.failure(
                    "mode",
                    f"mode {shown(text)} is none of {', '.join(MODES)}",
                    hint="write 100644 for a plain file and 100755 for an executable one",
                )
            return text
        if key == "index ":
            ids = _IDS.fullmatch(text)
            if ids is None:
                raise cursor.failure("header", f"the index line {shown(text)} cannot be read")
            if ids[3] is not None and ids[3] not in MODES:
                raise cursor.failure("mode", f"mode {shown(ids[3])} is none of {', '.join(MODES)}")
            return text
        if key.endswith("index "):
            if not _PERCENT.fullmatch(text):
                raise cursor.failure("header", f"{shown(text)} is not a percentage")
            return text
        name = gitquote.whole(text) if len(text) <= MAX_NAME_CHARS else None
        if not name:
            raise cursor.failure("quoting", f"the file name {shown(text)} cannot be read")
        return name

    def _check_combination(self) -> None:
        has = self._fields.keys()
        for one, other in (
            ("old mode ", "new mode "),
            ("rename from ", "rename to "),
            ("copy from ", "copy to "),
        ):
            if (one in has) != (other in has):
                present, absent = (one, other) if one in has else (other, one)
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

    def _resolve(self) -> tuple[str, str]:
        """Find the one pair of names that all lines of the header agree on."""
        moved = self._moved()
        sides = self._stripped_sides()
        if moved is not None:
            if sides is not None and sides != moved:
                self._fail("names", f"the header names both {_both(moved)} and {_both(sides)}")
            names = moved
        elif sides is not None:
            known = sides[0] if sides[0] is not None else sides[1]
            if known is None or (None not in sides and sides[0] != sides[1]):
                self._fail(
                    "names", f"the names {_both(sides)} differ, but the header says no rename"
                )
            names = (known, known)
        else:
            names = self._from_first()
        old, new = self._prefixes
        spelled = [(old + names[0], new + names[1])]
        if self._names is not None and DEV_NULL in self._names:
            # Without prefixes of its own, git names the side that is there twice.
            spelled += [(old + names[0], old + names[1]), (new + names[0], new + names[1])]
        pair = gitquote.pair(self._first)
        if pair not in spelled and self._first not in map(" ".join, spelled):
            self._fail(
                "names",
                f"the 'diff --git' line names {shown(self._first)}, the rest of the header "
                f"{_both(names)}",
                hint="names in a git patch start with a/ and b/",
            )
        return names

    def _moved(self) -> tuple[str, str] | None:
        for verb in ("rename", "copy"):
            if f"{verb} from " in self._fields:
                return self._fields[f"{verb} from "], self._fields[f"{verb} to "]
        return None

    def _stripped_sides(self) -> tuple[str | None, str | None] | None:
        if self._names is None:
            return None
        bare: list[str | None] = []
        for name, prefix in zip(self._names, self._prefixes, strict=True):
            if name != DEV_NULL and not name.startswith(prefix):
                self._fail_prefix(name, prefix)
            bare.append(None if name == DEV_NULL else name[len(prefix) :])
        return bare[0], bare[1]

    def _from_first(self) -> tuple[str, str]:
        old, new = self._prefixes
        if self._prefixes != _PREFIXES:
            length = (len(self._first) - len(old) - len(new) - 1) // 2
            return (self._first[len(old) : len(old) + length],) * 2
        names = gitquote.pair(self._first)
        if names is None:
            self._fail(
                "names",
                f"the two names in {shown(self._first)} cannot be told apart, and no other line "
                "of the header names the file",
            )
        for name, prefix in zip(names, ("a/", "b/"), strict=True):
            if not name.startswith(prefix):
                self._fail_prefix(name, prefix)
        if names[0][2:] != names[1][2:]:
            self._fail("names", f"the names {_both(names)} differ, but the header says no rename")
        return names[0][2:], names[1][2:]

    def _header(self, old: str, new: str) -> FileHeader:
        fields = self._fields
        created = fields.get("new file mode ")
        deleted = fields.get("deleted file mode ")
        from_null = self._names is not None and self._names[0] == DEV_NULL
        to_null = self._names is not None and self._names[1] == DEV_NULL
        if self._names is not None and (
            (created and not from_null)
            or (deleted and not to_null)
            or (from_null and (deleted or self._moved() or "old mode " in fields))
            or (to_null and (created or self._moved() or "old mode " in fields))
        ):
            self._fail("header", f"the modes and the /dev/null lines of {shown(new)} contradict")
        ids = _IDS.fullmatch(fields["index "]) if "index " in fields else None
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

    def _fail_prefix(self, name: str, prefix: str) -> NoReturn:
        self._fail(
            "prefix",
            f"the name {shown(name)} does not start with {prefix}",
            hint="write names in a git patch as a/… and b/… (git diff without --no-prefix)",
        )

    def _fail(self, rule: str, message: str, *, hint: str | None = None) -> NoReturn:
        raise self._cursor.failure(rule, message, line=self._line, hint=hint)


def _prefixes(first: str) -> tuple[str, str]:
    """Return the first folders of two names that differ in these alone, or git's prefixes."""
    if len(first) > _MAX_SEARCHED or first.startswith('"'):
        return _PREFIXES
    at = first.find(" ")
    while at >= 0:
        old, new = first[:at].partition("/"), first[at + 1 :].partition("/")
        if old[2] == new[2] != "" and old[0] != new[0] and old[0] and new[0]:
            return f"{old[0]}/", f"{new[0]}/"
        at = first.find(" ", at + 1)
    return _PREFIXES


def _both(names: tuple[str | None, str | None]) -> str:
    return " and ".join(DEV_NULL if name is None else shown(name) for name in names)
