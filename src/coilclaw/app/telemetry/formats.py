"""One record as one line: for people, or as JSON."""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.agent import visible
from coilclaw.kernel import MAX_INTEGER

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable, Iterable

    from coilclaw.kernel import Json

_DIM: Final = "\x1b[2m"
_YELLOW: Final = "\x1b[33m"
_RED: Final = "\x1b[31m"
_RESET: Final = "\x1b[0m"
_WARNING: Final = 30
_ERROR: Final = 40
_MAX_CHAIN: Final = 8


def json_line(record: logging.LogRecord, redact: Callable[[str], str]) -> str:
    """Return a record as one line of ASCII JSON."""
    import json

    line = _json_fields(record, Plainer(redact))
    text = json.dumps(line)
    if redact(text) == text:
        return text
    # A secret in parts that only look harmless one by one: then no structure is kept.
    kept = {key: line[key] for key in ("time", "level")}
    return json.dumps({**kept, "logger": "coilclaw", "event": None, "message": redact(text)})


def _json_fields(record: logging.LogRecord, plain: Plainer) -> dict[str, Json]:
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    line: dict[str, Json] = {
        "time": f"{moment}.{int(record.msecs):03d}Z",
        "level": record.levelname.lower(),
        "logger": plain.text(record.name),
        "event": plain.value(getattr(record, "event", None)),
        "message": plain.text(message_of(record)),
    }
    if problem := _traceback(record):
        line["exception"] = plain.text(problem)
    if record.stack_info:
        line["stack"] = plain.text(record.stack_info)
    fields = plain.value(getattr(record, "fields", None) or {})
    for name, value in fields.items() if isinstance(fields, dict) else [("fields", fields)]:
        line[f"field_{name}" if name in line else name] = value
    return line


def human_line(record: logging.LogRecord, redact: Callable[[str], str], *, colour: bool) -> str:
    """Return a record as one line for people; nothing in it can look like another line."""
    words = [time.strftime("%H:%M:%S", time.localtime(record.created))]
    if record.levelno >= _WARNING:
        words.append(f"{record.levelname.lower()}:")
    plain = Plainer(redact)
    message = plain.text(message_of(record))
    words += [visible(message), *_shown_fields(plain, getattr(record, "fields", None), message)]
    if record.exc_info and record.exc_info[1] is not None:
        words.append(f"({visible(plain.text(_chain(record.exc_info[1])))})")
    line = redact(" ".join(words))
    if not line.isprintable():
        line = visible(line)
    if not colour:
        return line
    style = _DIM if record.levelno < _WARNING else _YELLOW if record.levelno < _ERROR else _RED
    return f"{style}{line}{_RESET}"


def message_of(record: logging.LogRecord) -> str:
    """Return the message with its arguments, also where the two do not fit."""
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001 - a wrong message is still told, and stops nobody
        return f"{Plainer(str).text(record.msg)} {Plainer(str).text(record.args)}"


def _shown_fields(plain: Plainer, fields: object, message: str) -> list[str]:
    """Return ``name=value`` for what the message does not say itself."""
    values = plain.value(fields or {})
    if not isinstance(values, dict):
        values = {"fields": values}
    said = message.split()
    shown = []
    for name, value in values.items():
        text = value if isinstance(value, str) else _compact(value)
        if text not in said:
            quoted = text == "" or any(char in ' ="' for char in text)
            shown.append(f"{visible(name)}={visible(_compact(text) if quoted else text)}")
    return shown


def _compact(value: Json) -> str:
    import json

    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _traceback(record: logging.LogRecord) -> str | None:
    if record.exc_info and record.exc_info[1] is not None:
        return "".join(traceback.format_exception(*record.exc_info))
    return record.exc_text


def _chain(problem: BaseException) -> str:
    """Name an exception and those that it came from, each in a few words."""
    named: list[str] = []
    seen: BaseException | None = problem
    while seen is not None and len(named) < _MAX_CHAIN:
        named.append("".join(traceback.format_exception_only(seen)).strip())
        seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)
    return " <- ".join(named)


MAX_TEXT: Final = 8192
"""Characters of one string in a log record."""
MAX_ITEMS: Final = 100
"""Entries of one list or object in a log record."""
MAX_DEPTH: Final = 6


@dataclass(frozen=True, slots=True)
class Plainer:
    """Turns anything into JSON without secrets; never fails."""

    redact: Callable[[str], str]

    def text(self, value: object) -> str:
        """Return a value as redacted text."""
        clean = self.redact(_text(value))
        if len(clean) > MAX_TEXT:
            return f"{clean[:MAX_TEXT]}… {len(clean) - MAX_TEXT} more characters"
        return clean

    def value(self, value: object, depth: int = MAX_DEPTH) -> Json:
        """Return a value as JSON, every string and key of it redacted."""
        if value is None or isinstance(value, bool):
            return value
        if type(value) is int or type(value) is float:
            return self._number(value)
        if isinstance(value, Mapping) and depth:
            return self._object(value, depth - 1)
        if isinstance(value, list | tuple | AbstractSet) and depth:
            return self._array(value, depth - 1)
        return self.text(value)

    def _number(self, value: int | float) -> Json:  # noqa: PYI041 - both are meant
        text = _text(value)
        clean = self.redact(text)
        exact = abs(value) <= MAX_INTEGER if isinstance(value, int) else math.isfinite(value)
        return value if exact and clean == text else clean

    def _object(self, value: Mapping[object, object], depth: int) -> Json:
        cleaned: dict[str, Json] = {}
        for number, (key, item) in enumerate(value.items()):
            if number == MAX_ITEMS:
                cleaned["…"] = f"{len(value) - MAX_ITEMS} more"
                break
            name = base = self.text(key)
            count = 1
            while name in cleaned:
                count += 1
                name = f"{base} ({count})"
            cleaned[name] = self.value(item, depth)
        return cleaned

    def _array(self, value: Iterable[object], depth: int) -> Json:
        items = list(value)
        cleaned = [self.value(item, depth) for item in items[:MAX_ITEMS]]
        return [*cleaned, f"… {len(items) - MAX_ITEMS} more"] if items[MAX_ITEMS:] else cleaned


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).decode("utf-8", "backslashreplace")
    try:
        return str(value)
    except Exception as problem:  # noqa: BLE001 - a value that cannot be told is no reason to stop
        return f"[{type(value).__name__} that cannot be shown: {type(problem).__name__}]"
