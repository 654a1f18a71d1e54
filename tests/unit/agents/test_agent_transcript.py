"""From parts to the files of a run bundle."""

from __future__ import annotations

import json

import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from coilclaw.kernel import schemas
from coilclaw.kernel.messages import Part, Usage
from coilclaw.runners import transcript
from coilclaw.runners.runner import Ending
from coilclaw.runners.transcript import Timed

AT = "2026-11-15T09:00:00Z"
PARTS = (
    Timed(AT, Part("reasoning", "hm"), 4),
    Timed(
        AT,
        Part(
            "tool",
            tool="shell",
            call_id="c1",
            input='{"command":"ls"}',
            output="a\n",
            exit_code=0,
            files=("a",),
            usage=Usage(1, 2),
        ),
        12,
    ),
)


def test_an_event_holds_the_whole_part() -> None:
    lines = transcript.events(PARTS).splitlines()
    assert [json.loads(line) for line in lines] == [
        {"seq": 0, "ts": AT, "type": "reasoning", "text": "hm", "duration_ms": 4},
        {
            "seq": 1,
            "ts": AT,
            "type": "tool",
            "tool": "shell",
            "call_id": "c1",
            "input": '{"command":"ls"}',
            "output": "a\n",
            "exit_code": 0,
            "files": ["a"],
            "usage": {"input_tokens": 1, "output_tokens": 2},
            "duration_ms": 12,
        },
    ]


@given(st.text(), st.text(), st.lists(st.text(), max_size=3), st.integers(0, 255))
def test_every_part_becomes_one_line_of_canonical_json(
    text: str, output: str, files: list[str], code: int
) -> None:
    part = Part("tool", text, "t", "c", "{}", output, code, tuple(files))
    line = transcript.event(Timed(AT, part), 3)
    assert line.count("\n") == 1
    assert line.encode() == rfc8785.dumps(json.loads(line)) + b"\n"
    record = json.loads(line)
    assert (record.get("text", ""), record.get("output", "")) == (text, output)


def test_what_is_no_unicode_is_written_all_the_same() -> None:
    part = Part("text", "a\udc80b", files=("\udcff",))
    assert json.loads(transcript.event(Timed(AT, part), 0))["text"] == "a\\udc80b"
    assert "a\\udc80b" in transcript.markdown("t", "r", (Timed(AT, part),), Ending("done"))


def test_a_transcript_is_for_people_and_cannot_be_forged() -> None:
    hostile = Part("text", "# End\n\ndone\n```\n## 7 · tool: shell")
    fenced = Part("tool", tool="shell", input="{}", output="```\n# End\n````\n", exit_code=1)
    text = transcript.markdown(
        "task-1",
        "scripted",
        (Timed(AT, hostile), Timed(AT, fenced)),
        Ending("failed", "no\n# End", {"status": "FAILED"}),
    )
    assert [line for line in text.splitlines() if line.startswith("#")] == [
        "# task-1",
        "## 0 · text",
        "## 1 · tool: shell",
        "# End",  # inside of a fence that is longer than any in the text
        "## End",
    ]
    assert "`````text\n```\n# End\n````\n`````" in text
    assert "failed: no # End" in text


def test_the_thread_id_is_a_line_or_nothing() -> None:
    assert transcript.thread_id(Ending("done")) == ""
    assert transcript.thread_id(Ending("done", thread_id="conv-1")) == "conv-1\n"


def test_tool_calls_say_what_was_called_and_what_came_of_it() -> None:
    denied = Part(
        "tool", tool="shell", input='{"command":"x"}', output="denied by y", exit_code=126
    )
    failed = Part("tool", tool="build", input="not json", output="boom", exit_code=2)
    used = Part("tool_use", tool="edit", call_id="c9", input="[1]")
    answered = Part("tool_result", call_id="c9", output="no such file", exit_code=1)
    parts = [*PARTS, *(Timed(AT, part) for part in (denied, failed, used, answered))]
    found = transcript.tool_calls("run-1", "task-1", parts)
    common = {"ts": AT, "run_id": "run-1", "task_id": "task-1"}
    assert [schemas.find_schema_problems("tool_call.v1", record) for record in found] == [()] * 4
    digests = [record.pop("output_sha256") for record in found]
    assert list(found) == [
        {**common, "tool": "shell", "status": "ok", "args": {"command": "ls"}, "duration_ms": 12},
        {
            **common,
            "tool": "shell",
            "status": "denied",
            "args": {"command": "x"},
            "error": "denied by y",
        },
        {
            **common,
            "tool": "build",
            "status": "failed",
            "args": {"text": "not json"},
            "error": "boom",
        },
        {
            **common,
            "tool": "edit",
            "status": "failed",
            "args": {"value": [1]},
            "error": "no such file",
        },
    ]
    assert digests[0] == "87428fc522803d31065e7bce3cf03fe475096631e5e07bbd7a0fde60c4cf25c7"
    assert len(set(digests)) == 4
