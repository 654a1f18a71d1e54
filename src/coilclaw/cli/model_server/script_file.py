"""Read a script from JSON, and report every problem at once."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final, cast

from coilclaw.cli.model_server.script import (
    DEFAULT_MODEL,
    Action,
    CallTool,
    Counts,
    Cut,
    DialectName,
    ErrorBody,
    Fault,
    Hang,
    Malformed,
    ModelScript,
    RunShell,
    ScriptedAnswer,
    ScriptedWrite,
    ScriptPlace,
    Slow,
    Stop,
    When,
)
from coilclaw.kernel import (
    MAX_PROBLEMS,
    Document,
    EnvironmentFault,
    JsonFault,
    Problem,
    Secret,
    UsageError,
    describe_type,
    read_json,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from coilclaw.kernel import Json, Table
    from coilclaw.kernel import document as documents

MAX_SCRIPT_BYTES: Final = 64 * 2**20
MAX_DEPTH: Final = 128
MAX_ANSWERS: Final = 10_000
MAX_ITEMS: Final = 1_000
"""Of every other list."""
MAX_TOKENS: Final = 2**53 - 1
MAX_SECONDS: Final = 3600.0
MAX_BYTES: Final = 2**30
MAX_EVENTS: Final = 1_000_000
MAX_SHOWN_PROBLEMS: Final = MAX_PROBLEMS
DEFAULT_HUGE_BYTES: Final = 64 * 2**20

_END: Final = "(the script has no further answer)"
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_CALLS: Final = ("tool_calls", "shell", "write")
_SPEECH: Final = ("text", "reasoning", *_CALLS, "stop", "stop_as", "usage")
_UNSENT: Final = "is never sent, because hang without a place sends nothing"
_NOT_MODIFIED: Final = 304
# These decide where a body ends, which only the server knows.
_FRAMING: Final = frozenset({"content-length", "transfer-encoding", "connection", "trailer"})
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE: Final = re.compile(r"(?:[\x21-\x7e\x80-\xff](?:[\t\x20-\x7e\x80-\xff]*))?")


def parse_script(data: bytes) -> ModelScript | tuple[Problem, ...]:
    """Read a script; return it, or all its problems."""
    if len(data) > MAX_SCRIPT_BYTES:
        return (Problem("$", f"is larger than {MAX_SCRIPT_BYTES} bytes"),)
    try:
        value = read_json(data.removeprefix(_BYTE_ORDER_MARK), max_depth=MAX_DEPTH)
    except JsonFault as fault:
        return (Problem("$", str(fault)),)
    document = Document(root="$")
    script = _read_script(document, value)
    found = document.problems
    if len(found) == MAX_PROBLEMS:
        found = (*found[:-1], Problem("$", "has more problems than these"))
    return found or script


def load_script(path: Path) -> ModelScript | tuple[Problem, ...]:
    """Read a script file; raise if it does not exist or cannot be read."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_SCRIPT_BYTES + 1)
    except (FileNotFoundError, IsADirectoryError) as problem:
        raise UsageError(f"the script {path} does not exist", rule="script.missing") from problem
    except OSError as problem:
        raise EnvironmentFault(
            f"cannot read the script {path}: {problem.strerror or problem}", rule="script.io"
        ) from problem
    return parse_script(data)


def make_script(value: object) -> ModelScript:
    """Return the script in a JSON value; raise ``UsageError`` if it has problems."""
    found = parse_script(json.dumps(value).encode())
    if isinstance(found, ModelScript):
        return found
    raise UsageError(
        f"the script has problems: {'; '.join(map(str, found))}", rule="script.invalid"
    )


