"""``SOP.toml``, read: a SOP, or everything that can be said against it before tools are known."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from coilclaw.domain.canonical import digest
from coilclaw.errors import UsageError
from coilclaw.sop import conditions
from coilclaw.sop.document import (
    ITEM,
    KINDS,
    MAX_RETRIES,
    MAX_RETRY_DELAY_S,
    Kind,
    OnFailure,
    Sop,
    Stage,
)
from coilclaw.sop.inputs import MAX_ITEMS, TABLE, read_inputs
from coilclaw.sop.problem import Problem, closest, located
from coilclaw.sop.table_reader import TableReader

if TYPE_CHECKING:
    from coilclaw.domain.messages import Json
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
_TOP: Final = ("name", "description", "on_failure", TABLE, TABLES)
_EVERY: Final = ("id", "kind", "when", "for_each", "parallel")
_ACTING: Final = ("on_failure", "retry", "retry_delay_s")
_KEYS: Final[dict[Kind, tuple[str, ...]]] = {
    "tool": (*_EVERY, *_ACTING, "tool", "args"),
    "agent": (*_EVERY, *_ACTING, "prompt"),
    "approval": (*_EVERY, "prompt"),
}
_ALL_KEYS: Final = (*_EVERY, *_ACTING, "tool", "args", "prompt")


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


class _Reader(TableReader):
    """Reads the tables of a SOP, and notes what is wrong with them."""

    def sop(self, table: dict[str, object], name: str, text: str, sha: str) -> Sop:
        self.refuse_unknown((), table, _TOP, _TOP)
        said = self.take_text((), table, "name")
        if said and said != name:
            self.note(("name",), f"is {said!r}, and its folder is called {name!r}")
        description = self.take_text((), table, "description", required=False)
        default = self._on_failure((), table, OnFailure())
        inputs = read_inputs(self, table)
        stages = self._stages(table, default)
        self._refuse_taken_ids(stages, inputs=bool(inputs))
        return Sop(name, description, stages, text, sha, inputs)

    def _refuse_taken_ids(self, stages: tuple[Stage, ...], *, inputs: bool) -> None:
        """Note ids that something else is called by in this SOP."""
        loops = any(stage.for_each is not None for stage in stages)
        for stage in stages:
            if stage.id == TABLE and inputs:
                self.note((*stage.place, "id"), f"{TABLE!r} stands for the inputs here")
            if stage.id == ITEM and loops:
                self.note((*stage.place, "id"), f"{ITEM!r} stands for the item of a loop here")

    def _stages(self, table: dict[str, object], default: OnFailure) -> tuple[Stage, ...]:
        given = table.get(TABLES)
        if not isinstance(given, list) or not given:
            self.note((TABLES,), f"there is no stage; each begins with [[{TABLES}]]")
            return ()
        if len(given) > MAX_STAGES:
            self.note((TABLES,), f"there are {len(given)} stages; {MAX_STAGES} is the most")
            return ()
        found = []
        first: dict[str, int] = {}
        for index, one in enumerate(given):
            place: Place = (TABLES, index)
            if not isinstance(one, dict):
                self.note(place, "is no table")
                continue
            stage = self._stage(place, one, default)
            if stage.id in first:
                self.note((*place, "id"), f"{stage.id!r} is the id of stage {first[stage.id] + 1}")
            elif stage.id:
                first[stage.id] = index
            found.append(stage)
        return tuple(found)

    def _stage(self, place: Place, table: dict[str, object], default: OnFailure) -> Stage:
        name = self.take_text(place, table, "id")
        if name and not ID.fullmatch(name):
            self.note(
                (*place, "id"), f"{name!r} is no id: a letter, then letters, digits, '_' and '-'"
            )
        kind = self._kind(place, table)
        self.refuse_unknown(place, table, _ALL_KEYS if kind is None else _KEYS[kind], _ALL_KEYS)
        args = table.get("args", {})
        if kind == "tool" and not isinstance(args, dict):
            self.note((*place, "args"), "is no table")
        on_failure = self._on_failure(place, table, default)
        return Stage(
            name,
            kind or "tool",
            place,
            tool=self.take_text(place, table, "tool") if kind == "tool" else "",
            args=args if isinstance(args, dict) else {},
            prompt=self._prompt(place, table) if kind in {"agent", "approval"} else "",
            when=self._when(place, table),
            on_failure=on_failure,
            retries=self._retries(place, table, on_failure),
            retry_delay_s=self._retry_delay(place, table, on_failure),
            for_each=self._for_each(place, table),
            parallel=self.take_flag(place, table, "parallel"),
        )

    def _kind(self, place: Place, table: dict[str, object]) -> Kind | None:
        said = self.take_text(place, table, "kind")
        kind = next((one for one in KINDS if one == said), None)
        if said and kind is None:
            self.note(
                (*place, "kind"), f"{said!r} is none of {', '.join(KINDS)}{closest(said, KINDS)}"
            )
        return kind

    def _prompt(self, place: Place, table: dict[str, object]) -> str:
        prompt = self.take_text(place, table, "prompt")
        if len(prompt) > MAX_PROMPT_CHARS:
            self.note((*place, "prompt"), f"is longer than {MAX_PROMPT_CHARS} characters")
        return prompt

    def _when(self, place: Place, table: dict[str, object]) -> Condition | None:
        if "when" not in table:
            return None
        try:
            return conditions.parse(self.take_text(place, table, "when"))
        except UsageError as problem:
            self.note((*place, "when"), problem.message)
            return None

    def _on_failure(self, place: Place, table: dict[str, object], default: OnFailure) -> OnFailure:
        if "on_failure" not in table:
            return default
        said = self.take_text(place, table, "on_failure")
        if said in {"abort", "continue"}:
            return OnFailure("abort" if said == "abort" else "continue")
        found = _RETRY.fullmatch(said)
        if found and 1 <= int(found[1]) <= MAX_RETRIES:
            return OnFailure("retry", int(found[1]))
        if said:
            self.note(
                (*place, "on_failure"),
                f"{said!r} is none of abort, continue, retry(1) … retry({MAX_RETRIES})",
            )
        return default

    def _retries(self, place: Place, table: dict[str, object], on_failure: OnFailure) -> int:
        if "retry" not in table:
            return on_failure.times
        if "on_failure" in table and on_failure.what == "retry":
            self.note((*place, "retry"), f"on_failure says {on_failure} as well")
        found = self.take_number(place, table, "retry", least=1, most=MAX_RETRIES)
        if found != int(found):
            self.note((*place, "retry"), "is no whole number")
        return int(found)

    def _retry_delay(self, place: Place, table: dict[str, object], on_failure: OnFailure) -> float:
        if "retry_delay_s" in table and "retry" not in table and on_failure.what != "retry":
            self.note((*place, "retry_delay_s"), "nothing is retried here; add 'retry'")
        return self.take_number(place, table, "retry_delay_s", least=0, most=MAX_RETRY_DELAY_S)

    def _for_each(self, place: Place, table: dict[str, object]) -> tuple[Json, ...] | str | None:
        given = table.get("for_each")
        if given is None or (isinstance(given, str) and given.strip()):
            return given
        where = (*place, "for_each")
        if not isinstance(given, list) or not all(
            isinstance(item, str | int | float) for item in given
        ):
            self.note(where, "is neither a list of texts and numbers nor the name of a stage")
            return ()
        if len(given) > MAX_ITEMS:
            self.note(where, f"has {len(given)} items; {MAX_ITEMS} is the most")
        return tuple(given)
