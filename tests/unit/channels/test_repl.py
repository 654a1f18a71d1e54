"""The conversation without a terminal, and what its commands show."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest

from coilclaw.agent.channels.commands import COMMANDS, ChatCommands
from coilclaw.agent.channels.lines import MAX_LINE
from coilclaw.agent.channels.prompts import TerminalAsker
from coilclaw.agent.channels.terminal import MAX_MESSAGE, TerminalChannel, run_one_turn
from coilclaw.kernel.errors import ProviderTimeout, UsageError
from tests.support.command import Command
from tests.support.repository import ROOT
from tests.unit.channels.world import World

GREETING = (
    "Conversation conversation-1\nResume it with: coilclaw agent --conversation conversation-1\n"
)


class Screen(io.StringIO):
    """A terminal that is not there."""

    def isatty(self) -> bool:
        return True


def _talk(typed: str | bytes, world: World | None = None) -> tuple[str, str, TerminalChannel]:
    raw = typed.encode() if isinstance(typed, str) else typed
    out, err = io.StringIO(), io.StringIO()
    source = io.TextIOWrapper(io.BytesIO(raw), encoding="utf-8")
    repl = TerminalChannel({"TERM": "xterm"}, source=source, out=out, err=err)
    repl.start(world or World())
    return out.getvalue(), err.getvalue(), repl


def test_a_pipe_gets_exact_answers_and_no_prompt() -> None:
    world = World()
    out, err, repl = _talk("one\n\n   \ntwo\r\nthree", world)
    assert out == "echo: one\x1b[2J\necho: two\x1b[2J\necho: three\x1b[2J\n"
    assert err == GREETING
    assert world.asked == [(text, "conversation-1") for text in ("one", "two", "three")]
    assert repl.problem is None


def test_a_provider_that_fails_is_one_sentence_and_the_conversation_goes_on() -> None:
    out, err, repl = _talk("fail\nhello\n")
    assert err == GREETING + ("coilclaw: local gave no answer within 5 s [provider.timeout]\n")
    assert out == "echo: hello\x1b[2J\n"
    assert isinstance(repl.problem, ProviderTimeout)


def test_a_failure_in_the_last_line_is_told_too() -> None:
    assert "[provider.timeout]" in _talk("fail")[1]


def test_a_line_that_is_not_utf8_is_refused_and_the_next_one_is_not() -> None:
    out, err, _ = _talk(b"a\xff\nb\n")
    assert "the line is not valid UTF-8 [message.encoding]" in err
    assert out == "echo: b\x1b[2J\n"


def test_a_line_beyond_the_bound_is_refused_and_the_next_one_is_not() -> None:
    world = World()
    _, err, _ = _talk(b"x" * (2 * MAX_LINE + 5) + b"\nb\n", world)
    assert err.count("[message.large]") == 1
    assert world.asked == [("b", "conversation-1")]


def test_a_message_beyond_the_bound_is_refused_with_all_of_its_lines() -> None:
    world = World()
    half = "x" * (MAX_MESSAGE // 2)
    _, err, _ = _talk(f"{half}\\\n{half}\\\nend\nb\n", world)
    assert err.count("[message.large]") == 1
    assert world.asked == [("b", "conversation-1")]


@pytest.mark.parametrize(
    ("typed", "messages"),
    [
        ("a\\\nb\n", ["a\nb"]),
        ("a\\\\\nb\n", ["a\\\\", "b"]),
        ("a\\\\\\\nb\n", ["a\\\\\nb"]),
        ("a\\\n", ["a"]),
        (" /exit\n", [" /exit"]),
        ("a\n/exit\nb\n", ["a"]),
        ("a\n/exit  \nb\n", ["a"]),
    ],
)
def test_lines_become_messages(typed: str, messages: list[str]) -> None:
    world = World()
    _talk(typed, world)
    assert [message for message, _ in world.asked] == messages


def test_a_conversation_is_resumed() -> None:
    world = World()
    source = io.StringIO("hi\n")
    repl = TerminalChannel(
        {}, source=source, out=io.StringIO(), err=io.StringIO(), conversation_id="c-7"
    )
    repl.start(world)
    assert world.asked == [("hi", "c-7")]


def test_every_command_shows_what_it_says() -> None:
    out, err, _ = _talk(
        "/tools\n/memory aardvark\n/memory nothing\n/policy\n/receipts\n/model\n/model other\n"
        "x\n/undo\n"
    )
    assert err == GREETING
    assert out == (
        "time       Tells the time.\n"
        "file_read  Reads \x1b[31ma file.\n"
        "c-9  2026-05-12T14:00:00Z  user: the aardvark\n"
        "Nothing found.\n"
        "autonomy: supervised\n"
        "workspace: /w\n"
        "T  receipt-1  time  allowed  low\n"
        "* local (mock)\n"
        "  lofty (large)\n"
        "  other (small)\n"
        "* other (small)\n"
        "echo: x\x1b[2J\n"
        "restored a.txt\n"
        "left b.txt: it changed since\n"
    )


def test_on_a_terminal_what_a_command_shows_is_dead() -> None:
    out = Screen()
    source = io.StringIO("/tools\nhi\n")
    TerminalChannel({}, source=source, out=out, err=io.StringIO()).start(World())
    assert "Reads <ESC>[31ma file.\n" in out.getvalue()
    assert "echo: hi<ESC>[2J\n" in out.getvalue()
    assert "\x1b" not in out.getvalue()


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("/tool", "unknown command /tool [command.unknown]\n  hint: did you mean /tools? "),
        ("/etc/passwd is?", "unknown command /etc/passwd [command.unknown]\n  hint: /help"),
        ("/memory", "/memory needs something to look for [command.argument]"),
        ("/tools all", "/tools takes no argument [command.argument]"),
        ("/model nobody", "there is no provider nobody [provider.unknown]"),
        ("/undo", "there is no turn to take back [undo]\n  hint: say something first"),
    ],
)
def test_a_command_that_cannot_be_is_explained(typed: str, said: str) -> None:
    world = World()
    out, err, _ = _talk(typed + "\n", world)
    assert said in err
    assert (out, world.asked, world.used) == ("", [], "local")


def test_help_lists_every_command() -> None:
    out = _talk("/help\n")[0]
    assert [line.split()[0] for line in out.splitlines()[:-1]] == [c.name for c in COMMANDS]


@pytest.mark.parametrize(
    ("line", "word", "found"),
    [
        (
            "/",
            "/",
            ["/exit", "/tools", "/memory ", "/policy", "/receipts", "/undo", "/model ", "/help"],
        ),
        ("/re", "/re", ["/receipts"]),
        ("/model l", "l", ["local", "lofty"]),
        ("/model ", "", ["local", "lofty", "other"]),
        ("/model x y", "y", []),
        ("/tools l", "l", []),
        ("hello /re", "/re", []),
        ("", "", []),
    ],
)
def test_completion(line: str, word: str, found: list[str]) -> None:
    assert ChatCommands(World(), "c").complete(line, word) == found


def test_one_shot_gives_a_pipe_the_exact_text() -> None:
    out = io.StringIO()
    outcome = run_one_turn(World(), "hi", out=out, environ={}, conversation_id="c-1")
    assert (outcome.conversation_id, out.getvalue()) == ("c-1", "echo: hi\x1b[2J\n")


def test_one_shot_shows_drafts_once() -> None:
    out = Screen()
    run_one_turn(World(), "hi", out=out, environ={})
    assert out.getvalue() == "echo: hi<ESC>[2J\n"


def test_one_shot_lets_the_failure_through() -> None:
    with pytest.raises(ProviderTimeout):
        run_one_turn(World(), "fail", out=io.StringIO(), environ={})


def test_a_message_from_elsewhere_names_its_conversation() -> None:
    out = io.StringIO()
    repl = TerminalChannel(
        {}, source=io.StringIO(), out=out, err=io.StringIO(), conversation_id="c-1"
    )
    repl.send("c-1", "mine")
    repl.send("c-2", "theirs")
    assert out.getvalue() == "mine\n[c-2]\ntheirs\n"
    assert (repl.name, repl.supports_draft_updates) == ("cli", False)


def test_nobody_is_asked_without_a_terminal() -> None:
    source, out = io.StringIO("an answer\n"), io.StringIO()
    assert TerminalAsker({}, source=source, out=out)("Why?") is None
    assert (source.tell(), out.getvalue()) == (0, "")


def test_a_long_question_is_cut_with_a_note() -> None:
    out = io.StringIO()
    ask = TerminalAsker({}, source=io.StringIO("because\n"), out=out, assume_terminal=True)
    assert ask("\n" * 50) == "because"
    assert out.getvalue().count("| \n") == 40
    assert "… 11 more characters\n" in out.getvalue()
    assert TerminalAsker({}, source=io.StringIO(""), out=out, assume_terminal=True)("?") is None


def test_an_unknown_command_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="unknown command /nope"):
        ChatCommands(World(), "c").perform("/nope")


def test_a_real_pipe_is_no_terminal(tmp_path: Path) -> None:
    world = Path(__file__).parent / "world.py"
    environment = {
        **Command(tmp_path / "home").env(),
        "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
        "TERM": "xterm",
    }
    done = subprocess.run(
        [sys.executable, str(world), "repl", str(tmp_path / "history")],
        input=b"approve\ny\nask\n",
        capture_output=True,
        env=environment,
        timeout=60,
        check=True,
    )
    assert done.stdout.splitlines() == [
        b"reply: ApprovalReply.NO",
        b"echo: y\x1b[2J",
        b"answer: None",
    ]
    assert b"standard input is not a terminal" in done.stderr
    assert b"\x1b" not in done.stderr
    assert not (tmp_path / "history").exists()
