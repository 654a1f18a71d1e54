"""The fixture of the mock provider: a JSON list of answers, checked as a whole.

Each answer is one of

    {"text": "…"}
    {"tool_calls": [{"name": "…", "arguments": {…}, "id": "…"}], "text": "…"}
    {"error": "timeout" | "network" | "auth"}

and may have ``delay_s``, how long it takes, and ``when``, a part of the last user message that it
is for. ``id`` and the ``text`` beside calls may be left out. ``arguments`` may also be a string,
which is read as the text that a model sent: broken JSON becomes the problem of the call.

In ``text``, and in the strings of ``arguments``, ``{{tool_output}}`` stands for what the last tool
returned and ``{{user_message}}`` for the last user message. Everything else is taken as it is,
and what was put in is not looked through again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from coilclaw.errors import UsageError
from coilclaw.providers.jsonvalue import Doubled, loads, shortened

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from coilclaw.domain.messages import Json

Failure: TypeAlias = Literal["timeout", "network", "auth"]
FAILURES: Final[Mapping[str, Failure]] = {name: name for name in get_args(Failure)}

MAX_FIXTURE_BYTES: Final = 16 * 2**20
MAX_ANSWERS: Final = 10_000
MAX_DELAY_S: Final = 3600.0
MAX_PROBLEMS: Final = 50

_ANSWER_KEYS: Final = ("text", "tool_calls", "error", "delay_s", "when")
_CALL_KEYS: Final = ("name", "arguments", "id")


@dataclass(frozen=True, slots=True)
class ScriptedCall:
    """One call of an answer."""

    name: str
    arguments: dict[str, Json] | str
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Scripted:
    """One answer of a fixture."""

    text: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    error: Failure | None = None
    delay_s: float = 0.0
    when: str | None = None

    def fits(self, message: str) -> bool:
        """Whether the answer is for a message."""
        return self.when is None or self.when in message


def load(path: Path) -> tuple[Scripted, ...]:
    """Read a fixture; everything that is wrong with it is one ``UsageError``."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_FIXTURE_BYTES + 1)
    except OSError as problem:
        raise _wrong(path, [f"cannot be read: {problem.strerror}"]) from problem
    if len(raw) > MAX_FIXTURE_BYTES:
        raise _wrong(path, [f"is larger than {MAX_FIXTURE_BYTES:,} bytes"])
    try:
        value = loads(raw)
    except (ValueError, RecursionError) as problem:
        raise _wrong(path, [f"is no JSON: {problem}"]) from problem
    answers, problems = parse(value)
    if problems:
        raise _wrong(path, problems)
    return answers


def parse(value: Json) -> tuple[tuple[Scripted, ...], list[str]]:
    """Read a fixture's JSON value: the answers, and everything that is wrong."""
    if not isinstance(value, list):
        return (), ["is no list of answers"]
    if len(value) > MAX_ANSWERS:
        return (), [f"has more than {MAX_ANSWERS:,} answers"]
    problems: list[str] = []
    answers = tuple(
        _answer(item, _Place(f"answer {number}", problems))
        for number, item in enumerate(value, start=1)
    )
    return answers, problems


class _Place:
    """Where in the fixture something is wrong."""

    def __init__(self, name: str, problems: list[str]) -> None:
        self.name, self._problems = name, problems

    def wrong(self, what: str) -> None:
        self._problems.append(f"{self.name} {what}")

    def within(self, name: str) -> _Place:
        return _Place(f"{self.name}, {name}", self._problems)


def _answer(value: Json, place: _Place) -> Scripted:
    fields = _object(value, _ANSWER_KEYS, place)
    if fields is None:
        return Scripted()
    if not {"text", "tool_calls", "error"} & set(fields):
        place.wrong("has none of 'text', 'tool_calls' and 'error'")
    if "error" in fields and {"text", "tool_calls"} & set(fields):
        place.wrong("has an 'error' and an answer beside it")
    named = fields.get("error")
    error = FAILURES.get(named) if isinstance(named, str) else None
    if "error" in fields and error is None:
        place.wrong(f"has an 'error' that is none of {', '.join(FAILURES)}")
    calls = fields.get("tool_calls", [])
    if not isinstance(calls, list) or ("tool_calls" in fields and not calls):
        place.wrong("has 'tool_calls' that are no list, or an empty one")
        calls = []
    return Scripted(
        text=_text(fields, "text", place) or "",
        calls=tuple(
            _call(item, place.within(f"call {number}")) for number, item in enumerate(calls, 1)
        ),
        error=error,
        delay_s=_seconds(fields.get("delay_s", 0), place),
        when=_text(fields, "when", place),
    )


def _call(value: Json, place: _Place) -> ScriptedCall:
    fields = _object(value, _CALL_KEYS, place)
    if fields is None:
        return ScriptedCall("", {})
    if "name" not in fields:
        place.wrong("has no 'name'")
    arguments = fields.get("arguments", {})
    if not isinstance(arguments, dict | str):
        place.wrong("has 'arguments' that are no object and no text")
        arguments = {}
    return ScriptedCall(_text(fields, "name", place) or "", arguments, _text(fields, "id", place))


def _object(value: Json, known: tuple[str, ...], place: _Place) -> dict[str, Json] | None:
    if not isinstance(value, dict):
        place.wrong("is no object")
        return None
    if isinstance(value, Doubled):
        place.wrong(f"has the key {shortened(value.key)} twice")
    for key in value:
        if key not in known:
            place.wrong(f"has the unknown key {shortened(key)}; known are {', '.join(known)}")
    return value


def _text(fields: dict[str, Json], key: str, place: _Place) -> str | None:
    value = fields.get(key)
    if key in fields and not isinstance(value, str):
        place.wrong(f"has a {key!r} that is no text")
        return None
    return value if isinstance(value, str) else None


def _seconds(value: Json, place: _Place) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= float(str(value)) <= MAX_DELAY_S:
        place.wrong(f"has a 'delay_s' that is no number from 0 to {MAX_DELAY_S:g}")
        return 0.0
    return float(str(value))


def _wrong(path: Path, problems: list[str]) -> UsageError:
    shown = problems[:MAX_PROBLEMS]
    if len(problems) > MAX_PROBLEMS:
        shown.append(f"and {len(problems) - MAX_PROBLEMS} more problems")
    return UsageError(f"the fixture {path}: {'; '.join(shown)}", rule="provider.fixture")
