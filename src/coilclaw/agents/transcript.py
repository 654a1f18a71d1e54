"""The record of a performance, from its parts: events, a readable transcript, tool calls.

Pure: times come in, texts go out. Secrets are taken out by whoever writes the texts.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.agents.shellpolicy import REFUSED_EXIT_CODE
from coilclaw.domain import freeform
from coilclaw.domain.canonical import digest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from coilclaw.agents.runner import Ending
    from coilclaw.domain.messages import Json, Usage
    from coilclaw.domain.parts import Part

EVENTS: Final = "events.jsonl"
TRANSCRIPT: Final = "transcript.md"
THREAD_ID: Final = "thread_id.txt"
MAX_SHOWN_CHARS: Final = 20_000
"""How much of one output the transcript shows; the events have all of it."""
_TOOLS: Final = frozenset({"tool", "tool_use", "patch"})


@dataclass(frozen=True, slots=True)
class Timed:
    """A part and when it was complete, in UTC (RFC 3339)."""

    at: str
    part: Part
    duration_ms: int | None = None
    """Since the part before; how long a tool took cannot be told more exactly from outside."""


def event(timed: Timed, number: int) -> str:
    """Return one line of ``events.jsonl``: the part whole, in RFC 8785."""
    part = timed.part
    record: dict[str, Json] = {"seq": number, "ts": timed.at, "type": part.kind}
    for name, value in (
        ("text", part.text),
        ("tool", part.tool),
        ("call_id", part.call_id),
        ("input", part.input),
        ("output", part.output),
        ("item_type", part.item_type),
        ("raw", part.raw),
    ):
        if value:
            record[name] = _valid(value)
    if part.exit_code is not None:
        record["exit_code"] = part.exit_code
    if part.files:
        record["files"] = [_valid(path) for path in part.files]
    if part.usage is not None:
        record["usage"] = usage_json(part.usage)
    if timed.duration_ms is not None:
        record["duration_ms"] = timed.duration_ms
    return freeform.text(record) + "\n"


def events(parts: Iterable[Timed]) -> str:
    """Return the whole of ``events.jsonl``."""
    return "".join(event(timed, number) for number, timed in enumerate(parts))


def thread_id(ending: Ending) -> str:
    """Return the text of ``thread_id.txt``; an agent without threads leaves it empty."""
    return f"{ending.thread_id}\n" if ending.thread_id else ""


def markdown(task_id: str, runner: str, parts: Sequence[Timed], ending: Ending) -> str:
    """Return ``transcript.md``: what happened, for a person."""
    out = [f"# {_line(task_id)}", f"Runner: {_line(runner)}"]
    for number, timed in enumerate(parts):
        part = timed.part
        title = part.kind if not part.tool else f"{part.kind}: {_line(part.tool)}"
        out.append(f"## {number} · {title}\n\n{timed.at}")
        if part.text:
            out.append(_fenced(part.text) if part.kind == "patch" else _quoted(part.text))
        if part.input:
            out.append(f"Input:\n\n{_fenced(part.input)}")
        if part.output:
            out.append(f"Output:\n\n{_fenced(part.output)}")
        if part.exit_code is not None:
            out.append(f"Exit code: {part.exit_code}")
        if part.files:
            out.append("Files: " + ", ".join(_line(path) for path in part.files))
    reason = f": {_line(ending.reason)}" if ending.reason else ""
    out.append(f"## End\n\n{ending.status}{reason}")
    if ending.result is not None:
        out.append(_fenced(json.dumps(ending.result, indent=2, ensure_ascii=False, sort_keys=True)))
    return _valid("\n\n".join(out)) + "\n"


def tool_calls(run_id: str, task_id: str, parts: Iterable[Timed]) -> tuple[dict[str, Json], ...]:
    """Return a ``tool_call.v1`` for every call; a result that comes by itself joins its call."""
    timed = tuple(parts)
    answers = {each.part.call_id: each for each in timed if each.part.kind == "tool_result"}
    return tuple(
        _call(run_id, task_id, each, answers.get(each.part.call_id))
        for each in timed
        if each.part.kind in _TOOLS
    )


def _call(run_id: str, task_id: str, timed: Timed, answer: Timed | None) -> dict[str, Json]:
    part = timed.part
    said = part if answer is None or part.kind != "tool_use" else answer.part
    status = _status(said)
    record: dict[str, Json] = {
        "ts": timed.at,
        "run_id": run_id,
        "task_id": task_id,
        "tool": _valid(part.tool or part.kind),
        "status": status,
        "args": _object(part.input),
        "output_sha256": digest(_valid(said.output or said.text).encode("utf-8")),
    }
    if timed.duration_ms is not None:
        record["duration_ms"] = timed.duration_ms
    if status != "ok":
        record["error"] = _valid(said.output)[:MAX_SHOWN_CHARS]
    return record


def _status(part: Part) -> str:
    if part.exit_code == REFUSED_EXIT_CODE and part.output.startswith("denied"):
        return "denied"
    return "ok" if part.exit_code in {None, 0} else "failed"


def _object(text: str) -> dict[str, Json]:
    """The arguments as an object, whatever the agent gave."""
    try:
        value: Json = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {"text": _valid(text)}
    return value if isinstance(value, dict) else {"value": value}


def usage_json(usage: Usage) -> dict[str, Json]:
    """Return the tokens of an answer as they are recorded."""
    return {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}


def _fenced(text: str) -> str:
    """A code block that the text cannot leave."""
    shown = text if len(text) <= MAX_SHOWN_CHARS else f"{text[:MAX_SHOWN_CHARS]}\n[… cut …]"
    fence = "```"
    while fence in shown:
        fence += "`"
    return f"{fence}text\n{shown.rstrip(chr(10))}\n{fence}"


def _quoted(text: str) -> str:
    """A quotation: what an agent says cannot look like a heading of ours."""
    shown = text if len(text) <= MAX_SHOWN_CHARS else f"{text[:MAX_SHOWN_CHARS]}\n[… cut …]"
    return "\n".join(f"> {line}".rstrip() for line in shown.splitlines())


def _line(text: str) -> str:
    return " ".join(text.split())


def _valid(text: str) -> str:
    """Surrogates cannot be written."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
