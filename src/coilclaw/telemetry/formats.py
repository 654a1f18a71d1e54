"""One record as one line: for people, or as JSON."""

from __future__ import annotations

import time
import traceback
from typing import TYPE_CHECKING, Final, TypeVar

from coilclaw.channels.visible import visible
from coilclaw.telemetry.plain import Plainer

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable

    from coilclaw.domain.messages import Json

_DIM: Final = "\x1b[2m"
_YELLOW: Final = "\x1b[33m"
_RED: Final = "\x1b[31m"
_RESET: Final = "\x1b[0m"
_WARNING: Final = 30
_ERROR: Final = 40
_MAX_CHAIN: Final = 8
_BETWEEN: Final = "\n|\n"
"""Nothing of a secret goes on behind it, and no escape before it reaches across."""

_Formed = TypeVar("_Formed")


def json_line(record: logging.LogRecord, redact: Callable[[str], str]) -> str:
    """Return a record as one line of ASCII JSON."""
    import json

    line = _clean(record, redact, _json_fields)
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
    words += _clean(record, redact, _human_words)
    line = redact(" ".join(words))
    if not line.isprintable():
        line = visible(line)
    if not colour:
        return line
    style = _DIM if record.levelno < _WARNING else _YELLOW if record.levelno < _ERROR else _RED
    return f"{style}{line}{_RESET}"


def _human_words(record: logging.LogRecord, plain: Plainer) -> list[str]:
    message = plain.text(message_of(record))
    words = [visible(message), *_shown_fields(plain, getattr(record, "fields", None), message)]
    if record.exc_info and record.exc_info[1] is not None:
        words.append(f"({visible(plain.text(_chain(record.exc_info[1])))})")
    return words


def _clean(
    record: logging.LogRecord,
    redact: Callable[[str], str],
    form: Callable[[logging.LogRecord, Plainer], _Formed],
) -> _Formed:
    """Form a record without secrets; nearly always all of its texts are looked at together."""
    texts: list[str] = []

    def noted(text: str) -> str:
        texts.append(text)
        return text

    formed = form(record, Plainer(noted))
    together = _BETWEEN.join(texts)
    return formed if redact(together) == together else form(record, Plainer(redact))


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
