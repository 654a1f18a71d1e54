"""``SOP.toml``, read: a SOP, or everything that can be said against it before tools are known."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from coilclaw.domain.canonical import digest
from coilclaw.errors import UsageError
from coilclaw.sop import conditions
from coilclaw.sop.document import KINDS, MAX_RETRIES, Kind, OnFailure, Sop, Stage
from coilclaw.sop.problem import Noted, Problem, closest, located

if TYPE_CHECKING:
    from coilclaw.sop.conditions import Condition
    from coilclaw.sop.problem import Lines, Place

MAX_BYTES: Final = 256 * 2**10
MAX_STAGES: Final = 200
MAX_DOTS: Final = 1000
"""Dots of one key: the parser takes memory by the square of them."""
MAX_PROMPT_CHARS: Final = 64 * 2**10
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
ID: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
TABLES: Final = "st" + "eps"
"""What the format calls the stages."""

_RETRY: Final = re.compile(r"retry\(\s*(\d{1,3})\s*\)")
_TOP: Final = ("name", "description", "on_failure", TABLES)
_KEYS: Final[dict[Kind, tuple[str, ...]]] = {
    "tool": ("id", "kind", "when", "on_failure", "tool", "args"),
    "agent": ("id", "kind", "when", "on_failure", "prompt"),
    "approval": ("id", "kind", "when", "prompt"),
}
_ALL_KEYS: Final = ("id", "kind", "when", "on_failure", "tool", "args", "prompt")


def parse(data: bytes, name: str, lines: Lines) -> tuple[Sop | None, tuple[Problem, ...]]:
    """Read the bytes of a file in the folder ``name``; without problems there is a SOP."""
    import tomllib

    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as problem:
        line = data.count(b"\n", 0, problem.start) + 1
        return None, (Problem("", line, "is not written in UTF-8"),)
    if any(_dotty(line) for line in text.split("\n")):
        return None, (Problem("", None, f"has a line with more than {MAX_DOTS} dots"),)
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as problem:
        return None, (_syntax(problem),)
    reader = _Reader()
    sop = reader.sop(table, name, text, digest(data))
    return sop, located(reader.noted, lines(text) if reader.noted else {})


def _dotty(line: str) -> bool:
    return len(line) > MAX_DOTS and any(part.count(".") > MAX_DOTS for part in line.split("="))


def _syntax(problem: Exception) -> Problem:
    if isinstance(problem, RecursionError):
        return Problem("", None, "is nested too deeply")
    found = re.search(r"\s*\(at (?:line (\d+), column \d+|end of document)\)", str(problem))
    line = int(found[1]) if found and found[1] else None
    said = str(problem)[: found.start()] if found else str(problem)
    return Problem("", line, f"is no TOML: {said[:1].lower()}{said[1:]}")


class _Reader:
    """Reads tables, and notes what is wrong with them."""

    def __init__(self) -> None:
        self.noted: list[Noted] = []

    def sop(self, table: dict[str, object], name: str, text: str, sha: str) -> Sop:
        self._unknown((), table, _TOP, _TOP)
        said = self._text((), table, "name")
        if said and said != name:
            self._note(("name",), f"is {said!r}, and its folder is called {name!r}")
        description = self._text((), table, "description", required=False)
        default = self._on_failure((), table, OnFailure())
        return Sop(name, description, self._stages(table, default), text, sha)

    def _stages(self, table: dict[str, object], default: OnFailure) -> tuple[Stage, ...]:
        given = table.get(TABLES)
        if not isinstance(given, list) or not given:
            self._note((TABLES,), f"there is no stage; each begins with [[{TABLES}]]")
            return ()
        if len(given) > MAX_STAGES:
            self._note((TABLES,), f"there are {len(given)} stages; {MAX_STAGES} is the most")
            return ()
        found = []
        first: dict[str, int] = {}
        for index, one in enumerate(given):
            place: Place = (TABLES, index)
            if not isinstance(one, dict):
                self._note(place, "is no table")
                continue
            stage = self._stage(place, one, default)
            if stage.id in first:
                self._note((*place, "id"), f"{stage.id!r} is the id of stage {first[stage.id] + 1}")
            elif stage.id:
                first[stage.id] = index
            found.append(stage)
        return tuple(found)

    def _stage(self, place: Place, table: dict[str, object], default: OnFailure) -> Stage:
        name = self._text(place, table, "id")
        if name and not ID.fullmatch(name):
            self._note(
                (*place, "id"), f"{name!r} is no id: a letter, then letters, digits, '_' and '-'"
            )
        kind = self._kind(place, table)
        self._unknown(place, table, _ALL_KEYS if kind is None else _KEYS[kind], _ALL_KEYS)
        args = table.get("args", {})
        if kind == "tool" and not isinstance(args, dict):
            self._note((*place, "args"), "is no table")
        return Stage(
            name,
            kind or "tool",
            place,
            tool=self._text(place, table, "tool") if kind == "tool" else "",
            args=args if isinstance(args, dict) else {},
            prompt=self._prompt(place, table) if kind in {"agent", "approval"} else "",
            when=self._when(place, table),
            on_failure=self._on_failure(place, table, default),
        )

    def _kind(self, place: Place, table: dict[str, object]) -> Kind | None:
        said = self._text(place, table, "kind")
        kind = next((one for one in KINDS if one == said), None)
        if said and kind is None:
            self._note(
                (*place, "kind"), f"{said!r} is none of {', '.join(KINDS)}{closest(said, KINDS)}"
            )
        return kind

    def _prompt(self, place: Place, table: dict[str, object]) -> str:
        prompt = self._text(place, table, "prompt")
        if len(prompt) > MAX_PROMPT_CHARS:
            self._note((*place, "prompt"), f"is longer than {MAX_PROMPT_CHARS} characters")
        return prompt

    def _when(self, place: Place, table: dict[str, object]) -> Condition | None:
        if "when" not in table:
            return None
        try:
            return conditions.parse(self._text(place, table, "when"))
        except UsageError as problem:
            self._note((*place, "when"), problem.message)
            return None

    def _on_failure(self, place: Place, table: dict[str, object], default: OnFailure) -> OnFailure:
        if "on_failure" not in table:
            return default
        said = self._text(place, table, "on_failure")
        if said in {"abort", "continue"}:
            return OnFailure("abort" if said == "abort" else "continue")
        found = _RETRY.fullmatch(said)
        if found and 1 <= int(found[1]) <= MAX_RETRIES:
            return OnFailure("retry", int(found[1]))
        if said:
            self._note(
                (*place, "on_failure"),
                f"{said!r} is none of abort, continue, retry(1) … retry({MAX_RETRIES})",
            )
        return default

    def _text(
        self, place: Place, table: dict[str, object], key: str, *, required: bool = True
    ) -> str:
        value = table.get(key, "")
        if not isinstance(value, str):
            self._note((*place, key), "is no text")
        elif required and not value.strip():
            self._note((*place, key), "is missing" if key not in table else "is empty")
        else:
            return value
        return ""

    def _unknown(
        self,
        place: Place,
        table: dict[str, object],
        allowed: tuple[str, ...],
        known: tuple[str, ...],
    ) -> None:
        for key in table:
            if key in allowed:
                continue
            if key in known:
                self._note((*place, key), f"does not belong to the kind {table.get('kind')!r}")
            else:
                self._note((*place, key), f"there is no such key{closest(key, allowed)}")

    def _note(self, place: Place, message: str) -> None:
        self.noted.append(Noted(place, message))
