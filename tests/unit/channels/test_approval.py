"""The approval prompt: no is the answer to everything that is not clearly a yes."""

from __future__ import annotations

import io
import os
import pwd

import pytest

from coilclaw.agent.channels.prompts import SHOWN_ARGUMENTS, SHOWN_LINES, TerminalApprover
from coilclaw.kernel.canonical_json import digest_bytes
from coilclaw.kernel.effects import Decision, Risk, Verdict
from coilclaw.kernel.messages import ApprovalAnswer, ApprovalReply, ApprovalRequest
from coilclaw.policy.judgement import Autonomy


def _request(
    arguments: str = '{"content":"hi\\n","path":"a.txt"}',
    detail: tuple[str, ...] = ("+hi",),
    reason: str = "writes to workspace",
    decision: Decision = Decision.ASK,
) -> ApprovalRequest:
    verdict = Verdict(decision, Risk.MEDIUM, "write.workspace", reason)
    return ApprovalRequest("file_write", arguments, verdict, detail, "d1" * 32)


def _ask(typed: str, request: ApprovalRequest) -> tuple[ApprovalReply, str]:
    out = io.StringIO()
    approver = TerminalApprover(
        {"TERM": "xterm"}, source=io.StringIO(typed), out=out, assume_terminal=True
    )
    return approver(request).reply, out.getvalue()


@pytest.mark.parametrize(
    "typed",
    ["", "\n", "n\n", "N\n", "no\n", "yy\n", "y", "ja\n", "\x1b[200~y\n", "\ny\n", "q\ny\n"],
)
def test_everything_but_a_clear_yes_denies(typed: str) -> None:
    assert _ask(typed, _request())[0] is ApprovalReply.NO


@pytest.mark.parametrize(
    ("typed", "reply"),
    [
        ("y\n", ApprovalReply.YES),
        ("Yes\n", ApprovalReply.YES),
        (" y \n", ApprovalReply.YES),
        ("a\n", ApprovalReply.ALWAYS),
        ("always\n", ApprovalReply.ALWAYS),
        ("always this exact call\n", ApprovalReply.ALWAYS),
        ("e\ny\n", ApprovalReply.YES),
        ("explain\na\n", ApprovalReply.ALWAYS),
    ],
)
def test_a_clear_yes_approves(typed: str, reply: ApprovalReply) -> None:
    assert _ask(typed, _request())[0] is reply


@pytest.mark.parametrize(
    ("typed", "reply", "by"),
    [
        ("y\n", ApprovalReply.YES, "person"),
        ("a\n", ApprovalReply.ALWAYS, "person"),
        ("n\n", ApprovalReply.NO, "person"),
        ("\n", ApprovalReply.NO, "person"),
        ("", ApprovalReply.NO, "nobody"),
    ],
)
def test_an_answer_names_the_user_and_only_one_who_answered(
    typed: str, reply: ApprovalReply, by: str
) -> None:
    approver = TerminalApprover(
        {}, source=io.StringIO(typed), out=io.StringIO(), assume_terminal=True
    )
    answer = approver(_request())
    name = pwd.getpwuid(os.getuid()).pw_name
    assert (answer.reply, answer.by) == (reply, f"person {name}" if by == "person" else by)


def test_explaining_is_no_answer() -> None:
    assert _ask("e\n\n", _request())[0] is ApprovalReply.NO
    assert _ask("e\n", _request())[0] is ApprovalReply.NO


def test_a_stream_that_is_no_terminal_is_not_read() -> None:
    source, out = io.StringIO("y\ny\n"), io.StringIO()
    answer = TerminalApprover({}, source=source, out=out)(_request())
    assert answer == ApprovalAnswer(
        ApprovalReply.NO, "nobody", "no terminal is available to ask the user"
    )
    assert source.tell() == 0
    assert out.getvalue() == (
        "Tool request denied: file_write needs approval, and standard input is not a terminal "
        "where the user could be asked.\n"
    )


def test_what_policy_denies_is_not_asked_about() -> None:
    assert _ask("y\n", _request(decision=Decision.DENY)) == (ApprovalReply.NO, "")


def test_an_interrupt_denies_and_goes_on_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(size: int) -> str:
        raise KeyboardInterrupt

    source, out = io.StringIO("y\n"), io.StringIO()
    monkeypatch.setattr(source, "readline", interrupted)
    approver = TerminalApprover({}, source=source, out=out, assume_terminal=True)
    with pytest.raises(KeyboardInterrupt):
        approver(_request())
    assert out.getvalue().endswith("\nDenied.\n")


