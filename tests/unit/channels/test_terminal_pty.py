"""The conversation at a real terminal: keys, signals, and nothing that a model can do to it."""

from __future__ import annotations

import json
import signal
import stat
from pathlib import Path

import pytest

from tests.unit.channels.ptysession import PtySession

PROMPT = "> "


@pytest.fixture
def history(tmp_path: Path) -> Path:
    return tmp_path / "history"


def test_ctrl_c_cancels_the_turn_and_not_the_program(history: Path) -> None:
    with PtySession("repl", str(history), term="dumb") as session:
        session.expect("--conversation conversation-1")
        session.expect(PROMPT)
        session.send("slow\n")
        session.expect("working on it")
        session.interrupt("Turn cancelled; the conversation continues.")
        session.expect(PROMPT)
        session.send("hello\n")
        session.expect("echo: hello<ESC>[2J")
        session.expect(PROMPT)
        session.send("/exit\n")
        session.expect("left")
        assert session.end() == 0
    assert "\x1b" not in session.seen


def test_ctrl_c_at_the_prompt_hints_once_and_ctrl_d_leaves(history: Path) -> None:
    with PtySession("repl", str(history), term="dumb") as session:
        session.expect(PROMPT)
        session.send("half a mess")
        session.expect("mess")
        session.interrupt("To leave, type /exit or press Ctrl-D.")
        session.expect(PROMPT)
        assert "To leave" not in session.interrupt(PROMPT)
        session.send("whole\n")
        session.expect("echo: whole")
        session.expect(PROMPT)
        session.send("\x04")
        session.expect("left")
        assert session.end() == 0


def test_a_signal_that_ends_the_program_ends_it_during_a_turn(history: Path) -> None:
    with PtySession("repl", str(history)) as session:
        session.expect(PROMPT)
        session.send("slow\n")
        session.expect("working on it")
        session.signal(signal.SIGTERM)
        assert session.end() != 0
    assert "left" not in session.seen


def test_tab_completes_commands_and_models(history: Path) -> None:
    with PtySession("repl", str(history), term="dumb") as session:
        session.expect(PROMPT)
        session.send("/mo\t")
        session.expect("/model ")
        session.send("ot\t")
        session.expect("other")
        session.send("\n")
        session.expect("* other (small)")
        session.expect(PROMPT)
        session.send("/model lo\t\t")
        session.expect("local")
        session.expect("lofty")
        session.send("\x15/exit\n")
        session.expect("left")


def test_history_is_recalled_also_by_the_next_session_and_is_private(history: Path) -> None:
    with PtySession("repl", str(history), term="dumb") as session:
        for message in ("first words", " secret words", "second \u00e9"):
            session.expect(PROMPT)
            session.send(f"{message}\n")
            session.expect("echo: ")
        session.expect(PROMPT)
        session.send("\x10\x10\n")  # twice up, past what began with a space
        session.expect("echo: first words")
        session.send("/exit\n")
        session.expect("left")
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    lines = [json.loads(line) for line in history.read_text().splitlines()]
    assert lines == ["first words", "second \u00e9", "first words", "/exit"]
    with PtySession("repl", str(history), term="dumb") as session:
        session.expect(PROMPT)
        session.send("\x10\x10\n")
        session.expect("echo: first words")


def test_a_line_that_ends_in_a_backslash_goes_on(history: Path) -> None:
    with PtySession("repl", str(history), term="dumb") as session:
        session.expect(PROMPT)
        session.send("one\\\n")
        session.expect("... ")
        session.send("two\n")
        session.expect("echo: one\r\ntwo")
        session.expect(PROMPT)
        session.send("three\\\n")
        session.expect("... ")
        session.interrupt(PROMPT)
        session.send("four\n")
        session.expect("echo: four")


def test_a_wide_terminal_that_becomes_narrow_is_still_a_terminal(history: Path) -> None:
    with PtySession("repl", str(history), columns=200) as session:
        session.expect(PROMPT)
        session.send("approve\n")
        session.expect("Approve? [y/N/a/e]")
        session.resize(40, 10)
        session.signal(signal.SIGWINCH)
        session.send("y\n")
        session.expect("reply: ApprovalReply.YES")
        session.resize(60, 12)
        session.signal(signal.SIGWINCH)
        session.send("hello\n")
        session.expect("echo: hello")