def _read_script(document: Document, value: object) -> ModelScript:
    if isinstance(value, list):
        return ModelScript(answers=_read_answers(document, value, (), stateful=False))
    table = document.table(value)
    stateful = table.flag("stateful")
    if isinstance(value, dict) and ("answers" in table) == ("turns" in table):
        document.note((), "needs either answers or turns")
    answers: tuple[ScriptedAnswer, ...] = ()
    turns = None
    if "answers" in table:
        listed = table.take("answers")
        answers = _read_answers(document, listed, ("answers",), stateful=stateful)
    if "turns" in table:
        turns = tuple(
            _read_answers(document, item, place, stateful=stateful)
            for place, item in table.items("turns", most=MAX_ANSWERS)
        )
    key = table.text("require_key")
    script = ModelScript(
        answers=answers,
        turns=turns,
        models=table.texts("models", most=MAX_ITEMS) or (DEFAULT_MODEL,),
        otherwise=_read_otherwise(table),
        stateful=stateful,
        require_key=Secret(key) if key else None,
        context_prefixes=table.texts("context_prefixes", most=MAX_ITEMS),
    )
    table.refuse_unknown()
    return script


def _read_answers(
    document: Document, value: object, place: documents.DocumentPlace, *, stateful: bool
) -> tuple[ScriptedAnswer, ...]:
    if not isinstance(value, list):
        document.note(place, f"must be a list, not {describe_type(value)}")
        return ()
    if len(value) > MAX_ANSWERS:
        document.note(place, f"has {len(value)} items; at most {MAX_ANSWERS} are allowed")
        return ()
    items = [((*place, index), item) for index, item in enumerate(value)]
    tables = _find_objects(document, items)
    return tuple(_read_answer(table, stateful=stateful) for table in tables)


def _find_objects(
    document: Document, items: Iterable[tuple[documents.DocumentPlace, object]]
) -> Iterator[Table]:
    """Yield the items that are objects; note the others as problems."""
    for place, item in items:
        table = document.table(item, place)
        if isinstance(item, dict):
            yield table


def _read_otherwise(table: Table) -> ScriptedAnswer | None:
    strict = _read_flag(table, "strict")
    if table.take("otherwise") is None and "otherwise" not in table:
        return ScriptedAnswer("$.otherwise", text=_END) if strict is False else None
    if strict:
        table.note("otherwise", "is never played by a script that is strict")
    # An answer past the end is not counted, so no faults can precede it.
    return _read_answer(table.table("otherwise"), past_end=True)


def _read_answer(table: Table, *, stateful: bool = False, past_end: bool = False) -> ScriptedAnswer:
    if not table.values.keys() - {"when", "faults", "headers"}:
        _note(table, "says nothing: give it text, tool_calls or a fault")
    stop = table.choice("stop", None, Stop)
    answer = ScriptedAnswer(
        path=table.document.name(table.place),
        text=table.text("text", None, blank=True),
        reasoning=table.text("reasoning", None, blank=True),
        actions=_read_actions(table),
        stop=Stop(stop) if stop else None,
        stop_as=table.text("stop_as", None),
        usage=_read_counts(table.table("usage")),
        when=When() if past_end else _read_when(table),
        fault=_read_fault(table),
        faults=() if past_end else _read_faults(table, stateful=stateful),
    )
    table.refuse_unknown()
    said = [name for name in sorted(_SPEECH) if name in table]
    if "status" in table:
        for name in said:
            table.note(name, "is never sent beside a status")
    elif answer.fault.hang is not None and answer.fault.hang.place is None:
        for name in said:
            table.note(name, _UNSENT)
    if "stop" in table and "stop_as" in table:
        table.note("stop_as", "and stop exclude each other")
    if answer.stop is Stop.TOOL_CALLS and not any(name in table for name in _CALLS):
        table.note("stop", "is tool_calls, but the answer calls no tool")
    return answer