def test_the_prompt_is_as_specified() -> None:
    assert _ask("y\n", _request())[1] == (
        "\n"
        "Tool request:\n"
        "tool: file_write\n"
        "risk: medium\n"
        "rule: write.workspace\n"
        "reason: writes to workspace\n"
        'args: {"content":"hi\\n","path":"a.txt"}\n'
        "| +hi\n"
        "Approve? [y/N/a/e] "
    )


def test_nothing_in_a_request_can_look_like_a_line_of_the_prompt() -> None:
    fake = "x\nApprove? [y/N/a/e] \nrisk: low"
    request = _request(
        arguments=fake, detail=(fake, "tool: time", "Approve? [y/N/a/e]"), reason=fake
    )
    shown = _ask("\n", request)[1].splitlines()
    ours = [line for line in shown if not line.startswith("|")]
    assert [line.partition(":")[0] for line in ours] == [
        "",
        "Tool request",
        "tool",
        "risk",
        "rule",
        "reason",
        "args",
        "Approve? [y/N/a/e] Denied.",
    ]
    assert "| tool: time" in shown
    assert sum("<LF>" in line for line in shown) >= 3


def test_a_long_line_is_broken_by_us_and_keeps_its_tail() -> None:
    command = "echo " + "a" * 200 + "; rm -rf ~"
    shown = _ask("\n", _request(detail=(command,)))[1].splitlines()
    begin = shown.index(next(row for row in shown if row.startswith("| ")))
    broken = [row for row in shown[begin:] if row.startswith("|")]
    assert [row[:2] for row in broken] == ["| ", "|>", "|>"]
    assert all(len(row) < 80 for row in broken)
    assert "".join(row[2:] for row in broken) == command


def test_what_is_cut_says_how_much_and_shows_all_when_asked() -> None:
    arguments = "@" * SHOWN_ARGUMENTS + "TAIL"
    detail = tuple(f"+line {number}" for number in range(SHOWN_LINES + 40))
    request = _request(arguments=arguments, detail=detail)
    shown = _ask("\n", request)[1]
    whole = digest_bytes("\n".join(detail).encode())
    rest = sum(len(line) for line in detail[SHOWN_LINES:])
    assert (shown.count("@"), "TAIL" in shown) == (SHOWN_ARGUMENTS, False)
    assert (
        f"… 4 more characters of the arguments; sha256 of all {digest_bytes(arguments.encode())}"
        in shown
    )
    assert f"… 40 more lines, {rest} more characters; sha256 of all {whole}" in shown
    explained = _ask("e\n\n", request)[1].removeprefix(shown.removesuffix("Denied.\n"))
    assert "TAIL" in explained
    assert [row for row in explained.splitlines() if row.startswith("| ")] == [
        f"| {line}" for line in detail
    ]
    assert "…" not in explained


def test_a_single_line_that_is_too_long_is_cut_with_a_note() -> None:
    shown = _ask("\n", _request(detail=("y" * 7000,)))[1]
    assert "… 0 more lines, 1000 more characters; sha256 of all " in shown


@pytest.mark.parametrize("level", list(Autonomy))
def test_explain_says_what_the_level_does_and_what_the_word_is_bound_to(level: Autonomy) -> None:
    out = io.StringIO()
    source = io.StringIO("e\nn\n")
    TerminalApprover({}, autonomy=level, source=source, out=out, assume_terminal=True)(_request())
    explained = out.getvalue().split("Approve? [y/N/a/e] ")[1]
    assert f"autonomy: {level.value}: " in explained
    assert "rule: write.workspace\nreason: writes to workspace\n" in explained
    assert f"bound to: sha256 {'d1' * 32}" in explained


def test_a_screen_that_knows_no_letters_beyond_ascii_gets_escapes() -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii")
    TerminalApprover({}, source=io.StringIO("\n"), out=out, assume_terminal=True)(
        _request(detail=("caf\u00e9 \u202e",))
    )
    out.flush()
    assert b"| caf<U+00E9> <U+202E>\n" in raw.getvalue()


@pytest.mark.parametrize(
    "request_",
    [
        _request(arguments="x" * (SHOWN_ARGUMENTS + 1)),
        _request(detail=("x",) * (SHOWN_LINES + 1)),
        _request(detail=("x" * 7000, "sandbox: none")),
    ],
)
def test_a_yes_counts_only_when_all_of_it_was_shown(request_: ApprovalRequest) -> None:
    reply, shown = _ask("y\na\n\n", request_)
    assert reply is ApprovalReply.NO
    assert shown.count("Not all of it was shown yet") == 2
    assert _ask("y\ne\ny\n", request_)[0] is ApprovalReply.YES
    assert _ask("e\na\n", request_)[0] is ApprovalReply.ALWAYS


def test_text_that_looks_like_the_note_does_not_stand_in_for_it() -> None:
    assert _ask("y\n", _request(detail=("… 3 more lines",)))[0] is ApprovalReply.YES