def test_what_was_typed_before_the_question_does_not_answer_it(history: Path) -> None:
    with PtySession("repl", str(history), term="dumb") as session:
        session.expect(PROMPT)
        session.send("approve\ny\n")
        shown = session.expect("Approve? [y/N/a/e] ")
        assert "| make\r\n| echo <U+202E>\r\n" in shown
        session.send("n\n")
        session.expect("reply: ApprovalReply.NO")


def test_what_was_typed_before_the_program_could_ask_does_not_answer_it() -> None:
    with PtySession("once", "approve", term="dumb") as session:
        session.send("y\n")
        session.expect("Approve? [y/N/a/e] ")
        session.send("n\n")
        session.expect("reply: ApprovalReply.NO")


def test_pasted_text_does_not_answer_either(history: Path) -> None:
    with PtySession("repl", str(history)) as session:
        session.expect("conversation-1")
        session.send("approve\n")
        session.expect("Approve? [y/N/a/e]")
        session.expect("\x1b[?2004h")
        session.send("\x1b[200~y\ny\n\x1b[201~")
        assert "\x1b[?2004l" in session.expect("reply: ApprovalReply.NO")


def test_lines_that_are_pasted_together_are_one_message(history: Path) -> None:
    with PtySession("repl", str(history)) as session:
        session.expect("\x1b[?2004h")
        session.send("\x1b[200~one\ntwo\x1b[201~\n")
        session.expect("echo: one\r\ntwo<ESC>[2J")


@pytest.mark.parametrize(
    ("typed", "reply"), [("y\n", "YES"), ("a\n", "ALWAYS"), ("\n", "NO"), ("\x04", "NO")]
)
def test_the_answer_is_taken_from_the_terminal(typed: str, reply: str) -> None:
    with PtySession("once", "approve", term="dumb") as session:
        session.expect("Approve? [y/N/a/e] ")
        session.send(typed)
        session.expect(f"reply: ApprovalReply.{reply}")
        assert session.end() == 0


def test_an_explanation_comes_in_pages_and_its_keys_approve_nothing() -> None:
    with PtySession("once", "approve", term="dumb") as session:
        session.expect("Approve? [y/N/a/e] ")
        session.resize(80, 8)
        session.send("e\n")
        session.expect("more rows: Enter continues, q ends -- ")
        session.send("\n")
        session.expect("Approve? [y/N/a/e] ")
        session.send("explain\n")
        session.expect("more rows: Enter continues, q ends -- ")
        session.send("y\n")
        session.expect("Approve? [y/N/a/e] ")
        session.send("\n")
        session.expect("reply: ApprovalReply.NO")


def test_a_history_that_cannot_be_kept_is_no_reason_to_stop(tmp_path: Path) -> None:
    with PtySession("repl", str(tmp_path / "missing" / "history"), term="dumb") as session:
        session.expect(PROMPT)
        session.send("hello\n")
        session.expect("cannot write the history")
        session.expect("echo: hello")
        session.send("\x10\n")
        session.expect("echo: hello")


def test_ctrl_c_at_the_question_denies_and_cancels_the_turn(history: Path) -> None:
    with PtySession("repl", str(history), term="dumb") as session:
        session.expect(PROMPT)
        session.send("approve\n")
        session.expect("Approve? [y/N/a/e] ")
        session.interrupt("Denied.")
        session.expect("Turn cancelled")
        session.send("hello\n")
        session.expect("echo: hello")
    assert "reply:" not in session.seen


def test_the_person_sees_the_question_when_errors_go_to_a_file(tmp_path: Path) -> None:
    errors = tmp_path / "errors"
    with PtySession("once", "approve", term="dumb", columns=30, stderr=errors) as session:
        session.expect("reason: runs an allowlisted c\r\n|>ommand\r\n")
        session.expect("Approve? [y/N/a/e] ")
        session.send("y\n")
        session.expect("reply: ApprovalReply.YES")
    assert "Approve? [y/N/a/e] " in errors.read_text()


def test_the_model_asks_in_a_frame_and_is_given_the_answer() -> None:
    with PtySession("once", "ask", term="dumb") as session:
        session.expect("The model asks:\r\n| Which one?\r\n| <ESC>[2J\r\n")
        session.expect("the model is given: ")
        session.send("the second\n")
        session.expect("answer: 'the second'")


@pytest.mark.parametrize(("environment", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_colour_is_for_terminals_that_want_it(
    history: Path, environment: dict[str, str], coloured: bool
) -> None:
    with PtySession("repl", str(history), environment=environment) as session:
        session.expect("Conversation conversation-1")
        session.expect("Ctrl-D leaves.")
        assert ("\x1b[2m" in session.seen) is coloured