def _read_actions(table: Table) -> tuple[Action, ...]:
    document, calls = table.document, table.items("tool_calls", most=MAX_ITEMS)
    found: list[Action | None] = [_read_call(inner) for inner in _find_objects(document, calls)]
    for place, command in _one_or_many(table, "shell"):
        if isinstance(command, str):
            found.append(RunShell(command))
        else:
            message = f"must be the text of a command, not {describe_type(command)}"
            document.note(place, message)
    for inner in _find_objects(document, _one_or_many(table, "write")):
        path = inner.text("path", None, required=True)
        content = inner.text("content", None, required=True, blank=True)
        inner.refuse_unknown()
        found.append(None if path is None or content is None else ScriptedWrite(path, content))
    return tuple(action for action in found if action is not None)


def _read_call(table: Table) -> CallTool | None:
    name = table.text("name", required=True)
    arguments = table.table("arguments").values
    if "arguments" in table and "input" in table:
        table.note("input", "is for freeform tools, and arguments for all others: give one")
    freeform, call_id = table.text("input", None, blank=True), table.text("id", None)
    table.refuse_unknown()
    return CallTool(name, cast("dict[str, Json]", arguments), freeform, call_id) if name else None


def _read_counts(table: Table) -> Counts:
    counts = Counts(
        input=table.integer("input", None, least=0, most=MAX_TOKENS),
        output=table.integer("output", None, least=0, most=MAX_TOKENS),
        cached=table.integer("cached", 0, least=0, most=MAX_TOKENS),
        reasoning=table.integer("reasoning", 0, least=0, most=MAX_TOKENS),
    )
    table.refuse_unknown()
    return counts


def _read_when(table: Table) -> When:
    if not isinstance(table.take("when"), dict):
        return When(prompt=_read_substrings(table, "when"))
    when = table.table("when")
    dialect = when.choice("dialect", None, DialectName)
    found = When(
        prompt=_read_substrings(when, "prompt"),
        system=_read_substrings(when, "system"),
        model=when.text("model", None),
        dialect=DialectName(dialect) if dialect else None,
        stream=_read_flag(when, "stream"),
        headers=tuple((name.lower(), text) for name, text in when.pairs("headers").items()),
    )
    when.refuse_unknown()
    return found


def _read_substrings(table: Table, key: str) -> tuple[str, ...]:
    """Return one text, or a list of texts that must all occur."""
    value = table.take(key)
    if isinstance(value, list) or key not in table:
        return table.texts(key, most=MAX_ITEMS)
    one = table.text(key)
    return (one,) if one else ()


def _read_faults(table: Table, *, stateful: bool) -> tuple[Fault, ...]:
    if "faults" in table and not stateful:
        wrong = "needs a script that is stateful, because a retry repeats the request"
        table.note("faults", wrong)
    found = []
    items = table.items("faults", most=MAX_ITEMS)
    for inner in _find_objects(table.document, items):
        if not inner.values.keys() - {"headers"}:
            _note(inner, "names no fault")
        found.append(_read_fault(inner))
        inner.refuse_unknown()
    return tuple(found)


def _read_fault(table: Table) -> Fault:
    """Read the fault fields of an answer, and note those that exclude each other."""
    malformed = table.choice("malformed", None, Malformed)
    fault = Fault(
        headers=_read_headers(table),
        status=table.integer("status", None, least=300, most=599),
        body=_read_body(table),
        retry_after=_read_retry_after(table),
        sleep_s=table.number("sleep", 0.0, least=0, most=MAX_SECONDS),
        hang=_read_hang(table),
        cut=_read_cut(table),
        slow=_read_slow(table),
        malformed=Malformed(malformed) if malformed else None,
        size=table.integer("size", DEFAULT_HUGE_BYTES, least=1, most=MAX_BYTES),
    )
    if fault.status == _NOT_MODIFIED:
        table.note("status", "304 has no body, and no model answers with it")
    for name in ("body", "retry_after"):
        if name in table and "status" not in table:
            table.note(name, "needs a status")
    if "size" in table and fault.malformed is not Malformed.HUGE:
        table.note("size", "needs malformed to be huge")
    if "cut" in table and "hang" in table:
        table.note("cut", "and hang exclude each other")
    for name in ("status", "cut", "hang"):
        if name in table and "malformed" in table:
            table.note("malformed", f"and {name} exclude each other")
    if fault.hang is not None and fault.hang.place is None:
        for name in ("status", "slow", "headers"):
            if name in table:
                table.note(name, _UNSENT)
    return fault


