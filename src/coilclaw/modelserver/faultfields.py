"""The faults of a script: how they are read, and which of them exclude each other."""

from __future__ import annotations

import json
import re
from typing import Final

from coilclaw.modelserver.fields import Fields, Problem, below, kind, number
from coilclaw.modelserver.script import Cut, ErrorBody, Fault, Hang, Malformed, Place, Slow

MAX_SECONDS: Final = 3600.0
MAX_BYTES: Final = 2**30
MAX_EVENTS: Final = 1_000_000
DEFAULT_HUGE_BYTES: Final = 64 * 2**20

FAULT_FIELDS: Final = frozenset(
    {"status", "body", "retry_after", "headers", "sleep", "hang", "cut", "slow"}
    | {"malformed", "size"}
)
_PLACE_FIELDS: Final = frozenset({"after_bytes", "after_events"})
_LOWEST_STATUS: Final = 300
_HIGHEST_STATUS: Final = 599
_NOT_MODIFIED: Final = 304

# These decide where a body ends, which only the server can know.
_FRAMING: Final = frozenset({"content-length", "transfer-encoding", "connection", "trailer"})
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE: Final = re.compile(r"(?:[\x21-\x7e\x80-\xff](?:[\t\x20-\x7e\x80-\xff]*))?")


def read_fault(fields: Fields, problems: list[Problem]) -> Fault:
    """Read the fault fields of an answer, and note those that do not go together."""
    fault = Fault(
        headers=_headers(fields, problems),
        status=_status(fields),
        body=_body(fields),
        retry_after=_retry_after(fields, problems),
        sleep_s=fields.number("sleep", 0, MAX_SECONDS) or 0.0,
        hang=_hang(fields, problems),
        cut=_cut(fields, problems),
        slow=_slow(fields, problems),
        malformed=fields.word("malformed", Malformed),
        size=fields.integer("size", 1, MAX_BYTES) or DEFAULT_HUGE_BYTES,
    )
    _check(fault, fields)
    return fault


def _check(fault: Fault, fields: Fields) -> None:
    if "status" not in fields:
        for name in ("body", "retry_after"):
            if name in fields:
                fields.say(name, "needs a status")
    if "size" in fields and fault.malformed is not Malformed.HUGE:
        fields.say("size", "needs malformed to be huge")
    if "cut" in fields and "hang" in fields:
        fields.say("cut", "and hang exclude each other")
    for name in ("status", "cut", "hang"):
        if name in fields and "malformed" in fields:
            fields.say("malformed", f"and {name} exclude each other")
    if fault.hang is not None and fault.hang.place is None:
        for name in ("status", "slow", "headers"):
            if name in fields:
                fields.say(name, "is never sent, because hang without a place sends nothing")


def _status(fields: Fields) -> int | None:
    status = fields.integer("status", _LOWEST_STATUS, _HIGHEST_STATUS)
    if status == _NOT_MODIFIED:
        fields.say("status", "304 has no body, and no model answers with it")
    return status


def _body(fields: Fields) -> ErrorBody | None:
    if "body" not in fields:
        return None
    value = fields["body"]
    if isinstance(value, str):
        return ErrorBody(value.encode("utf-8", "replace"), "text/plain; charset=utf-8")
    return ErrorBody(json.dumps(value).encode(), "application/json")


def _retry_after(fields: Fields, problems: list[Problem]) -> str | None:
    """Return seconds or a date, as the header has it."""
    if "retry_after" not in fields:
        return None
    value = fields["retry_after"]
    if isinstance(value, str):
        if value and _HEADER_VALUE.fullmatch(value):
            return value
        fields.say("retry_after", "is not what a header can hold")
        return None
    seconds = number(value, fields.at("retry_after"), 0, MAX_SECONDS, problems)
    return None if seconds is None else f"{seconds:g}"


def _hang(fields: Fields, problems: list[Problem]) -> Hang | None:
    if "hang" not in fields:
        return None
    value, path = fields["hang"], fields.at("hang")
    if value is True:
        return Hang()
    if isinstance(value, bool | str | list) or value is None:
        fields.say("hang", f"must be true, a number of seconds or an object, not {kind(value)}")
        return None
    if not isinstance(value, dict):
        return Hang(number(value, path, 0, MAX_SECONDS, problems))
    inner = Fields(value, path, problems, _PLACE_FIELDS | {"seconds"})
    return Hang(inner.number("seconds", 0, MAX_SECONDS), _place(inner))


def _cut(fields: Fields, problems: list[Problem]) -> Cut | None:
    if "cut" not in fields:
        return None
    value, path = fields["cut"], fields.at("cut")
    if value is True:
        return Cut()
    if not isinstance(value, dict):
        fields.say("cut", f"must be true or an object, not {kind(value)}")
        return None
    inner = Fields(value, path, problems, _PLACE_FIELDS | {"reset"})
    return Cut(_place(inner), inner.flag("reset") or False)


def _place(fields: Fields) -> Place | None:
    place = Place(
        fields.integer("after_bytes", 0, MAX_BYTES), fields.integer("after_events", 0, MAX_EVENTS)
    )
    if "after_bytes" in fields and "after_events" in fields:
        fields.say("after_events", "and after_bytes exclude each other")
    return None if place == Place() else place


def _slow(fields: Fields, problems: list[Problem]) -> Slow | None:
    if "slow" not in fields:
        return None
    known = frozenset({"bytes_per_second", "delay_s"})
    inner = Fields(fields["slow"], fields.at("slow"), problems, known)
    slow = Slow(
        inner.integer("bytes_per_second", 1, MAX_BYTES), inner.number("delay_s", 0, MAX_SECONDS)
    )
    if isinstance(fields["slow"], dict) and ("delay_s" in inner) == ("bytes_per_second" in inner):
        inner.say(None, "needs either bytes_per_second or delay_s")
    return slow


def _headers(fields: Fields, problems: list[Problem]) -> tuple[tuple[str, str], ...]:
    found = fields.pairs("headers")
    for name, value in found:
        path = below(fields.at("headers"), name)
        if not _HEADER_NAME.fullmatch(name):
            problems.append(Problem(path, "is not the name of a header"))
        elif name.lower() in _FRAMING:
            problems.append(Problem(path, "is set by the server itself"))
        if not _HEADER_VALUE.fullmatch(value):
            problems.append(Problem(path, "holds a character that no header may hold"))
    return found
