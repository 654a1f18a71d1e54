"""What the parts of an agent show to have been refused, and what they do not."""

from __future__ import annotations

import json

import pytest

from coilclaw.kernel.messages import Part
from coilclaw.runners.agent_answer import FORBIDDEN
from coilclaw.runners.agent_requests import Denial, describe_call, find_denials, read_command
from coilclaw.runners.process import MAX_LINE_BYTES, MAX_LINES, OutputLines
from coilclaw.runners.transcript import MAX_FILES, summarize_part

RM = json.dumps({"command": "rm  -r\nx"})


@pytest.mark.parametrize(
    ("part", "found"),
    [
        (
            Part(
                "tool",
                tool="file_read",
                input='{"path":"/etc/passwd"}',
                exit_code=126,
                output="denied by path.forbidden: '/etc/passwd' is under /etc",
            ),
            Denial("file_read /etc/passwd", "'/etc/passwd' is under /etc", "path.forbidden"),
        ),
        (
            Part(
                "tool",
                tool="shell",
                input=RM,
                exit_code=126,
                output="denied by tool_permissions.shell = deny",
            ),
            Denial("rm -r x", "deny", "tool_permissions.shell"),
        ),
        (
            Part("tool", tool="shell", input=RM, text=FORBIDDEN, call_id="c"),
            Denial("rm -r x", "the contract allows no shell", "shell_deny", call_id="c"),
        ),
        (
            Part("patch", tool="apply_patch", text="declined", files=("a", "b")),
            Denial("apply_patch a, b", "the request was declined", "declined"),
        ),
        (
            Part(
                "tool",
                tool="shell",
                input=RM,
                output='exec_command failed: Rejected("rejected by user")',
            ),
            Denial("rm -r x", 'exec_command failed: Rejected("rejected by user")', "codex"),
        ),
        (
            Part(
                "tool",
                tool="shell",
                input=RM,
                exit_code=1,
                output="start\nrm: x: Read-only file system\nend",
            ),
            Denial(
                "rm -r x",
                "the sandbox seems to have refused it: rm: x: Read-only file system",
                rule="sandbox.denied",
            ),
        ),
        (
            Part("text", text="curl: Could not resolve host: a.example", item_type="stderr"),
            Denial(
                "the program",
                "the sandbox seems to have refused it: curl: Could not resolve host: a.example",
                rule="sandbox.denied",
            ),
        ),
    ],
)
def test_what_was_refused_is_found(part: Part, found: Denial) -> None:
    assert list(find_denials(part)) == [found]


@pytest.mark.parametrize(
    "part",
    [
        Part("tool", tool="shell", input=RM, exit_code=0, output="Permission denied"),
        Part("tool", tool="shell", input=RM, exit_code=1, output="1 failed"),
        Part("tool", tool="shell", input=RM, exit_code=126, output="x: cannot execute"),
        Part(
            "tool", tool="file_read", input='{"path":"a"}', exit_code=1, output="permission denied"
        ),
        Part("text", text="Permission denied"),
        Part("reasoning", text="declined"),
        Part("tool", tool="shell", input=RM, exit_code=0, output="rejected by user"),
    ],
)
def test_what_is_no_refusal_is_not_told_as_one(part: Part) -> None:
    assert list(find_denials(part)) == []


def test_refusals_of_a_sandbox_are_bounded_and_each_told_once() -> None:
    output = "\n".join(f"{number % 9}: Permission denied" for number in range(1000))
    part = Part("tool", tool="shell", input=RM, exit_code=1, output=output)
    assert len(list(find_denials(part))) == 3


@pytest.mark.parametrize(
    ("given", "command"),
    [
        ('{"argv":["a","b c"]}', "a 'b c'"),
        ('{"cmd":"ls"}', "ls"),
        ('{"action":{"command":["x"]}}', "x"),
        ('{"path":"a"}', ""),
        ("{", ""),
        ("[" * 100_000, ""),
        ('{"command":7}', ""),
    ],
)
def test_a_command_is_read_from_whatever_an_agent_gives(given: str, command: str) -> None:
    assert read_command(Part("tool", tool="t", input=given)) == command


def test_a_call_is_described_by_what_it_is_about() -> None:
    assert describe_call(Part("tool", tool="http", input='{"url":"http://a"}')) == "http http://a"
    assert describe_call(Part("tool", tool="time", input="{}")) == "time"


def test_a_part_is_summed_up_in_one_line() -> None:
    answer = json.dumps({"summary": "It adds.\nNow.", "status": "SUCCESS"})
    rows = [
        (Part("reasoning", text="\n\nFirst.\nSecond."), {"kind": "thought", "text": "First."}),
        (Part("text", text=answer), {"kind": "message", "text": "It adds."}),
        (
            Part("tool", tool="shell", input=RM, exit_code=3),
            {"kind": "command", "text": "rm -r x", "exit_code": 3},
        ),
    ]
    for part, summary in rows:
        assert summarize_part(part, lambda _: None) == summary
    assert summarize_part(Part("text", text="x", item_type="stderr"), lambda _: None) is None
    many = Part("patch", tool="apply_patch", files=tuple(map(str, range(100))))
    summed = summarize_part(many, lambda _: (1, 2))
    assert summed is not None
    assert isinstance(summed["files"], list)
    assert (len(summed["files"]), summed["more_files"]) == (MAX_FILES, 100 - MAX_FILES)
    assert summed["files"][0] == {"path": "0", "added": 1, "removed": 2}


def test_output_is_cut_into_lines_as_it_comes() -> None:
    said: list[str] = []
    lines = OutputLines(said.append)
    for piece in (b"on", b"e\ntwo\nth", b"r\xffee"):
        lines.take(piece)
    assert said == ["one", "two"]
    lines.finish()
    assert said[2:] == ["thr\ufffdee"]
    lines.finish()
    assert len(said) == 3
    lines.take(b"x" * (3 * MAX_LINE_BYTES))
    lines.take(b"y\n")
    assert len(said[3]) == MAX_LINE_BYTES
    lines.take(b"z\n" * (2 * MAX_LINES))
    assert len(said) == MAX_LINES