def _read_body(table: Table) -> ErrorBody | None:
    value = table.take("body")
    if "body" not in table:
        return None
    if isinstance(value, str):
        return ErrorBody(value.encode("utf-8", "replace"), "text/plain; charset=utf-8")
    return ErrorBody(json.dumps(value).encode(), "application/json")


def _read_retry_after(table: Table) -> str | None:
    """Return seconds or a date, as the header ``retry-after`` has it."""
    value = table.take("retry_after")
    if isinstance(value, str):
        if value and _HEADER_VALUE.fullmatch(value):
            return value
        table.note("retry_after", "is not what a header can hold")
        return None
    seconds = table.number("retry_after", None, least=0, most=MAX_SECONDS)
    return None if seconds is None else f"{seconds:g}"


def _read_hang(table: Table) -> Hang | None:
    value = table.take("hang")
    if "hang" not in table:
        return None
    if isinstance(value, dict):
        inner = table.table("hang")
        seconds = inner.number("seconds", None, least=0, most=MAX_SECONDS)
        return Hang(seconds, _read_place(inner))
    if value is not True and (isinstance(value, bool | str | list) or value is None):
        table.note("hang", "must be true, a number of seconds or an object")
        return None
    if value is True:
        return Hang()
    return Hang(table.number("hang", None, least=0, most=MAX_SECONDS))


def _read_cut(table: Table) -> Cut | None:
    value = table.take("cut")
    if value is True:
        return Cut()
    if isinstance(value, dict):
        inner = table.table("cut")
        reset = inner.flag("reset")
        return Cut(_read_place(inner), reset)
    if "cut" in table:
        table.note("cut", "must be true or an object")
    return None


def _read_place(table: Table) -> ScriptPlace | None:
    place = ScriptPlace(
        table.integer("after_bytes", None, least=0, most=MAX_BYTES),
        table.integer("after_events", None, least=0, most=MAX_EVENTS),
    )
    if "after_bytes" in table and "after_events" in table:
        table.note("after_events", "and after_bytes exclude each other")
    table.refuse_unknown()
    return None if place == ScriptPlace() else place


def _read_slow(table: Table) -> Slow | None:
    if table.take("slow") is None and "slow" not in table:
        return None
    inner = table.table("slow")
    slow = Slow(
        inner.integer("bytes_per_second", None, least=1, most=MAX_BYTES),
        inner.number("delay_s", None, least=0, most=MAX_SECONDS),
    )
    inner.refuse_unknown()
    if isinstance(table.values["slow"], dict) and len(inner.values) != 1:
        _note(inner, "needs either bytes_per_second or delay_s")
    return slow


def _read_headers(table: Table) -> tuple[tuple[str, str], ...]:
    found = table.pairs("headers")
    for name, value in found.items():
        place = (*table.place, "headers", name)
        if not _HEADER_NAME.fullmatch(name):
            table.document.note(place, "is not the name of a header")
        elif name.lower() in _FRAMING:
            table.document.note(place, "is set by the server itself")
        if not _HEADER_VALUE.fullmatch(value):
            table.document.note(place, "holds a character that no header may hold")
    return tuple(found.items())


def _one_or_many(table: Table, key: str) -> list[tuple[documents.DocumentPlace, object]]:
    """Return the items of a list, or the one value given instead of a list."""
    value = table.take(key)
    if isinstance(value, list) or key not in table:
        return list(table.items(key, most=MAX_ITEMS))
    return [((*table.place, key), value)]


def _read_flag(table: Table, key: str) -> bool | None:
    """Return true or false, or ``None`` if the script does not set it."""
    value = table.flag(key)
    return value if key in table else None


def _note(table: Table, message: str) -> None:
    table.document.note(table.place, message)
