"""One answer of a script: what it says, when it is eligible, and what does not go together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from coilclaw.modelserver.faultfields import FAULT_FIELDS, read_fault
from coilclaw.modelserver.fields import Fields, Problem, kind
from coilclaw.modelserver.script import (
    Action,
    Answer,
    CallTool,
    Counts,
    DialectName,
    Fault,
    RunShell,
    Stop,
    When,
    WriteFile,
)

if TYPE_CHECKING:
    from coilclaw.domain.messages import Json

MAX_ACTIONS: Final = 1_000
MAX_FAULTS: Final = 1_000
MAX_SUBSTRINGS: Final = 1_000
MAX_TOKENS: Final = 2**53 - 1

SPEECH_FIELDS: Final = frozenset(
    {"text", "reasoning", "tool_calls", "shell", "write", "stop", "stop_as", "usage"}
)
ANSWER_FIELDS: Final = SPEECH_FIELDS | FAULT_FIELDS | {"when", "faults"}
WHEN_FIELDS: Final = frozenset({"prompt", "system", "model", "dialect", "stream", "headers"})


def read_answer(
    value: object,
    path: str,
    problems: list[Problem],
    *,
    stateful: bool,
    known: frozenset[str] = ANSWER_FIELDS,
) -> Answer:
    """Read one answer, and note what is wrong with it."""
    fields = Fields(value, path, problems, known)
    if isinstance(value, dict) and not value.keys() - {"when", "faults", "headers"}:
        fields.say(None, "says nothing: give it text, tool_calls or a fault")
    answer = Answer(
        path=path,
        text=fields.text("text"),
        reasoning=fields.text("reasoning"),
        actions=_actions(fields, problems),
        stop=fields.word("stop", Stop),
        stop_as=fields.text("stop_as", empty=False),
        usage=_usage(fields, problems),
        when=_when(fields, problems),
        fault=read_fault(fields, problems),
        faults=_faults(fields, problems),
    )
    if "faults" in fields and not stateful:
        fields.say("faults", "needs a script that is stateful, because a retry repeats the request")
    _check(answer, fields)
    return answer


def _check(answer: Answer, fields: Fields) -> None:
    said = [name for name in sorted(SPEECH_FIELDS) if name in fields]
    if "status" in fields:
        for name in said:
            fields.say(name, "is never sent beside a status")
    elif answer.fault.hang is not None and answer.fault.hang.place is None:
        for name in said:
            fields.say(name, "is never sent, because hang without a place sends nothing")
    if "stop" in fields and "stop_as" in fields:
        fields.say("stop_as", "and stop exclude each other")
    calls = ("tool_calls", "shell", "write")
    if answer.stop is Stop.TOOL_CALLS and not any(name in fields for name in calls):
        fields.say("stop", "is tool_calls, but the answer calls no tool")


def _actions(fields: Fields, problems: list[Problem]) -> tuple[Action, ...]:
    calls = [_call(item, path, problems) for item, path in fields.items("tool_calls", MAX_ACTIONS)]
    shells = fields.one_or_many("shell", MAX_ACTIONS)
    writes = fields.one_or_many("write", MAX_ACTIONS)
    found = [
        *calls,
        *(_shell(item, path, problems) for item, path in shells),
        *(_write(item, path, problems) for item, path in writes),
    ]
    return tuple(action for action in found if action is not None)


def _call(value: object, path: str, problems: list[Problem]) -> CallTool | None:
    fields = Fields(value, path, problems, frozenset({"name", "arguments", "input", "id"}))
    name = fields.text("name", empty=False)
    if isinstance(value, dict) and "name" not in fields:
        fields.say(None, "needs a name")
    arguments = fields.get("arguments", {})
    if not isinstance(arguments, dict):
        fields.say("arguments", f"must be an object, not {kind(arguments)}")
    if "arguments" in fields and "input" in fields:
        fields.say("input", "is for freeform tools, and arguments for all others: give one")
    freeform, call_id = fields.text("input"), fields.text("id", empty=False)
    if name is None or not isinstance(arguments, dict):
        return None
    return CallTool(name, cast("dict[str, Json]", arguments), freeform, call_id)


def _shell(value: object, path: str, problems: list[Problem]) -> RunShell | None:
    if isinstance(value, str):
        return RunShell(value)
    problems.append(Problem(path, f"must be the text of a command, not {kind(value)}"))
    return None


def _write(value: object, path: str, problems: list[Problem]) -> WriteFile | None:
    fields = Fields(value, path, problems, frozenset({"path", "content"}))
    name, content = fields.text("path", empty=False), fields.text("content")
    if isinstance(value, dict):
        for key in ("path", "content"):
            if key not in fields:
                fields.say(None, f"needs {key}")
    return None if name is None or content is None else WriteFile(name, content)


def _usage(fields: Fields, problems: list[Problem]) -> Counts:
    if "usage" not in fields:
        return Counts()
    known = frozenset({"input", "output", "cached", "reasoning"})
    counts = Fields(fields["usage"], fields.at("usage"), problems, known)
    return Counts(
        input=counts.integer("input", 0, MAX_TOKENS),
        output=counts.integer("output", 0, MAX_TOKENS),
        cached=counts.integer("cached", 0, MAX_TOKENS) or 0,
        reasoning=counts.integer("reasoning", 0, MAX_TOKENS) or 0,
    )


def _when(fields: Fields, problems: list[Problem]) -> When:
    if "when" not in fields:
        return When()
    if not isinstance(fields["when"], dict):
        return When(prompt=_substrings(fields, "when", problems))
    when = Fields(fields["when"], fields.at("when"), problems, WHEN_FIELDS)
    return When(
        prompt=_substrings(when, "prompt", problems),
        system=_substrings(when, "system", problems),
        model=when.text("model", empty=False),
        dialect=when.word("dialect", DialectName),
        stream=when.flag("stream"),
        headers=tuple((name.lower(), text) for name, text in when.pairs("headers")),
    )


def _substrings(fields: Fields, key: str, problems: list[Problem]) -> tuple[str, ...]:
    """Return one text, or a list of texts all of which must occur."""
    found = []
    for item, path in fields.one_or_many(key, MAX_SUBSTRINGS):
        if isinstance(item, str) and item:
            found.append(item)
        else:
            wrong = "must not be empty" if item == "" else f"must be text, not {kind(item)}"
            problems.append(Problem(path, wrong))
    return tuple(found)


def _faults(fields: Fields, problems: list[Problem]) -> tuple[Fault, ...]:
    found = []
    for item, path in fields.items("faults", MAX_FAULTS):
        inner = Fields(item, path, problems, FAULT_FIELDS)
        if isinstance(item, dict) and not item.keys() - {"headers"}:
            inner.say(None, "names no fault")
        found.append(read_fault(inner, problems))
    return tuple(found)
