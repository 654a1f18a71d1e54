"""The record of a performance, from its parts: events, a readable transcript, tool calls.

Pure: times come in, texts go out. The caller that writes the texts takes secrets out.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import canonical_json, digest_bytes, valid_text
from coilclaw.runners.agent_requests import describe_call, read_command
from coilclaw.runners.contract_policy import REFUSED_EXIT_CODE
from coilclaw.runners.process import ERROR_OUTPUT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from coilclaw.kernel import Json, Part, Usage
    from coilclaw.runners.runner import Ending


MAX_SUMMARY_CHARS: Final = 2_000
MAX_FILES: Final = 20


def summarize_part(
    part: Part, count_lines: Callable[[str], tuple[int, int] | None]
) -> dict[str, Json] | None:
    """Return kind and content of a part; ``None`` for output that was shown line by line."""
    if part.item_type == ERROR_OUTPUT:
        return None
    if part.kind in {"reasoning", "text"}:
        kind = "thought" if part.kind == "reasoning" else "message"
        return {"kind": kind, "text": read_first_line(part.text)[:MAX_SUMMARY_CHARS]}
    record: dict[str, Json] = {
        "kind": "tool",
        "text": describe_call(part)[:MAX_SUMMARY_CHARS],
    }
    if part.files:
        record["kind"] = "file"
        some = part.files[:MAX_FILES]
        shown: list[Json] = []
        for path in some:
            added, removed = count_lines(path) or (None, None)
            shown.append({"path": path[:MAX_SUMMARY_CHARS], "added": added, "removed": removed})
        record["files"] = shown
        record["more_files"] = len(part.files) - len(some)
    elif read_command(part):
        record["kind"] = "command"
    if part.exit_code is not None:
        record["exit_code"] = part.exit_code
    return record


def read_first_line(text: str) -> str:
    """Return the first line that says something; of a JSON answer, its summary."""
    start = text.lstrip()
    if start.startswith("{"):
        try:
            answer = json.loads(start)
        except (ValueError, RecursionError):
            answer = None
        if isinstance(answer, dict) and isinstance(answer.get("summary"), str):
            start = answer["summary"].strip()
    return start.partition("\n")[0].strip()


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
    """Since the part before; how long a tool took is not known more exactly from outside."""


def event(timed: Timed, number: int) -> str:
    """Return one line of ``events.jsonl``: the part whole, in RFC 8785."""
    part = timed.part
    record: dict[str, Json] = {"seq": number, "ts": timed.at, "type": part.kind}
    for name in ("text", "tool", "call_id", "input", "output", "item_type", "raw"):
        if value := getattr(part, name):
            record[name] = valid_text(value)
    if part.exit_code is not None:
        record["exit_code"] = part.exit_code
    if part.files:
        record["files"] = [valid_text(path) for path in part.files]
    if part.usage is not None:
        record["usage"] = usage_json(part.usage)
    if timed.duration_ms is not None:
        record["duration_ms"] = timed.duration_ms
    return canonical_json.render_json(record) + "\n"


def events(parts: Iterable[Timed]) -> str:
    """Return the whole of ``events.jsonl``."""
    return "".join(event(timed, number) for number, timed in enumerate(parts))


def thread_id(ending: Ending) -> str:
    """Return the text of ``thread_id.txt``; an agent without threads leaves it empty."""
    return f"{ending.thread_id}\n" if ending.thread_id else ""


def markdown(task_id: str, runner: str, parts: Sequence[Timed], ending: Ending) -> str:
    """Return ``transcript.md``: what happened, for a person."""
    out = [f"# {_join_words(task_id)}", f"Runner: {_join_words(runner)}"]
    for number, timed in enumerate(parts):
        part = timed.part
        title = part.kind if not part.tool else f"{part.kind}: {_join_words(part.tool)}"
        out.append(f"## {number} · {title}\n\n{timed.at}")
        if part.text:
            out.append(_fence(part.text) if part.kind == "patch" else _quote(part.text))
        if part.input:
            out.append(f"Input:\n\n{_fence(part.input)}")
        if part.output:
            out.append(f"Output:\n\n{_fence(part.output)}")
        if part.exit_code is not None:
            out.append(f"Exit code: {part.exit_code}")
        if part.files:
            out.append("Files: " + ", ".join(_join_words(path) for path in part.files))
    reason = f": {_join_words(ending.reason)}" if ending.reason else ""
    out.append(f"## End\n\n{ending.status}{reason}")
    if ending.result is not None:
        out.append(_fence(json.dumps(ending.result, indent=2, ensure_ascii=False, sort_keys=True)))
    return valid_text("\n\n".join(out)) + "\n"


def tool_calls(run_id: str, task_id: str, parts: Iterable[Timed]) -> tuple[dict[str, Json], ...]:
    """Return a ``tool_call.v1`` for every call; a result that comes by itself joins its call."""
    timed = tuple(parts)
    answers = {each.part.call_id: each for each in timed if each.part.kind == "tool_result"}
    return tuple(
        _make_tool_call(run_id, task_id, each, answers.get(each.part.call_id))
        for each in timed
        if each.part.kind in _TOOLS
    )


def _make_tool_call(
    run_id: str, task_id: str, timed: Timed, answer: Timed | None
) -> dict[str, Json]:
    part = timed.part
    said = part if answer is None or part.kind != "tool_use" else answer.part
    status = _find_status(said)
    record: dict[str, Json] = {
        "ts": timed.at,
        "run_id": run_id,
        "task_id": task_id,
        "tool": valid_text(part.tool or part.kind),
        "status": status,
        "args": _read_arguments(part.input),
        "output_sha256": digest_bytes(valid_text(said.output or said.text).encode("utf-8")),
    }
    if timed.duration_ms is not None:
        record["duration_ms"] = timed.duration_ms
    if status != "ok":
        record["error"] = valid_text(said.output)[:MAX_SHOWN_CHARS]
    return record


def _find_status(part: Part) -> str:
    if part.exit_code == REFUSED_EXIT_CODE and part.output.startswith("denied"):
        return "denied"
    return "ok" if part.exit_code in {None, 0} else "failed"


def _read_arguments(text: str) -> dict[str, Json]:
    """Return the arguments as an object, whatever their form."""
    try:
        value: Json = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {"text": valid_text(text)}
    return value if isinstance(value, dict) else {"value": value}


def usage_json(usage: Usage) -> dict[str, Json]:
    """Return the tokens of an answer as they are recorded."""
    return {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}


def _fence(text: str) -> str:
    """Return a code block that the text cannot close."""
    shown, fence = _cut(text), "```"
    while fence in shown:
        fence += "`"
    return f"{fence}text\n{shown.rstrip(chr(10))}\n{fence}"


def _quote(text: str) -> str:
    """Return a quotation, so that the text cannot look like a heading."""
    return "\n".join(f"> {line}".rstrip() for line in _cut(text).splitlines())


def _cut(text: str) -> str:
    return text if len(text) <= MAX_SHOWN_CHARS else f"{text[:MAX_SHOWN_CHARS]}\n[… cut …]"


def _join_words(text: str) -> str:
    return " ".join(text.split())
